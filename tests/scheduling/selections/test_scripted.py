"""Exactly the clients of the script."""

from __future__ import annotations

import pytest

from fedsim.errors import UserError
from tests.scheduling.drawing import by_round, draws
from tests.simulation.harness import online


def test_the_script_is_followed_and_starts_again() -> None:
    script = {"name": "scripted", "rounds": [[0, 2], [1]]}
    assert by_round(draws(script, clients=3, rounds=4)) == [[0, 2], [1], [0, 2], [1]]


def test_without_rounds_the_script_is_a_queue() -> None:
    script = {"name": "scripted", "rounds": [[0, 2], [1]]}
    book = draws(script, clients=3, rounds=6, schedule={"name": "async", "concurrency": 1})
    rows = sorted(book.rows, key=lambda row: int(row["dispatch_id"]))
    assert [row["client"] for row in rows[:6]] == [0, 2, 1, 0, 2, 1]


@pytest.mark.parametrize(("cohort", "second_s"), [(2, 2.0), (None, 5.0)])
def test_over_selection_waits_for_the_cohort_of_the_script(
    cohort: int | None, second_s: float
) -> None:
    """Steps of 1, 2 and 5 s: the second round begins with the second update, or with the last."""
    book = draws(
        {"name": "scripted", "rounds": [[0, 1, 2], [0]], "cohort": cohort},
        clients=3,
        rounds=2,
        step_s=[1.0, 2.0, 5.0],
        schedule={"name": "sync", "over_selection": 1.5},
    )
    assert max(row["dispatched"] for row in book.rows) == second_s


def test_an_offline_client_gets_its_work_at_its_check_in() -> None:
    book = draws(
        {"name": "scripted", "rounds": [[0, 1]]},
        clients=2,
        rounds=1,
        availability=online([(0.0, 1e6)], [(7.0, 1e6)]),
    )
    assert [(row["client"], row["dispatched"]) for row in book.rows] == [(0, 0), (1, 7)]


def test_scripts_that_cannot_be_followed_are_refused() -> None:
    with pytest.raises(UserError, match="round 1 names client 9"):
        draws({"name": "scripted", "rounds": [[0, 1], [0, 9]]}, clients=3, rounds=1)
