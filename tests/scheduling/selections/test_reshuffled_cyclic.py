"""Blocks of clients in an order drawn anew every lap."""

from __future__ import annotations

from collections import Counter

from tests.scheduling.drawing import by_round, draws, flat


def test_reshuffled_cyclic_takes_everybody_once_a_lap() -> None:
    rounds = by_round(draws({"name": "reshuffled_cyclic", "cohort": 4}, clients=12, rounds=30))
    laps = [sorted(flat(rounds[start : start + 3])) for start in range(0, 30, 3)]
    assert laps == [list(range(12))] * 10
    assert len({tuple(flat(rounds[start : start + 3])) for start in range(0, 30, 3)}) == 10


def test_laps_that_no_cohort_divides_lose_no_turn() -> None:
    rounds = by_round(draws({"name": "reshuffled_cyclic", "cohort": 4}, clients=10, rounds=50))
    assert all(len(set(clients)) == 4 for clients in rounds)
    counts = Counter(flat(rounds))
    assert set(counts.values()) == {20}
