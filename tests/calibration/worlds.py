"""The world whose log is calibrated, and shorter cross-validations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

TRUTH: dict[str, Any] = {
    "name": "truth",
    "seed": 3,
    "task": {"name": "timing", "clients": 12, "parameters": 250_000},
    "training": {"local_steps": 20},
    "devices": {
        "compute": {"name": "lognormal", "median": "0.3s", "sigma": 0.6, "jitter": {"cv": 0.15}},
        "network": {
            "name": "static",
            "latency": "30ms",
            "down": {"name": "lognormal", "median": "10Mbps", "sigma": 0.5},
            "up": {"name": "lognormal", "median": "5Mbps", "sigma": 0.5},
            "variation": 0.1,
        },
    },
    "server": {
        "method": "fedavg",
        "selection": {"name": "uniform", "cohort": 6},
        "schedule": {"name": "sync", "deadline": "14s"},
    },
    "stop": {"rounds": 60},
}


@contextmanager
def few_simulations(count: int = 3) -> Iterator[None]:
    """Cross-validations of this many simulations instead of 40, for tests that do not check the width of the bands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedsim.calibration.prediction.REPLICATES", count)
        yield
