"""One headless Chromium for all tests of pages, a synthetic run, and a sweep with its comparison."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsim.analysis.comparison import Comparison, compare
from fedsim.analysis.comparison.page import render as render_comparison
from fedsim.analysis.report import render
from fedsim.analysis.run import Run
from fedsim.sweeps import Sweep
from tests.analysis.browser import CHROMIUM, Page, browser
from tests.analysis.comparison import compared
from tests.analysis.documents import embedded
from tests.runs.synthetic_runs import build_run

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    without = pytest.mark.skip(reason="there is no chromium to open pages with")
    for item in items:
        if CHROMIUM is None and item.get_closest_marker("browser"):
            item.add_marker(without)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Page]:
    """The browser; a test opens its page with :meth:`Page.open`."""
    with browser() as page:
        yield page


@pytest.fixture
def page(chromium: Page, written: Path) -> Page:
    """The page that the fixture ``written`` of a test's file has written."""
    chromium.open(written)
    return chromium


@pytest.fixture
def unchanged(chromium: Page, written: Path) -> Page:
    """The page for tests that only read it. These come first: it is loaded once."""
    chromium.show(written)
    return chromium


@pytest.fixture(scope="session", params=[False, True], ids=["synchronous", "asynchronous"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("report") / "run"
    return build_run(path, clients=30, hours=24, asynchronous=request.param, seed=4)


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return compared.once(tmp_path_factory)


@pytest.fixture(scope="session")
def comparison(sweep: Sweep) -> Comparison:
    return compare(sweep.path, targets=[f"accuracy={value}" for value in compared.TARGETS])


@pytest.fixture(scope="session")
def comparison_page(comparison: Comparison) -> str:
    return render_comparison(comparison)


@pytest.fixture(scope="session")
def document(run: Run) -> dict[str, Any]:
    return embedded(render(run))
