"""The world whose log is calibrated, a log of three clients, and shorter cross-validations."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
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


TIMES = ["start", "downloaded", "computed", "end"]


def _rounds(rounds: int = 8) -> pd.DataFrame:
    """Rounds of three clients; 007 and 7 are two of them."""
    generator = np.random.default_rng(7)
    rows, start = [], 3.217
    for number in range(rounds):
        ends = []
        for client, step_s in (("007", 0.1), ("7", 0.6), ("phone", 0.2)):
            marks = start + np.cumsum([1.031, 20 * step_s * generator.uniform(0.9, 1.1), 2.057])
            rows.append((client, start, *marks.round(3), 20, 1_000_000, 1_000_000, number))
            ends.append(marks[-1])
        start = round(max(ends) + 5.011, 3)
    columns = ["client", *TIMES, "steps", "bytes_down", "bytes_up", "round"]
    return pd.DataFrame(rows, columns=columns)


LOG = _rounds()
STEP_S = ((LOG["computed"] - LOG["downloaded"]) / 20).groupby(LOG["client"]).mean()
RATE_BPS = (8e6 / (LOG["downloaded"] - LOG["start"])).groupby(LOG["client"]).mean()


def timed(convert: Callable[[pd.Series], pd.Series], **columns: object) -> pd.DataFrame:
    return LOG.assign(**{name: convert(LOG[name]) for name in TIMES}, **columns)


def instants(seconds: pd.Series) -> pd.Series:
    return pd.to_datetime(1_714_550_400 + seconds, unit="s", utc=True).dt.round("ms")


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
