"""One headless Chromium for all tests of pages, and the builder of synthetic runs of the tests of the run folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analysis.browser import CHROMIUM, Page, browser

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
