"""Successive draws in proportion to weights."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from fedsim.scheduling.successive import weighted_order


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
