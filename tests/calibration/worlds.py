"""The world whose log is calibrated, and shorter cross-validations."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedsim.calibration import Calibration, calibrate
from fedsim.scenario.loading import load_scenario_dict

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


def calibrated(
    folder: Path, log: str | pd.DataFrame, scenario: Mapping[str, Any] | None = None
) -> Calibration:
    """The calibration of a log, whose file and bundle are written into a folder."""
    (folder / "log.csv").write_text(log if isinstance(log, str) else log.to_csv(index=False))
    loaded = None if scenario is None else load_scenario_dict(dict(scenario), folder)
    return calibrate(folder / "log.csv", folder / "bundle", loaded, overwrite=True)


@contextmanager
def few_simulations(count: int = 3) -> Iterator[None]:
    """Cross-validations of this many simulations instead of 40, for tests that do not check the width of the bands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedsim.calibration.prediction.REPLICATES", count)
        yield
