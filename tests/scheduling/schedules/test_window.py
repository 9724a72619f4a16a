"""Windows by hand: every client does 10 steps, so a client of 2 s per step takes 20 s."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.errors import UserError
from tests.scheduling.stories import ALWAYS, run, versions
from tests.simulation.harness import online


def test_a_warm_up_of_ordinary_rounds() -> None:
    """Two rounds of the two clients that are online first (10 and 20 s), then a window that waits for the third."""
    world = online(ALWAYS, ALWAYS, [(70.0, 1e6)])
    schedule = {"name": "window", "length": 30, "warm_up": 2}
    book = run([1.0, 2.0, 1.0], schedule, availability=world, until_s=80)
    assert versions(book) == [
        (20, [0, 1], [0, 0]),
        (40, [0, 1], [0, 0]),
        (80, [0, 1, 2], [0, 0, 0]),
    ]


def test_a_round_of_the_warm_up_does_without_clients_that_drop_out() -> None:
    world = online(ALWAYS, [(0.0, 15.0), (60.0, 1e6)])
    book = run([1.0, 2.0], {"name": "window", "warm_up": 1}, availability=world, until_s=80)
    assert versions(book) == [(15, [0], [0]), (80, [0, 1], [0, 0])]


@pytest.mark.parametrize(
    ("schedule", "world", "message"),
    [({"length": 20, "deadline": 10}, {}, "is shorter than the shortest")],
)
def test_windows_that_cannot_work_are_refused(
    schedule: dict[str, Any], world: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run([1.0], {"name": "window", **schedule}, rounds=1, **world)
