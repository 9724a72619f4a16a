"""One sweep and its comparison, shared by the tests of this folder."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fedsim.analysis.comparison import Comparison, compare
from fedsim.analysis.comparison.page import render
from fedsim.sweeps import Sweep
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import TARGETS


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return compared.build(tmp_path_factory.mktemp("compared") / "sweep")


@pytest.fixture(scope="session")
def comparison(sweep: Sweep) -> Comparison:
    return compare(sweep.path, targets=[f"accuracy={value}" for value in TARGETS])


@pytest.fixture(scope="session")
def document(comparison: Comparison) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', render(comparison), re.S
    )
    assert found
    data: dict[str, Any] = json.loads(found.group(1))
    return data
