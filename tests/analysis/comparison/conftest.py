"""The data of a comparison's page."""

from typing import Any

import pytest

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.page import render
from tests.analysis.documents import embedded


@pytest.fixture(scope="session")
def document(comparison: Comparison) -> dict[str, Any]:
    return embedded(render(comparison))
