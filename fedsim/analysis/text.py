"""Numbers as people read them on pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedsim.runs.targets import higher_is_better
from fedsim.units import format_duration

_PREFIXES = ("", "k", "M", "G", "T", "P")


def count_text(value: float) -> str:
    """A whole number with thousands separated: ``12,345``."""
    return f"{round(value):,}"


def percent_text(share: float) -> str:
    """A share in percent: ``12.3%``; small ones keep a significant digit."""
    if not math.isfinite(share):
        return "–"
    percent = 100.0 * share
    return f"{percent:.1f}%" if percent >= 0.095 or percent == 0 else f"{percent:.1g}%"


def prefixed_text(value: float, unit: str) -> str:
    """A quantity with an SI prefix: ``1.23 GB``."""
    step = 0
    while abs(value) >= 999.5 and step < len(_PREFIXES) - 1:
        value /= 1000.0
        step += 1
    return f"{value:.3g} {_PREFIXES[step]}{unit}"


def duration_text(seconds: float) -> str:
    """A duration, or a dash where there is none; sums over many clients are in whole days, thousands separated."""
    if not math.isfinite(seconds):
        return "–"
    days = seconds / 86_400
    return f"{days:,.0f} d" if days >= 1000 else format_duration(seconds)


def is_share(metric: str) -> bool:
    """Whether a metric is read in percent, by its name."""
    return any(word in metric.lower() for word in ("accuracy", "precision", "recall", "f1", "auc"))


def metric_text(metric: str, value: float) -> str:
    """A metric's value: accuracies in percent, others with four digits."""
    if not math.isfinite(value):
        return "–"
    return percent_text(value) if is_share(metric) else f"{value:.4g}"


def goal_text(metric: str, value: float) -> str:
    """A stated target as a person would say it: ``80%`` rather than ``80.0%``."""
    return f"{100.0 * value:.4g}%" if is_share(metric) else f"{value:.4g}"


def metric_label(metric: str) -> str:
    """A metric's name in a sentence: ``client accuracy``."""
    return metric.replace("_", " ")


def best_of(metric: str, values: list[float]) -> float:
    """The best of the finite values, in the metric's direction; NaN if there is none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan
    return max(finite) if higher_is_better(metric) else min(finite)


def listed_text(names: Sequence[str]) -> str:
    """Names in a sentence: ``"A"``, ``"A and B"``, ``"A, B and C"``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
