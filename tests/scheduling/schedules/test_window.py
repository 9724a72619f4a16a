"""Windows by hand: every client does 10 steps, so a client of 2 s per step takes 20 s."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.errors import UserError
from tests.scheduling.stories import ALWAYS, run, versions
from tests.simulation.harness import online


def test_a_window_ends_when_every_client_has_reported() -> None:
    book = run([1.0, 2.0, 4.0], {"name": "window"}, until_s=80)
    assert versions(book) == [(40, [0, 1, 2], [0, 0, 0]), (80, [0, 1, 2], [0, 0, 0])]
    # Each client works once per window.
    assert len([row for row in book.rows if row["dispatched"] < 80]) == 6


def test_a_window_is_not_shorter_than_its_length() -> None:
    book = run([1.0, 4.0], {"name": "window", "length": 50}, until_s=100)
    assert [time for time, _, _ in versions(book)] == [50, 100]
    assert sorted({row["dispatched"] for row in book.rows}) == [0, 50, 100]


def test_at_the_deadline_those_who_have_reported_make_the_version() -> None:
    book = run([1.0, 2.0, 4.0], {"name": "window", "deadline": 30}, until_s=60)
    assert versions(book) == [(30, [0, 1], [0, 0]), (60, [0, 1], [0, 0])]
    cut = [row for row in book.rows if row["client"] == 2 and row["dispatched"] < 60]
    assert [(row["ended"], row["steps_done"]) for row in cut] == [(30, 7), (60, 7)]
    assert book.outcomes()[2] == "cut"


def test_a_client_that_drops_out_gets_the_work_again() -> None:
    """Client 1 leaves at 5 s and is back at 12 s: it reports at 32 s."""
    world = online(ALWAYS, [(0.0, 5.0), (12.0, 1e6)])
    book = run([1.0, 2.0], {"name": "window"}, availability=world, rounds=1)
    assert versions(book) == [(32, [0, 1], [0, 0])]
    assert [row["dispatched"] for row in book.rows if row["client"] == 1] == [0, 12]


def test_a_window_in_which_nobody_reports_makes_no_version() -> None:
    world = online([(60.0, 1e6)])
    book = run([1.0], {"name": "window", "deadline": 50}, availability=world, rounds=2)
    assert versions(book) == [(70, [0], [0])]


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
    [
        ({"length": 20, "deadline": 10}, {}, "is shorter than the shortest"),
    ],
)
def test_windows_that_cannot_work_are_refused(
    schedule: dict[str, Any], world: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run([1.0], {"name": "window", **schedule}, rounds=1, **world)
