"""Rounds by hand: every client does 10 steps, so a client of 2 s per step takes 20 s."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.errors import UserError
from tests.scheduling.stories import ALWAYS, versions
from tests.scheduling.stories import run as run_schedule
from tests.simulation.harness import Book, online


def run(step_s: list[float], schedule: dict[str, Any], **world: Any) -> Book:
    """Clients in order of their numbers, unless another selection is given."""
    return run_schedule(step_s, schedule, **{"selection": {"name": "cyclic"}, **world})


def test_a_round_ends_with_its_last_update_and_the_next_begins_after_the_pause() -> None:
    book = run([1.0, 2.0], {"name": "sync", "pause": 5}, rounds=3)
    assert versions(book) == [(20, [0, 1], [0, 0]), (45, [0, 1], [0, 0]), (70, [0, 1], [0, 0])]
    assert sorted({row["dispatched"] for row in book.rows}) == [0, 25, 50]


def test_a_deadline_ends_the_round_and_an_update_at_that_instant_is_in_time() -> None:
    book = run([1.0, 2.0, 2.5], {"name": "sync", "deadline": 20}, until_s=40)
    # Client 2 is late at 25 s, when the second round is under way without it.
    assert versions(book) == [(20, [0, 1], [0, 0]), (40, [0, 1], [0, 0])]
    assert book.outcomes()[2] == "late"


def test_stragglers_are_cut_at_the_deadline() -> None:
    schedule = {"name": "sync", "deadline": 20, "stragglers": "cut"}
    book = run([1.0, 2.5], schedule, rounds=2)
    assert versions(book) == [(20, [0], [0]), (40, [0], [0])]
    cut = [row for row in book.rows if row["client"] == 1]
    assert [(row["dispatched"], row["ended"], row["steps_done"]) for row in cut] == [
        (0, 20, 8),
        (20, 40, 8),
    ]


def test_over_selection_closes_with_as_many_updates_as_the_plain_cohort() -> None:
    """A cohort of 2 times 1.5: three are dispatched and the first two make the version, at 20 s."""
    schedule = {"name": "sync", "over_selection": 1.5}
    book = run([3.0, 1.0, 2.0], schedule, selection={"name": "uniform", "cohort": 2}, rounds=1)
    assert [(time, sorted(clients)) for time, clients, _ in versions(book)] == [(20, [1, 2])]
    assert len(book.rows) == 3


def test_a_round_with_too_few_updates_fails() -> None:
    book = run([1.0, 9.0], {"name": "sync", "deadline": 20, "min_updates": 2}, until_s=30)
    assert versions(book) == []
    assert book.outcomes()[0] == "discarded"


def test_a_round_waits_for_the_smallest_cohort() -> None:
    world = online(ALWAYS, [(33.0, 1e6)])
    book = run([1.0, 1.0], {"name": "sync", "min_cohort": 2}, availability=world, rounds=1)
    assert [(time, sorted(clients)) for time, clients, _ in versions(book)] == [(43, [0, 1])]


def test_a_client_that_is_gone_is_not_waited_for() -> None:
    """Client 1 leaves at 12 s, when the update of client 0 has arrived."""
    world = online(ALWAYS, [(0.0, 12.0)])
    book = run([1.0, 2.0], {"name": "sync"}, availability=world, rounds=1)
    assert versions(book) == [(12, [0], [0])]


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


def test_clients_are_drawn_and_the_deadline_starts_when_the_server_is_free() -> None:
    """The round closes at 10 s and aggregation takes 5 s: the next is drawn at 15 s and lasts until 45 s.

    Client 0 leaves at 12 s, so a draw at 10 s would select it and wait for its return at 900 s; the update of
    client 1 arrives at 40 s, the deadline of 30 s after a draw at 10 s.
    """
    world = online([(0.0, 12.0), (900.0, 1e6)], [(12.0, 1e6)])
    schedule = {"name": "sync", "deadline": 30}
    book = run([1.0, 2.51], schedule, availability=world, aggregation_time=5.0, rounds=2)
    assert [(row["client"], row["dispatched"]) for row in book.rows] == [(0, 0), (1, 15)]
    assert versions(book) == [(10, [0], [0]), (40.1, [1], [0])]


def test_the_pause_and_the_aggregation_overlap() -> None:
    """Closed at 10 s; a pause of 8 s outlasts an aggregation of 5 s, and one of 3 s does not."""
    for pause, second in ((8, 18), (3, 15)):
        book = run([1.0], {"name": "sync", "pause": pause}, aggregation_time=5.0, rounds=2)
        assert [row["dispatched"] for row in book.rows] == [0, second]


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
