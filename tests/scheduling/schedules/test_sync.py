"""Rounds by hand: every client does 10 steps, so a client of 2 s per step takes 20 s."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.errors import UserError
from tests.scheduling.stories import run as run_schedule
from tests.scheduling.stories import versions
from tests.simulation.harness import Book


def run(step_s: list[float], schedule: dict[str, Any], **world: Any) -> Book:
    """Clients in order of their numbers, unless another selection is given."""
    return run_schedule(step_s, schedule, **{"selection": {"name": "cyclic"}, **world})


@pytest.mark.parametrize(
    ("schedule", "world", "message"),
    [
        ({"min_updates": 3}, {"selection": {"name": "uniform", "cohort": 2}}, "3 updates"),
        ({}, {"selection": {"name": "bernoulli", "allow_empty": True}}, "fewer updates"),
    ],
)
def test_rounds_that_cannot_work_are_refused(
    schedule: dict[str, Any], world: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run([1.0] * 3, {"name": "sync", **schedule}, rounds=1, **world)


@pytest.mark.parametrize(
    ("grace", "version"),
    [("0s", (15.0, [0, 1])), ("5s", (20.0, [0, 1, 2])), ("30s", (40.0, [0, 1, 2, 3]))],
)
def test_a_quorum_is_followed_by_a_time_of_grace(
    grace: str, version: tuple[float, list[int]]
) -> None:
    schedule = {"name": "sync", "quorum": 2, "grace": grace}
    book = run([1.0, 1.5, 2.0, 4.0], schedule, rounds=1)
    assert [(time_s, clients) for time_s, clients, _ in versions(book)] == [version]


def test_the_deadline_may_come_before_the_end_of_grace() -> None:
    schedule = {"name": "sync", "quorum": 2, "grace": "30s", "deadline": "25s"}
    book = run([1.0, 1.5, 2.0, 4.0], schedule, rounds=2)
    assert [(time_s, clients) for time_s, clients, _ in versions(book)] == [
        (25, [0, 1, 2]),
        (45, [0, 1, 2]),
    ]
