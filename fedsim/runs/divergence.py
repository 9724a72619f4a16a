"""Whether the model of a run has diverged: the values of its last evaluation that are not finite."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedsim.parts.component import is_user_reference
from fedsim.runs.run import Run
from fedsim.vocabulary.metrics import METRICS


class Lost(NamedTuple):
    """The first of the evaluations from which on a metric is not finite."""

    metric: str
    version: int
    time_s: float


def last_metrics(run: Run) -> dict[str, float]:
    """The last value of every metric, by name; not finite if it was not."""
    values = run.metrics.iloc[:, 3:]
    measured = dict(values.ffill().iloc[-1]) if len(values) else {}
    # The table also has NaN for metrics that an evaluation of a Flower app did not measure; a finished run has its own
    # record.
    last = {} if run.info.get("app") or not len(values) else dict(values.iloc[-1])
    return measured | (recorded_metrics(run) or last)


def lost_metrics(run: Run) -> list[str]:
    """The metrics whose last value is not finite."""
    recorded = recorded_metrics(run)
    values = last_metrics(run) if recorded is None else recorded
    return [name for name, value in values.items() if not math.isfinite(value)]


def recorded_metrics(run: Run) -> dict[str, float] | None:
    """The last values in ``run.json``, whose null is a value that was not finite."""
    recorded = run.info.get("metrics")
    return recorded and {
        name: math.nan if value is None else value for name, value in recorded.items()
    }


def has_diverged(run: Run) -> bool:
    """Whether a last value is not finite for a reason other than the definition of a user's own metric."""
    lost = lost_metrics(run)
    return bool(lost) and (bool(METRICS.keys() & lost) or not own_metrics(run.scenario))


def lost_since(run: Run) -> list[Lost]:
    """Since when each metric of :func:`lost_metrics` is not finite, from the earliest to the latest."""
    records = []
    for name in set(lost_metrics(run)) & set(run.metrics.columns[3:]):
        finite = np.flatnonzero(np.isfinite(run.metrics[name].to_numpy()))
        row = run.metrics.iloc[finite[-1] + 1 if len(finite) else 0]
        records.append(Lost(name, int(row["version"]), float(row["time_s"])))
    order = list(run.metrics.columns)
    return sorted(records, key=lambda lost: (lost.time_s, order.index(lost.metric)))


def own_metrics(scenario: dict[str, Any]) -> list[str]:
    """The user's own metrics of a scenario, as ``file.py:name``."""
    metrics = (scenario.get("evaluation") or {}).get("metrics", [])
    names = (metric["name"] if isinstance(metric, dict) else metric for metric in metrics)
    return list(filter(is_user_reference, names))
