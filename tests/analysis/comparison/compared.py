"""A small real sweep to compare: two variants in two settings with three seeds, and what to ask its files."""

import html
import itertools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

import fedsim
from fedsim.sweeps import Sweep
from tests.reports import empty_reports

SEEDS = (0, 1, 2)
SETTINGS = ("alpha=5", "alpha=0.2")
VARIANTS = ("fedavg", "fedbuff")

GROUPS = list(itertools.product(SETTINGS, VARIANTS))
TARGETS = (0.5, 0.7, 0.99)

SCENARIO: dict[str, Any] = {
    "name": "two-by-two",
    "task": {
        "dataset": {"name": "digits"},
        "partition": {
            "name": "dirichlet",
            "alpha": 5.0,
            "clients": 12,
            "test": "split",
            "test_share": 0.3,
        },
        "model": {"name": "logistic_regression"},
    },
    "training": {"optimizer": {"name": "sgd", "lr": 0.1}, "local_steps": 5, "batch_size": 16},
    "devices": {
        "compute": {"name": "lognormal", "median": "0.2s", "jitter": {"cv": 0.3}},
        "network": {"name": "static", "latency": "40ms", "down": "1Mbps", "up": "0.5Mbps"},
        "cost": {"per_byte": 1e-6},
    },
    "server": {"selection": {"name": "uniform", "cohort": 4}},
    "stop": {"simulated_time": "30s"},
    "evaluation": {"every": "3s"},
    "sweep": {
        "grid": {"task.partition.alpha": [5.0, 0.2]},
        "zip": {
            "server.method": [{"name": "fedavg"}, {"name": "fedbuff"}],
            "server.schedule": [
                {"name": "sync", "deadline": "1500ms", "over_selection": 1.5},
                {"name": "buffered", "buffer_size": 3, "max_staleness": 2},
            ],
        },
        "seeds": list(SEEDS),
    },
}


def build(path: Path) -> Sweep:
    with empty_reports():
        sweep = fedsim.sweep(SCENARIO, path, jobs=1)
    assert sweep.failures == {}
    return sweep


def once(factory: pytest.TempPathFactory) -> Sweep:
    """The sweep of a whole session of tests, in whichever fixture and process it is first needed."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    path = root / "compared"
    with FileLock(root / "compared.lock"):
        return Sweep(path) if path.exists() else build(path)


def folders(sweep: Sweep, setting: str, variant: str) -> list[Path]:
    """Run folders of a group, by what the index says, in the order of the seeds."""
    alpha = float(setting.removeprefix("alpha="))
    rows = sweep.index[
        (sweep.index["task.partition.alpha"] == alpha)
        & sweep.index["server.method"].str.contains(f'"{variant}"')
    ]
    return [sweep.path / name for name in rows.sort_values("seed")["run"]]


def parquet(folder: Path, table: str) -> pd.DataFrame:
    return pd.read_parquet(folder / f"{table}.parquet")


def first_reaching(folder: Path, metric: str, value: float) -> float:
    metrics = parquet(folder, "metrics")
    return float(metrics.loc[metrics[metric] >= value, "time_s"].min())


def cost(folder: Path, against: str) -> pd.Series:
    """What had been spent at each evaluation, straight from the rows of the dispatches."""
    metrics, dispatches = parquet(folder, "metrics"), parquet(folder, "dispatches")
    if against in metrics:
        return metrics[against]
    if against in ("bytes", "cost"):
        spent = dispatches["bytes_down"] + dispatches["bytes_up"]
        spent = spent * (1e-6 if against == "cost" else 1)
    elif against == "energy_j":
        spent = dispatches["energy_j"]
    else:
        began = dispatches["downloaded_s"]
        spent = (dispatches["computed_s"].fillna(dispatches["ended_s"]) - began).fillna(0.0)
    return pd.Series(
        [float(spent[dispatches["ended_s"] <= time_s].sum()) for time_s in metrics["time_s"]]
    )


def value_at(values: pd.Series, costs: pd.Series, limit: float) -> float:
    """The last of a run's values measured at a cost of at most ``limit``, up to the rounding of sums."""
    reached = values[costs <= limit * (1 + 1e-9)]
    return float(reached.iloc[-1]) if len(reached) else np.nan


def row(frame: pd.DataFrame, setting: str, variant: str, **more: Any) -> Any:
    keys = {"setting": setting, "label": variant, **more}
    rows = frame[np.logical_and.reduce([frame[key] == value for key, value in keys.items()])]
    assert len(rows) == 1
    return rows.iloc[0]


def cells(page: str, figure: str) -> list[list[str]]:
    """The cells of a table, each row after the setting above it if there are several."""
    body = page.split(f'id="figure-{figure}"')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows, setting = [], []
    for group, row in re.findall(r"<tr( class=\"group\")?>(.*?)</tr>", body, re.S):
        inside = re.findall(r"<t[hd](?! class=\"range\")[^>]*>(.*?)</t[hd]>", row, re.S)
        texts = [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in inside]
        if group:
            setting = texts
        else:
            # Durations do not break.
            rows.append([text.replace("\u00a0", " ") for text in (*setting, *texts)])
    return rows
