"""Ratios of paired runs, and the number of seeds that make them precise.

Two variants that were run with the same seed share their devices, so the logarithm of the ratio of their times varies
less than the times do. With d_1 ... d_n for n seeds, the ratio is exp(mean d): the ratio of the geometric means.

The rule is that of Chow and Robbins (On the asymptotic theory of fixed-width sequential confidence intervals for the
mean, Annals of Mathematical Statistics 36, 1965), with quantiles of Student's t distribution: stop at the first n of at
least :data:`LEAST_SEEDS` at which t s / sqrt(n) <= h, where s is the standard deviation of d; the interval is then
mean d ± h. A mean whose sampling stops because its estimated variance is small tends to be stopped too early. The least
number of seeds, and seeds that are added in batches, keep the coverage at the confidence; ``benchmarks/precision.py``
measures it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from fedsim.vocabulary.arrays import Floats

CONFIDENCE = 0.95
LEAST_SEEDS = 10
"""Seeds before the first decision: from fewer, the standard deviation is not known well enough."""
_GROWTH = 2.0
"""The largest factor by which one decision extends the seeds."""


def restricted(times_s: Floats, ends_s: Floats) -> tuple[Floats, float]:
    """Times that are cut at the censoring time: the earliest end of a run that missed its target.

    Beyond it, it is unknown which run would have been faster, so times of runs that reached the target later count with
    it, too. Their mean is the restricted mean.

    Args:
        times_s: when each run reached its target; NaN if it did not.
        ends_s: when each run ended, same shape.

    Returns:
        The times, and the censoring time; infinite if every run reached its target.
    """
    missed = np.isnan(times_s)
    censored_s = float(ends_s[missed].min(initial=math.inf))
    return np.fmin(times_s, censored_s), censored_s


@dataclass(frozen=True)
class PairedRatio:
    """A ratio over pairs of runs, with its interval of :data:`CONFIDENCE`.

    Attributes:
        ratio: ratio of the geometric means.
        half_width: the interval is from ratio / (1 + half_width) to ratio * (1 + half_width).
        seeds: number of pairs.
        needed: the first number of seeds at which the rule holds; None if it does not.
    """

    ratio: float
    half_width: float
    seeds: int
    needed: int | None

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.ratio / (1 + self.half_width)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.ratio * (1 + self.half_width)


def paired_ratio(logs: Floats, half_width: float) -> PairedRatio:
    """The ratio from its logarithms by seed, in the order in which the seeds were run; at least two.

    Args:
        logs: logarithms of the ratios, shape (n,).
        half_width: the relative half-width that is wanted, such as 0.05.
    """
    seeds = len(logs)
    reached = [_relative(logs[:n]) for n in range(min(LEAST_SEEDS, seeds), seeds + 1)]
    narrow = [number for number, width in enumerate(reached, LEAST_SEEDS) if width <= half_width]
    needed = next(iter(narrow), None) if seeds >= LEAST_SEEDS else None
    return PairedRatio(math.exp(float(logs.mean())), max(half_width, reached[-1]), seeds, needed)


def seeds_to_run(logs: Floats, half_width: float, most: int) -> int:
    """The number of seeds to have run before the next decision; the present one if these are enough.

    It is the number that would be enough if the standard deviation stayed the same, but at most twice the present one.

    Args:
        logs, half_width: as for :func:`paired_ratio`.
        most: the budget.
    """
    seeds = len(logs)
    if seeds < LEAST_SEEDS:
        return min(LEAST_SEEDS, most)
    width = _relative(logs)
    if width <= half_width or seeds >= most:
        return seeds
    enough = math.ceil(seeds * (math.log1p(width) / math.log1p(half_width)) ** 2)
    return min(enough, math.floor(_GROWTH * seeds), most)


def students_half_width(values: Floats) -> float:
    """Half-width of Student's interval of the mean of at least two values."""
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return quantile * float(values.std(ddof=1)) / math.sqrt(len(values))


def _relative(logs: Floats) -> float:
    return math.expm1(students_half_width(logs))
