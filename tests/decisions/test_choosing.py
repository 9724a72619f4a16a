"""Probabilities of a choice on problems whose best setting is known, and the Pareto front against its definition."""

import math
from typing import Any

import numpy as np
import pytest

from fedsim.decisions.choosing import (
    INDIFFERENCE,
    pareto,
    preferred,
    probability_good,
    raced,
)

NOISE = np.array([-0.12, 0.05, 0.02, 0.09, -0.04, 0.0])
HOURS = np.log(np.array([2.0, 3.0]))


def problem(number: int) -> tuple[float, bool]:
    """The stated probability that the choice is good, and whether it is, of random settings, noise and evaluations."""
    draw = np.random.default_rng(number)
    count, noise = int(draw.integers(6, 30)), 10 ** draw.uniform(-2, -0.4)
    means = 10 ** draw.uniform(-1.5, 0) * draw.exponential(1, count)

    def run(rows: Any, first: int, seeds: int) -> Any:
        common, own = draw.normal(0, 0.2, seeds), draw.normal(0, noise, (len(rows), seeds))
        return means[rows][:, None] + common + own

    order, values = raced(run(range(count), 0, 1)[:, 0], run)
    fresh = np.full((count, 5), math.nan)
    fresh[order[:3]] = run(order[:3], 4, 5)
    stated = probability_good(np.hstack([values, fresh]))[order[0]]
    return float(stated), bool(means[order[0]] < means.min() + math.log1p(INDIFFERENCE))


def test_a_stated_probability_is_the_share_of_good_choices() -> None:
    """Where values of one seed are taken as they are, 0.4 is stated on average, and the share is 0.9."""
    stated, good = np.array([problem(number) for number in range(30)]).T
    assert stated.mean() == pytest.approx(good.mean(), abs=0.08)
    assert good[stated > 0.8].mean() > 0.85
    assert np.mean((stated - good) ** 2) < 0.14


def test_ties_of_one_seed_do_not_count_against_a_choice() -> None:
    """Twelve settings reach the target at the second evaluation, and the choice with almost all seeds."""
    values = np.full((12, 9), math.nan)
    values[:, 0] = HOURS[0]
    values[:8, 1], values[:4, 2:4] = HOURS[[0, 1, 0, 0, 1, 0, 1, 0]], HOURS[0]
    values[:3, 4:] = HOURS[[[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 0, 1, 0, 0]]]
    good = probability_good(values)
    assert good[0] > 0.5
    assert good[0] > max(good[1:3])


def test_effects_of_seeds_do_not_count() -> None:
    values = np.array([np.append(0.0, NOISE), np.append(0.1, 0.04 - NOISE), [0.3] + [math.nan] * 6])
    shifted = probability_good(values + np.arange(7.0))
    assert shifted == pytest.approx(probability_good(values))
    assert shifted[0] > 0.5 > shifted[2]


def test_equal_settings_are_all_good() -> None:
    assert probability_good(np.ones((3, 4))) == pytest.approx([1.0, 1.0, 1.0])
    assert probability_good(np.ones((1, 4))).tolist() == [1.0]


def test_the_front_has_the_rows_that_none_dominates() -> None:
    values = np.random.default_rng(0).integers(0, 6, (60, 3)).astype(float)
    expected = [
        not any((other <= row).all() and (other < row).any() for other in values) for row in values
    ]
    assert pareto(values).tolist() == expected


@pytest.mark.parametrize(
    ("probabilities", "means", "choice"),
    [
        ([0.9, 0.8, 0.1], [1.0, 0.9, 2.0], 0),
        ([0.9999999999999998, 1.0, 0.2], [1.0, 1.01, 2.0], 0),
        ([1.0, 0.9999999999999998, 0.2], [1.01, 1.0, 2.0], 1),
        ([0.996, 1.0, 0.996], [1.0, 1.01, 1.04], 2),  # As given, and as good to within 5%.
        ([0.33, 0.33, 0.33], [1.0, 1.01, 1.1], 0),
        ([0.4, 0.4, math.nan], [1.0, 0.9, 0.1], 1),
    ],
)
def test_equal_probabilities_do_not_decide(probabilities: Any, means: Any, choice: int) -> None:
    """Of three settings, the last is the scenario as given; seeds that it does not have do not count."""
    values = np.array(means)[:, None] + [[9.0, 0.1, -0.1], [0.0, -0.1, 0.1], [math.nan, 0.0, 0.0]]
    assert preferred(np.array(probabilities), values) == choice
