"""What all tests share: one thread for numerics, hypothesis profile, the folder of real data."""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.reports import empty_reports

# Before any test module imports numpy or torch: tests run in parallel processes, one thread each.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
os.environ.setdefault("MPLBACKEND", "Agg")
# Many tests start processes, each of which would otherwise compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A sixth of the suite's time would go to waiting for the disk, and no test cuts the power; test_durable.py checks that
# files and folders are flushed.
os.fsync = lambda file: None
# A process that has collected thousands of tests and imported torch holds so many objects that it would spend a
# twentieth of its time looking for garbage among them. A run collects its own at its end.
gc.set_threshold(20_000, 10, 10)

settings.register_profile(
    "fedsim",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fedsim")


@pytest.fixture(scope="session")
def fedsim_data() -> Path:
    """The folder of real data sets and traces that ``FEDSIM_DATA`` names; skips without it."""
    folder = os.environ.get("FEDSIM_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDSIM_DATA names no folder of real data")
    return Path(folder)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the source tree."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="module")
def without_reports() -> Iterator[pytest.MonkeyPatch]:
    """Runs leave an empty page unless a test uses :func:`with_reports`; see :mod:`tests.reports`."""
    with empty_reports() as patch:
        yield patch


@pytest.fixture(scope="module")
def with_reports(without_reports: pytest.MonkeyPatch) -> None:
    """For tests that read report pages: from here on, runs of the module have one."""
    without_reports.undo()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server on this machine and the folder that it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/", folder
    http.shutdown()
    thread.join()
    http.server_close()
