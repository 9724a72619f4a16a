"""Targets: when a group of runs reached them, and how sure that is."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.analysis.comparison.facts import COSTS, RunFacts
from fedsim.analysis.text import goal_text, metric_label
from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.runs.targets import higher_is_better

Floats = npt.NDArray[np.float64]

RESAMPLES = 2000
CONFIDENCE = 0.95
INTERVAL_RUNS = 3
"""Runs that an interval takes at least: of two, it would be their range, and shown as if it were sure of something."""


@dataclass(frozen=True, order=True)
class Target:
    """A value that a metric is to reach.

    Attributes:
        metric: its name.
        value: reached when equalled or passed, upwards or (losses, errors ...) downwards.
    """

    metric: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``accuracy=0.9``.

        Raises:
            UserError: it is not of this form.
        """
        metric, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not metric.strip() or not math.isfinite(value):
            raise UserError(
                "write a metric, '=' and a number",
                where=f"target {text}",
                hint="for example accuracy=0.9",
            )
        return cls(metric.strip(), value)

    def __str__(self) -> str:
        return f"{self.metric}={self.value:g}"

    @property
    def title(self) -> str:
        """As a person says it: ``90% accuracy``."""
        return f"{goal_text(self.metric, self.value)} {metric_label(self.metric)}"


def reaching(run: RunFacts, target: Target) -> dict[str, float]:
    """What the first evaluation that reached the target stood at, by :data:`COSTS`; NaN where none did."""
    progress = run.progress
    nothing = dict.fromkeys(COSTS, math.nan)
    if target.metric not in run.metrics:
        return nothing
    values = progress[target.metric].to_numpy()
    up = higher_is_better(target.metric)
    reached = values >= target.value if up else values <= target.value
    if not reached.any():
        return nothing
    row = progress.iloc[int(reached.argmax())]
    return {cost: float(row[cost]) for cost in COSTS}


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its interval.

    Attributes:
        mean: NaN where there is none.
        low, high: bootstrap interval of :data:`CONFIDENCE`; NaN for fewer than :data:`INTERVAL_RUNS` runs.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan


def mean_of_reached(values: Floats) -> Estimate:
    """Mean of the values that are not NaN, with an interval from resampling all of them.

    A resample in which nothing was reached says nothing about the mean and is left out.
    """
    if np.isnan(values).all():
        return Estimate(math.nan)
    mean = float(np.nanmean(values))
    if not _enough_for_an_interval(values):
        return Estimate(mean)
    return _with_interval(mean, _means(values, _resamples(len(values), 0)))


def ratio_of_means(values: Floats, baseline: Floats, *, paired: bool) -> Estimate:
    """Mean of ``values`` over mean of ``baseline``, of what is not NaN in each.

    Args:
        values, baseline: one value a run.
        paired: the i-th of both are of one seed, and are resampled together.
    """
    if np.isnan(values).all() or np.isnan(baseline).all() or np.nanmean(baseline) == 0:
        return Estimate(math.nan)
    ratio = float(np.nanmean(values) / np.nanmean(baseline))
    if not (_enough_for_an_interval(values) and _enough_for_an_interval(baseline)):
        return Estimate(ratio)
    above = _means(values, _resamples(len(values), 0))
    below = _means(baseline, _resamples(len(baseline), 0 if paired else 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = above / below
    return _with_interval(ratio, ratios)


def mean_difference(first: Floats, second: Floats) -> Estimate:
    """Mean of ``first - second``, paired, with its interval; values must not be NaN."""
    gaps = first - second
    return mean_of_reached(gaps) if len(gaps) else Estimate(math.nan)


def median_of_reached(values: Floats) -> float:
    """The value by which half of the runs had reached the target; NaN where fewer did.

    It is the ceil(n / 2)-th smallest of n, runs that did not reach it counting as infinite.
    """
    ordered = np.sort(np.where(np.isnan(values), np.inf, values))
    middle = float(ordered[math.ceil(len(ordered) / 2) - 1]) if len(ordered) else math.nan
    return middle if math.isfinite(middle) else math.nan


def enough(values: Floats) -> bool:
    """Whether at least half of the runs reached the target, so that a mean may stand for them."""
    return bool(len(values)) and 2 * int(np.isfinite(values).sum()) >= len(values)


def _enough_for_an_interval(values: Floats) -> bool:
    return int(np.isfinite(values).sum()) >= INTERVAL_RUNS


@functools.lru_cache(maxsize=64)
def _resamples(count: int, number: int) -> npt.NDArray[np.int64]:
    """Which runs are in each resample, (RESAMPLES, count); the same for groups of one size: seeds stay paired."""
    generator = Stream(0, Purpose.ANALYSIS, count, number).generator()
    drawn: npt.NDArray[np.int64] = generator.integers(0, count, (RESAMPLES, count))
    return drawn


def _means(values: Floats, resamples: npt.NDArray[np.int64]) -> Floats:
    drawn = values[resamples]
    known = ~np.isnan(drawn)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(known, drawn, 0.0).sum(axis=1) / known.sum(axis=1)
    return means


def _with_interval(mean: float, means: Floats) -> Estimate:
    usable = means[np.isfinite(means)]
    if not len(usable):
        return Estimate(mean)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(usable, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high))


def default_targets(runs: Sequence[RunFacts]) -> tuple[Target, ...]:
    """The targets that the scenarios state; else up to three round levels that some run reached."""
    stated: dict[Target, None] = {}
    for run in runs:
        stop = run.scenario.get("stop") or {}
        for metric, value in (stop.get("target") or {}).items():
            stated[Target(str(metric), float(value))] = None
    if stated:
        return tuple(sorted(stated))
    with_accuracy = [run.progress["accuracy"] for run in runs if "accuracy" in run.metrics]
    if not with_accuracy:
        return ()
    first = float(np.median([series.dropna().iloc[0] for series in with_accuracy]))
    best = max(float(pd.Series(series).max()) for series in with_accuracy)
    levels = [level / 20 for level in range(1, 20) if first < level / 20 <= best]
    return tuple(Target("accuracy", level) for level in levels[-3:])
