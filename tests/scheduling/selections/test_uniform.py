"""Uniform draws without replacement."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.scheduling.drawing import by_round, draws
from tests.simulation.harness import online


def test_every_pair_is_drawn_equally_often() -> None:
    """Six pairs of four clients in 3,000 rounds: 500 each, within four standard deviations."""
    rounds = by_round(draws({"name": "uniform", "cohort": 2}, clients=4, rounds=3000))
    pairs = Counter(tuple(sorted(clients)) for clients in rounds)
    assert len(pairs) == 6
    assert max(abs(count - 500) for count in pairs.values()) < 4 * (3000 * 5 / 36) ** 0.5


def test_fewer_are_drawn_if_fewer_are_online() -> None:
    always, later = [(0.0, 1e6)], [(1.5, 1e6)]
    book = draws(
        {"name": "uniform", "cohort": 3},
        clients=4,
        rounds=3,
        availability=online(always, always, later, later),
    )
    assert [len(clients) for clients in by_round(book)] == [2, 2, 3]


@pytest.mark.parametrize("clients", [1, 5])
def test_without_a_cohort_everybody_is_drawn(clients: int) -> None:
    rounds = by_round(draws({"name": "uniform"}, clients=clients, rounds=2))
    assert [sorted(round_) for round_ in rounds] == [list(range(clients))] * 2
