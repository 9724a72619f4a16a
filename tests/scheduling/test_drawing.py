"""Clients in turn, in proportion to weights, and in tiers of like speed."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from fedsim.scheduling.drawing import Turns, equal_tiers, tiers_by_ratio, weighted_order


def test_a_turn_that_comes_twice_in_a_draw_is_kept() -> None:
    laps = [np.array([0, 1, 2]), np.array([2, 0, 1])]
    turns = Turns(lambda lap: laps[lap % 2])
    everybody = np.arange(3)
    assert turns.take(2, everybody) == [0, 1]
    # 2 ends the first lap and begins the second.
    assert turns.take(2, everybody) == [2, 0]
    assert turns.take(2, everybody) == [2, 1]
    assert turns.take(5, everybody) == [0, 1, 2]
    assert turns.take(1, np.empty(0, dtype=np.int64)) == []


def test_orders_have_the_probabilities_of_successive_draws() -> None:
    """P(a, b, c) = w_a / W x w_b / (W - w_a), with weights 1, 2 and 5."""
    generator, weights, trials = np.random.default_rng(0), np.array([1.0, 2.0, 5.0]), 20_000
    clients = np.arange(3)
    orders = Counter(tuple(weighted_order(generator, clients, weights)) for _ in range(trials))
    for a, b, c in permutations(range(3)):
        probability = weights[a] / 8 * weights[b] / (8 - weights[a])
        assert orders[a, b, c] / trials == pytest.approx(probability, abs=0.012)


def test_clients_without_weight_are_left_out() -> None:
    order = weighted_order(np.random.default_rng(0), np.array([4, 5, 6]), np.array([0.0, 1.0, 0.0]))
    assert order == [5]


def test_a_tier_ends_where_a_client_takes_more_than_the_ratio_of_its_fastest() -> None:
    # 1 and 2 are within the ratio 2; 2.1 begins a tier that holds 4.2, and 4.3 the next.
    assert tiers_by_ratio([4.2, 1.0, 2.1, 4.3, 2.0], 2.0).tolist() == [1, 0, 1, 2, 0]
    assert tiers_by_ratio([3.0, 3.0], 1.0).tolist() == [0, 0]


def test_equal_tiers_differ_by_one_client_at_most_and_ties_go_by_number() -> None:
    assert equal_tiers([5.0, 1.0, 1.0, 3.0, 4.0], 2).tolist() == [1, 0, 0, 0, 1]
    assert equal_tiers([1.0, 1.0], 5).tolist() == [0, 1]


def test_founders_form_tiers_and_the_others_join_or_form_their_own() -> None:
    """Ratio 2, founded by 2 and 5 s: 3.5 s joins the first, 9 s the second; 1 and 1.5 s are a tier before, 11 s one
    after."""
    founders = np.array([0, 1])
    tiers = tiers_by_ratio([2.0, 5.0, 1.0, 3.5, 9.0, 11.0, 1.5], 2.0, founders)
    assert tiers.tolist() == [1, 2, 0, 1, 2, 3, 0]
    everybody = np.arange(5)
    durations = [4.2, 1.0, 2.1, 4.3, 2.0]
    assert (
        tiers_by_ratio(durations, 2.0, everybody).tolist()
        == tiers_by_ratio(durations, 2.0).tolist()
    )


def test_founders_of_equal_tiers() -> None:
    founders = np.array([0, 1, 2, 3])
    assert equal_tiers([1.0, 2.0, 3.0, 4.0, 0.5, 2.5, 9.0], 2, founders).tolist() == [
        0,
        0,
        1,
        1,
        0,
        0,
        1,
    ]
