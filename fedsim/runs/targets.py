"""When a metric first reached a target."""

from __future__ import annotations

import math

import pandas as pd

from fedsim.metrics import MetricDefinition


def time_to_target(metrics: pd.DataFrame, metric: MetricDefinition, target: float) -> float:
    """Simulated seconds until the first evaluation that reached ``target``; NaN if none did.

    Args:
        metrics: one row per evaluation, in order of time.
        metric: a column of it, and the direction in which it reaches a target.
        target: reached when equaled or passed.

    Raises:
        KeyError: there is no such metric.
    """
    reached = metric.reached(metrics[metric.name], target)
    return float(metrics["time_s"].to_numpy()[reached.argmax()]) if reached.any() else math.nan
