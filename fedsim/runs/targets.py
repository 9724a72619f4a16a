"""When a metric first reached a target."""

from __future__ import annotations

import math

import pandas as pd

_SMALLER_IS_BETTER = ("loss", "error", "gap", "distance", "perplexity", "norm")


def higher_is_better(metric: str) -> bool:
    """Whether larger values of a metric are better, by its name.

    All are, but losses, errors, gaps, distances, perplexities and norms.
    """
    return not any(word in metric.lower() for word in _SMALLER_IS_BETTER)


def time_to_target(metrics: pd.DataFrame, metric: str, target: float) -> float:
    """Simulated seconds until the first evaluation that reached ``target``; NaN if none did.

    Args:
        metrics: one row an evaluation, in order of time.
        metric: a column of it.
        target: reached when equalled or passed, in the direction of :func:`higher_is_better`.

    Raises:
        KeyError: there is no such metric.
    """
    values = metrics[metric].to_numpy()
    reached = values >= target if higher_is_better(metric) else values <= target
    return float(metrics["time_s"].to_numpy()[reached.argmax()]) if reached.any() else math.nan
