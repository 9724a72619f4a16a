"""Probabilities of a choice against closed forms, and the Pareto front against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedsim.decisions.choosing import INDIFFERENCE, interval, pareto, probability_good

ZONE = math.log1p(INDIFFERENCE)
NOISE = np.array([-0.12, 0.05, 0.02, 0.09, -0.04, 0.0])
MONTE_CARLO = 0.012


def t_probability(margin: float, deviation: float, count: int) -> float:
    """P(T < margin / deviation) with count - 1 degrees of freedom."""
    return float(stats.t.cdf(margin / deviation, count - 1))


@pytest.mark.parametrize("lead", [-0.1, -0.05, 0.0, 0.04])
def test_of_two_finalists_it_is_the_paired_t_distribution(lead: float) -> None:
    """The common effect of the seeds does not count."""
    seeds = 10 * np.arange(len(NOISE))
    first, second = seeds + 1.0, seeds + 1.0 + lead + NOISE
    error = NOISE.std(ddof=1) / math.sqrt(len(NOISE))
    difference = float((second - first).mean())
    found = probability_good(np.array([first, second]), np.zeros(0))
    expected = [t_probability(ZONE + sign * difference, error, len(NOISE)) for sign in (1, -1)]
    assert found == pytest.approx(expected, abs=MONTE_CARLO)


@pytest.mark.parametrize("difference", [-0.2, -ZONE, 0.0, 0.1])
def test_another_setting_counts_with_the_variance_of_one_seed(difference: float) -> None:
    finalists = np.array([np.zeros(len(NOISE)), 50 + NOISE])
    found = probability_good(finalists, np.array([difference]))
    expected = t_probability(ZONE + difference, NOISE.std(ddof=1), len(NOISE))
    assert found == pytest.approx([expected, 0.0], abs=MONTE_CARLO)


def test_equal_settings_are_all_good() -> None:
    assert probability_good(np.ones((3, 4)), np.zeros(50)).tolist() == [1.0, 1.0, 1.0]


def test_an_interval_is_students() -> None:
    mean, low, high = interval(NOISE)
    expected = stats.t.interval(0.95, 5, NOISE.mean(), stats.sem(NOISE))
    assert (low, high) == pytest.approx(expected)
    assert mean == pytest.approx(NOISE.mean())


def test_the_front_has_the_rows_that_none_dominates() -> None:
    values = np.random.default_rng(0).integers(0, 6, (60, 3)).astype(float)
    expected = [
        not any((other <= row).all() and (other < row).any() for other in values) for row in values
    ]
    assert pareto(values).tolist() == expected
