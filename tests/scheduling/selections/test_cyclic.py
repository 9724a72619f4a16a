"""Blocks of clients in a fixed order."""

from __future__ import annotations

from tests.scheduling.drawing import by_round, draws
from tests.simulation.harness import online


def test_cyclic_blocks() -> None:
    book = draws({"name": "cyclic", "cohort": 4}, clients=10, rounds=6)
    assert by_round(book) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 0, 1],
        [2, 3, 4, 5],
        [6, 7, 8, 9],
        [0, 1, 2, 3],
    ]


def test_who_is_not_there_loses_the_turn() -> None:
    """Client 1 is away during the first two rounds."""
    always = [(0.0, 1e6)]
    book = draws(
        {"name": "cyclic", "cohort": 2},
        clients=4,
        rounds=5,
        availability=online(always, [(2.5, 1e6)], always, always),
    )
    assert by_round(book) == [[0, 2], [3, 0], [2, 3], [0, 1], [2, 3]]
