"""What the tests of the Flower bridge share; without Flower they are skipped."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ.setdefault("FLWR_LOG_LEVEL", "ERROR")

HAS_FLOWER = importlib.util.find_spec("flwr") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules that import Flower; test_absent.py says why."""
    needs_flower = (
        collection_path.name.startswith("test_") and collection_path.stem != "test_absent"
    )
    return True if needs_flower and not HAS_FLOWER else None


@pytest.fixture
def run_app(tmp_path: Path) -> Callable[..., Any]:
    """Runs apps on devices given as mappings; every call has a run folder of its own."""
    from fedsim.flower import run

    count = 0

    def call(server: Any, client: Any, devices: dict[str, Any] | None = None, **more: Any) -> Any:
        nonlocal count
        count += 1
        scenario = {"task": {"clients": 4}, **(devices or {})}
        return run(server, client, scenario, output=tmp_path / f"run{count}", **more)

    return call
