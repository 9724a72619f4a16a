"""Whether the model of a run has diverged: the values of its last evaluation that are not finite, or far too large."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedsim.errors import UserError
from fedsim.parts.component import is_user_reference
from fedsim.runs.run import Run
from fedsim.vocabulary.formatting import format_names
from fedsim.vocabulary.metrics import METRICS

_FAR_ABOVE = 10.0
"""A model has diverged if its loss is more than this many times that of the initial model."""


class Lost(NamedTuple):
    """The first of the evaluations from which on a metric is not finite."""

    metric: str
    version: int
    time_s: float


def last_metrics(run: Run) -> dict[str, float]:
    """The last value of every metric, by name; NaN or infinite if it was not finite."""
    values = run.metrics.iloc[:, 3:]
    measured = dict(values.ffill().iloc[-1]) if len(values) else {}
    # The table also has NaN for metrics that an evaluation of a Flower app did not measure; a finished run has its own
    # record.
    last = {} if run.info.get("app") or not len(values) else dict(values.iloc[-1])
    return measured | (run.info.get("metrics") or last)


def lost_metrics(run: Run) -> list[str]:
    """The metrics whose last value is not finite."""
    recorded: dict[str, float] | None = run.info.get("metrics")
    values = last_metrics(run) if recorded is None else recorded
    return [name for name, value in values.items() if not math.isfinite(value)]


def has_diverged(run: Run) -> bool:
    """Whether a last value is not finite for a reason other than the definition of a user's own metric."""
    lost = lost_metrics(run)
    return bool(lost) and (bool(METRICS.keys() & lost) or not own_metrics(run.scenario))


def not_finite_warning(run: Run) -> UserError | None:
    """The warning about a model that has diverged until values of its last evaluation were not finite."""
    if not has_diverged(run):
        return None
    lost = lost_metrics(run)
    verb = "is" if len(lost) == 1 else "are"
    return _warning(run, f"{format_names(lost)} {verb} not finite")


def high_loss_warning(run: Run) -> UserError | None:
    """The warning about a model whose loss is finite, but far above that of the initial model, if it was evaluated."""
    if "loss" not in run.metrics.columns:
        return None
    evaluated = run.metrics[["version", "loss"]].dropna()
    if evaluated.empty or evaluated["version"].iloc[0] != 0:
        return None
    first, last = evaluated["loss"].iloc[0], evaluated["loss"].iloc[-1]
    if not (0 < first * _FAR_ABOVE < last < math.inf) or has_diverged(run):
        return None
    shown = run.metric_definition("loss").format
    return _warning(
        run, f"its loss is {shown(last)}, and that of the initial model was {shown(first)}"
    )


def _warning(run: Run, problem: str) -> UserError:
    fix = "try a smaller learning rate"
    method = run.scenario["server"].get("method", {}).get("name")
    if method is not None:  # A Flower app trains by itself.
        fix += ", or training.clip_norm"
        if is_user_reference(method):
            fix = f"check that aggregate of {method} returns finite numbers, or {fix}"
    return UserError(f"the model has diverged: {problem}", where=None, hint=fix)


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
