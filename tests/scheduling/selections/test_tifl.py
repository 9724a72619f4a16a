"""Rounds within one tier."""

from __future__ import annotations

from collections import Counter

import pytest

from fedsim.errors import UserError
from tests.scheduling.drawing import by_round, draws
from tests.simulation.harness import online


def test_tifl_rounds_are_of_one_tier() -> None:
    step_s = [float(1 + client % 10) for client in range(20)]
    rounds = 1000
    selection = {"name": "tifl", "cohort": 3, "tiers": 5}
    book = draws(selection, clients=20, rounds=rounds, step_s=step_s)
    tiers = [{int(step_s[client] - 1) // 2 for client in clients} for clients in by_round(book)]
    assert all(len(tier) == 1 for tier in tiers)
    shares = Counter(min(tier) for tier in tiers)
    assert [shares[tier] / rounds for tier in range(5)] == pytest.approx([0.2] * 5, abs=0.04)


def test_tifl_chances_and_tiers_that_are_away() -> None:
    step_s = [1.0, 1.0, 5.0, 5.0]
    chances = {"name": "tifl", "cohort": 1, "tiers": 2, "probabilities": [1.0, 0.0]}
    book = draws(chances, clients=4, rounds=20, step_s=step_s)
    assert {row["client"] for row in book.rows} == {0, 1}
    always, never = [(0.0, 1e6)], [(9e5, 1e6)]
    half = {"name": "tifl", "cohort": 1, "tiers": 2}
    world = online(never, never, always, always)
    book = draws(half, clients=4, rounds=20, step_s=step_s, availability=world)
    assert {row["client"] for row in book.rows} == {2, 3}
    with pytest.raises(UserError, match="3 probabilities for 2 tiers"):
        draws(half | {"probabilities": [1, 1, 1]}, clients=4, rounds=1, step_s=step_s)
