"""How certain a choice is: values of settings over seeds, of the best over more of them.

Values are compared by their logarithms, whose differences are relative differences. Settings are run with the same
seeds, so that their values are paired. Many settings may be practically equal, so that the question is whether the
choice is good: not much worse than the best (the indifference zone of Bechhofer, 1954).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import chdtri

from fedsim.vocabulary.arrays import Bools, Floats

INDIFFERENCE = 0.05
"""Relative difference to the best that does not matter."""
ROUNDS = ((8, 1), (4, 2))
"""Numbers of settings that are run with more seeds after the search, and of these seeds, one round after another."""
SEEDS = 1 + sum(seeds for _, seeds in ROUNDS)
"""Seeds of the search and of these rounds."""
_QUANTILES, _POINTS, _SMOOTH = 9, 200, 10
_WARM = 20
_ROUNDING = 1e-6
"""The least deviation of the noise: equal settings differ by rounding errors, which would rule all of them out."""


def raced(
    first: Floats, run: Callable[[Sequence[int], int, int], Floats]
) -> tuple[list[int], Floats]:
    """The settings with the best means over the seeds of all :data:`ROUNDS`, the best first.

    Args:
        first: logarithms of the settings' values with the seed of the search, shape (m,); less is better.
        run: the same of some settings, with more seeds: of the number of the first of these and how many they are;
            shape (settings, seeds).

    Returns:
        Their numbers, and the values by setting and seed, shape (m, :data:`SEEDS`); NaN if not run.
    """
    values, best = np.full((len(first), SEEDS), np.nan), np.argsort(first, kind="stable")
    values[:, 0], number = first, 1
    for most, seeds in ROUNDS:
        best = best[:most]
        if len(best) > 1:
            values[best, number : number + seeds] = run(best.tolist(), number, seeds)
        number += seeds
        best = best[np.argsort(values[best, :number].mean(axis=1), kind="stable")]
    return best.tolist(), values


def probability_good(values: Floats) -> Floats:
    """The probability that each setting is the best of all, or less than :data:`INDIFFERENCE` worse.

    A value is the sum of the setting's mean, an effect of the seed, and normal noise. The means have a common
    distribution, which is estimated from the values: a few steps of the EM algorithm from a flat one (Laird and Louis,
    Smoothing the nonparametric estimate of a prior distribution by roughening, Computational Statistics and Data
    Analysis 12, 1991). So the best of many settings that were run with one seed is not taken at its value: most of its
    lead is luck. The variance of the noise is that of the settings with several seeds; the result is its mean over the
    posterior of this variance.

    Args:
        values: logarithms of values for which less is better, by setting and seed, shape (m, n); NaN if not run.

    Returns:
        Probabilities, shape (m,).
    """
    known = ~np.isnan(values)
    runs, filled = known.sum(axis=1), np.where(known, values, 0.0)
    several = known & (runs > 1)[:, None]
    freedom = int(several.sum() - several.any(axis=1).sum() - several.any(axis=0).sum() + 1)
    if freedom < 1:  # One setting.
        return np.ones(len(values))

    def effects(means: Floats, rows: Bools) -> Floats:
        counts = np.maximum(rows.sum(axis=0), 1)
        return np.asarray(np.where(rows, values - means[:, None], 0.0).sum(axis=0) / counts)

    def means_of(seeds: Floats) -> Floats:
        return np.asarray((filled - known * seeds).sum(axis=1) / runs)

    means = means_of(np.zeros(values.shape[1]))
    for _ in range(_WARM):
        seeds = effects(means, several)
        means = means_of(seeds)
    squares = float(np.square(values - means[:, None] - seeds)[several].sum())
    total = np.zeros(len(values))
    for quantile in (np.arange(_QUANTILES) + 0.5) / _QUANTILES:
        deviation = math.sqrt(squares / float(chdtri(freedom, quantile)))
        low, high = means.min() - 3 * deviation, means.max() + deviation
        points, step = np.linspace(low, high, _POINTS, retstep=True)
        variance = max(deviation, float(step), _ROUNDING) ** 2
        prior, seeds = np.full(_POINTS, 1 / _POINTS), effects(means, known)
        for _ in range(_SMOOTH):
            sums = (filled - known * seeds).sum(axis=1)[:, None]
            logs = (sums * points - runs[:, None] * points**2 / 2) / variance
            weights = prior * np.exp(logs - logs.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            prior, seeds = weights.mean(axis=0), effects(weights @ points, known)
        # The others' means are not below a point by more than the indifference.
        below = np.cumsum(weights, axis=1) - weights
        zone = min(_POINTS, int(math.log1p(INDIFFERENCE) / max(float(step), 1e-9)))
        above = np.log(np.maximum(1 - np.pad(below, ((0, 0), (zone, 0)))[:, :_POINTS], 1e-300))
        total += (weights * np.exp(above.sum(axis=0) - above)).sum(axis=1)
    return total / _QUANTILES


def preferred(probabilities: Floats, values: Floats) -> int:
    """The setting to choose: of those that are most probably good, the one with the best mean.

    Probabilities are equal if they are printed alike. The last setting, the scenario as given, is chosen if it is one
    of them and not worse than the best mean by more than :data:`INDIFFERENCE`.

    Args:
        probabilities: those of the settings, shape (m,); the last may be NaN, if it cannot be chosen.
        values: their values as for :func:`probability_good`; means are those over the seeds that all have.
    """
    printed = np.round(probabilities, 2)
    equal = np.flatnonzero(printed == np.nanmax(printed))
    means = values[:, ~np.isnan(values).any(axis=0)].mean(axis=1)
    best, given = int(equal[np.argmin(means[equal])]), len(probabilities) - 1
    is_as_good = given in equal and means[given] - means[best] <= math.log1p(INDIFFERENCE)
    return given if is_as_good else best


def pareto(values: Floats) -> Bools:
    """Whether no other row is at least as good in every column and better in one; less is better. Shape (rows,)."""
    at_least = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    better = (values[:, None, :] < values[None, :, :]).any(axis=2)
    return np.asarray(~(at_least & better).any(axis=0))
