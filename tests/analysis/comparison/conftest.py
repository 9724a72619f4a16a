"""The data of a comparison's page."""

from typing import Any

import pytest

from tests.analysis.documents import embedded


@pytest.fixture(scope="session")
def document(comparison_page: str) -> dict[str, Any]:
    return embedded(comparison_page)
