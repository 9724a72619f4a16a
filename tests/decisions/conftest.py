"""A decision that several tests only read."""

import pytest

from fedsim.decisions import Decision
from tests.decisions.test_deciding import decided
from tests.reports import empty_reports


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Decision:
    with empty_reports():
        return decided(tmp_path_factory.mktemp("decide") / "d")


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory) -> Decision:
    """A decision with two objectives."""
    with empty_reports():
        folder = tmp_path_factory.mktemp("front") / "d"
        return decided(folder, objectives=["time", "bytes"], settings=8, seeds=2)
