"""Real traces, where they are at hand."""

from pathlib import Path

import pytest

from .cases import HOUR, bundle_of


@pytest.fixture(scope="session")
def real_traces(fedsim_data: Path) -> Path:
    """Folder of the real traces."""
    return fedsim_data / "traces"


@pytest.fixture
def hand():
    """Two devices over two days from Wednesday 6 o'clock; one is 6 hours ahead."""
    return bundle_of(
        {
            "a": [(0, 2 * HOUR), (18 * HOUR, 20 * HOUR)],
            "b": [(1 * HOUR, 5 * HOUR)],
            "c": [],
        },
        days=2,
        devices={"tz_offset_s": [0, 6 * 3600, 0], "valid": [True, True, False]},
        epoch="2020-01-01T06:00:00",
        epoch_weekday=2,
        tables={
            "compute": {
                "device_id": ["a", "b"],
                "task": ["*", "*"],
                "phase": ["training", "training"],
                "sample_s": [0.1, 0.2],
            },
            "network": {
                "device_id": ["a", "a", "b", "b"],
                "direction": ["down", "up", "down", "up"],
                "bandwidth_bps": [1e6, 1e5, 2e6, 3e5],
            },
            "network_series": {
                "series_id": ["s", "s"],
                "direction": ["both", "both"],
                "start_us": [0, 30],
                "dur_us": [30, 10],
                "rate_bps": [2e6, 0.0],
            },
        },
    )
