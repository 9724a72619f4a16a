"""Every client the same number of times."""

from __future__ import annotations

from tests.scheduling.drawing import by_round, draws
from tests.simulation.harness import online


def test_round_robin_lets_a_client_catch_up() -> None:
    always = [(0.0, 1e6)]
    book = draws(
        {"name": "round_robin", "cohort": 2},
        clients=4,
        rounds=8,
        availability=online(always, [(3.5, 1e6)], always, always),
    )
    assert by_round(book) == [[0, 2], [3, 0], [2, 3], [0, 2], [1, 3], [1, 0], [1, 2], [3, 1]]
