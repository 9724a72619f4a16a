"""Ways to draw clients: in turn, and in proportion to weights."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from fedsim.scheduling.drawing import Turns, weighted_order


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
