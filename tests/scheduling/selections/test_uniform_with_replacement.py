"""Uniform draws with replacement: counts, inclusion, and what the method sees."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.scheduling.drawing import draws, frequency
from tests.scheduling.worlds import play


def test_with_replacement_a_client_drawn_twice_works_once_and_counts_twice() -> None:
    book = draws({"name": "uniform_with_replacement", "cohort": 10}, clients=6, rounds=50)
    for aggregate in book.aggregates:
        clients = [item.client for item in aggregate.contributions]
        assert len(set(clients)) == len(clients)
        assert sum(item.multiplicity for item in aggregate.contributions) == 10
    assert max(item.multiplicity for a in book.aggregates for item in a.contributions) > 2


def test_inclusion_with_replacement_and_without() -> None:
    """FedLGA's I13: 1 - (1 - 1/50)^10 = 0.18293 against 0.2; a client is drawn 0.2 times a round either way."""
    n, k, rounds = 50, 10, 1500
    book = draws({"name": "uniform_with_replacement", "cohort": k}, clients=n, rounds=rounds)
    included = frequency(book, n, rounds)
    # The mean over clients of independent rounds: its deviation is far below this tolerance.
    assert included.mean() == pytest.approx(1 - (1 - 1 / n) ** k, abs=0.002)
    drawn = Counter[int]()
    for aggregate in book.aggregates:
        for item in aggregate.contributions:
            drawn[item.client] += item.multiplicity
    assert sum(drawn.values()) == k * rounds
    assert all(abs(count / rounds - k / n) < 0.06 for count in drawn.values())
    without = draws({"name": "uniform", "cohort": k}, clients=n, rounds=rounds)
    assert frequency(without, n, rounds).mean() == pytest.approx(0.2, rel=1e-12)


def test_multiplicity_reaches_the_method() -> None:
    """Every version of FedAvg is the mean over draws, not over clients."""
    world = play(
        [1.0, 1.0, 1.0],
        slopes=[1.0, 10.0, 100.0],
        steps=1,
        method={"name": "fedavg"},
        selection={"name": "uniform_with_replacement", "cohort": 4},
        rounds=20,
    )
    repeated = 0
    for version, aggregate in enumerate(world.book.aggregates):
        drawn = [
            10.0**item.client for item in aggregate.contributions for _ in range(item.multiplicity)
        ]
        assert len(drawn) == 4
        assert world.w[version] - world.w[version + 1] == pytest.approx(np.mean(drawn), rel=1e-12)
        repeated += any(item.multiplicity > 1 for item in aggregate.contributions)
    assert repeated > 10
