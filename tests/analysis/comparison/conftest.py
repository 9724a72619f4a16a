"""The data of a comparison's page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.page import render


@pytest.fixture(scope="session")
def document(comparison: Comparison) -> dict[str, Any]:
    match = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', render(comparison), re.S
    )
    assert match
    data: dict[str, Any] = json.loads(match.group(1))
    return data
