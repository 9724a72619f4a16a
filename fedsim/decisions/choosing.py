"""How certain a choice is: values of the finalists over fresh seeds, and those of the others from the search.

Values are compared by their logarithms, whose differences are relative differences. Settings are run with the same
seeds, so that their values are paired. Many settings may be practically equal, so that the question is whether the
choice is good: not much worse than the best (the indifference zone of Bechhofer, 1954).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fedsim.analysis.precision import students_half_width
from fedsim.randomness import Purpose, Stream

Floats = npt.NDArray[np.float64]

INDIFFERENCE = 0.05
"""Relative difference to the best that does not matter."""
_DRAWS = 20_000


def interval(values: Floats) -> tuple[float, float, float]:
    """Mean of at least two values, and Student's 95% interval of it."""
    mean, half = float(values.mean()), students_half_width(values)
    return mean, mean - half, mean + half


def probability_good(finalists: Floats, others: Floats) -> Floats:
    """The probability that each finalist is the best of all settings, or less than :data:`INDIFFERENCE` worse.

    The means of the finalists are drawn from their posterior with a flat prior, a multivariate t distribution (Chick
    and Inoue, New two-stage and sequential procedures for selecting the best simulated system, Operations Research 49,
    2001). Another setting was run with one seed; its difference to the first finalist is drawn around the one of this
    seed, with the variance that such differences have among the finalists.

    Args:
        finalists: logarithms of values for which less is better, by setting and seed, shape (k, n), n > 1.
        others: the other settings' logarithms minus that of the first finalist, with the search's seed, shape (m,);
            empty if there is only one finalist.

    Returns:
        Probabilities, shape (k,).
    """
    count, seeds = finalists.shape
    generator = Stream(0, Purpose.ANALYSIS).generator()
    scale = np.sqrt((seeds - 1) / generator.chisquare(seeds - 1, (_DRAWS, 1)))
    centered = finalists - finalists.mean(axis=1, keepdims=True)
    # Sums of the centered values with normal weights have their covariance, whatever its rank.
    weights = generator.standard_normal((_DRAWS, seeds)) / math.sqrt(seeds * (seeds - 1))
    means = finalists.mean(axis=1) + scale * (weights @ centered.T)
    best = means.min(axis=1)
    if len(others):
        differences = centered[1:] - centered[0]
        deviation = math.sqrt(float((differences**2).sum()) / ((count - 1) * (seeds - 1)))
        for difference in others.tolist():
            noise = scale[:, 0] * deviation * generator.standard_normal(_DRAWS)
            best = np.minimum(best, means[:, 0] + difference + noise)
    return np.asarray((means < best[:, None] + math.log1p(INDIFFERENCE)).mean(axis=0))


def pareto(values: Floats) -> npt.NDArray[np.bool_]:
    """Whether no other row is at least as good in every column and better in one; less is better. Shape (rows,)."""
    at_least = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    better = (values[:, None, :] < values[None, :, :]).any(axis=2)
    return np.asarray(~(at_least & better).any(axis=0))
