"""Targets: when a group of runs reached them, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsim.analysis.comparison.facts import CLIENT_UPDATES, COSTS, RunFacts
from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.units import share_of, without_comma
from fedsim.vocabulary.arrays import Floats

RESAMPLES = 2000
CONFIDENCE = 0.95
INTERVAL_RUNS = 3
"""Minimum number of runs for an interval: the interval of two runs would only be their range."""
FEW = 5
"""Number of seeds up to which spreads are shown as ranges: an interval would be little more."""


def spread_over(*seeds: int) -> str:
    """What the spread of values over these numbers of seeds is called."""
    few = {number <= FEW for number in seeds if number > 1}
    if False not in few:
        return "range of the seeds"
    return "95% interval or range" if True in few else "95% interval"


@dataclass(frozen=True)
class Target:
    """A value that a metric should reach.

    Attributes:
        metric: its name.
        value: reached when equaled or passed, in the direction of the metric's definition.
    """

    metric: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``accuracy=0.9`` or ``accuracy=90%``."""
        metric, _, number = text.partition("=")
        try:
            value = float(share_of(number) or number)
        except ValueError:
            value = math.nan
        if not metric.strip() or not math.isfinite(value):
            raise UserError(
                "write a metric, '=' and a number",
                where=f"target {text}",
                hint=without_comma(number) or "for example accuracy=0.9 or accuracy=90%",
            )
        return cls(metric.strip(), value)

    def __str__(self) -> str:
        return f"{self.metric}={self.value:g}"


THROUGHPUT = "throughput"
_TIME_TO = "time_to:"


def parse_metric(metric: str, where: str, hint: str) -> Target | None:
    """The target of ``time_to:accuracy=0.8``; None for ``throughput``."""
    if metric == THROUGHPUT:
        return None
    if not metric.startswith(_TIME_TO):
        raise UserError("is not a metric", where=where, hint=hint)
    return Target.parse(metric.removeprefix(_TIME_TO))


def metric_text(target: Target | None) -> str:
    """The text that :func:`parse_metric` reads."""
    return THROUGHPUT if target is None else f"{_TIME_TO}{target}"


def reaching(run: RunFacts, target: Target) -> dict[str, float]:
    """The :data:`COSTS` and :data:`CLIENT_UPDATES` of the first evaluation that reached the target; NaN if none did."""
    names = (*COSTS, CLIENT_UPDATES)
    if target.metric in run.metrics:
        metric = run.definition(target.metric)
        reached = metric.reached(run.progress[target.metric], target.value)
        if reached.any():
            first = int(reached.argmax())
            return {name: float(run.progress[name][first]) for name in names}
    return dict.fromkeys(names, math.nan)


def evaluation_gap_s(run: RunFacts, target: Target) -> float:
    """Time from the evaluation before to the one that reached the target; NaN if none did."""
    times_s = run.progress["time_s"][~np.isnan(run.progress[target.metric])]
    at = int(np.searchsorted(times_s, reaching(run, target)["time_s"]))
    return float(times_s[at] - times_s[at - 1]) if 0 < at < len(times_s) else math.nan


class Estimate(NamedTuple):
    """A mean over seeds with its bootstrap interval of :data:`CONFIDENCE`.

    All are NaN if there is no mean; the interval is also NaN for fewer than :data:`INTERVAL_RUNS` runs.
    """

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan


def mean_of_reached(values: Floats) -> Estimate:
    """Mean of the values that are not NaN, with an interval from resampling all of them.

    A resample in which no run reached the target has no mean and is left out.
    """
    return Estimate(float(_mean(values)), *_interval((values,), _mean))


def ratio_of_means(values: Floats, baseline: Floats) -> Estimate:
    """Mean of ``values`` over mean of ``baseline``, both over the pairs in which neither is NaN.

    Args:
        values, baseline: one value per seed, in the same order; the two of a seed are resampled together.
    """
    both = np.isfinite(values) & np.isfinite(baseline)
    pairs = values[both], baseline[both]
    ratio = float(_ratio(*pairs))
    return Estimate(ratio, *_interval(pairs, _ratio)) if math.isfinite(ratio) else Estimate()


def median_of_reached(values: Floats) -> float:
    """The value by which half of the runs had reached the target; NaN if fewer did.

    It is the ceil(n / 2)-th smallest of n values, where runs that did not reach the target count as infinite.
    """
    ordered = np.sort(np.where(np.isnan(values), np.inf, values))
    middle = float(ordered[math.ceil(len(ordered) / 2) - 1]) if len(ordered) else math.nan
    return middle if math.isfinite(middle) else math.nan


def enough(values: Floats) -> bool:
    """Whether at least half of the runs reached the target, so that their mean is shown."""
    return bool(len(values)) and 2 * int(np.isfinite(values).sum()) >= len(values)


def _mean(values: Floats, axis: int = -1) -> Floats:
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=axis) / known.sum(axis=axis))


def _ratio(values: Floats, baseline: Floats, axis: int = -1) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(_mean(values, axis) / _mean(baseline, axis))


def _interval(samples: tuple[Floats, ...], statistic: Callable[..., Floats]) -> tuple[float, float]:
    """The percentile bootstrap interval of a statistic of paired samples, over the resamples in which it is defined.

    Its percentiles are those of Student's interval of a normal mean: the usual ones are too narrow for few runs
    (Hesterberg, "What teachers should know about the bootstrap", 2015). Equal samples give equal intervals: the seed
    of the resampling is fixed.
    """
    from scipy.special import ndtr, stdtrit

    known = min(int(np.isfinite(values).sum()) for values in samples)
    if known < INTERVAL_RUNS:
        return math.nan, math.nan
    # As scipy.stats.bootstrap, whose import takes longer than everything else that a comparison imports.
    count = len(samples[0])
    drawn = Stream(0, Purpose.ANALYSIS).generator().integers(0, count, (RESAMPLES, count))
    resampled = statistic(*(values[drawn] for values in samples))
    tail = ndtr(-math.sqrt(known / (known - 1)) * stdtrit(known - 1, (1 + CONFIDENCE) / 2))
    low, high = np.quantile(resampled[np.isfinite(resampled)], [tail, 1 - tail])
    return float(low), float(high)


def default_targets(runs: Sequence[RunFacts]) -> tuple[Target, ...]:
    """The targets in the scenarios, or up to three round levels that some run reached."""
    stated = tuple(Target(metric, value) for run in runs for metric, value in run.target.items())
    if stated:
        return tuple(dict.fromkeys(stated))
    measured = [run.progress["accuracy"] for run in runs if "accuracy" in run.metrics]
    if not measured:
        return ()
    first = float(np.median([values[~np.isnan(values)][0] for values in measured]))
    best = max(float(np.nanmax(values)) for values in measured)
    levels = [level / 20 for level in range(1, 20) if first < level / 20 <= best]
    return tuple(Target("accuracy", level) for level in levels[-3:])
