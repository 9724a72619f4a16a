"""Groups of clients that arrive together."""

from __future__ import annotations

import pytest

from tests.scheduling.stories import ALWAYS
from tests.scheduling.worlds import play
from tests.simulation.harness import online


def test_a_member_that_is_gone_releases_its_group() -> None:
    """Client 1 would arrive at 120 s like client 0, and leaves at 100 s; its group ends with client 0."""
    world = play(
        [1.0, 2.0],
        schedule={"name": "compass", "min_steps": 20, "max_steps": 100},
        availability=online(ALWAYS, [(0.0, 100.0), (150.0, 1e6)]),
        until_s=240,
    )
    assert world.times[:3] == [20, 40, 120]
    assert world.members[2] == [1]
    # It joins the group that is there when it checks in, with as many steps as fit: (220 - 150) / 2.
    assert world.assigned(150, 150) == [(150, 2, 2, 35)]
    assert world.times[3] == 220
    assert sorted(world.members[3]) == [1, 2]


def test_a_group_whose_members_are_all_gone_is_dissolved() -> None:
    world = play(
        [1.0, 2.0],
        schedule={"name": "compass", "min_steps": 20, "max_steps": 100},
        availability=online([(0.0, 50.0), (300.0, 1e6)], [(0.0, 60.0), (300.0, 1e6)]),
        until_s=400,
    )
    assert world.times == [20, 40, 400]
    assert world.assigned(300, 300) == [(300, 1, 2, 100), (300, 2, 2, 50)]


def test_the_last_pending_member_that_is_gone_ends_the_wait() -> None:
    """Client 0 idles from 70 s on; the group is done when client 1 is lost at 100 s."""
    world = play(
        [1.0, 2.0],
        schedule={"name": "compass", "min_steps": 20, "max_steps": 100},
        compute={"perturbations": [{"at": 20, "until": 70, "clients": [0], "factor": 0.5}]},
        availability=online(ALWAYS, [(0.0, 100.0), (150.0, 1e6)]),
        until_s=100,
    )
    assert world.times == [20, 40, 100]


def test_a_first_dispatch_that_is_lost_is_given_again() -> None:
    world = play(
        [1.0, 2.0],
        schedule={"name": "compass", "min_steps": 20, "max_steps": 100},
        availability=online([(0.0, 10.0), (30.0, 1e6)], ALWAYS),
        until_s=50,
    )
    warm = [row for row in world.book.rows if row["client"] == 0][:2]
    assert [(row["dispatched"], row["steps_assigned"]) for row in warm] == [(0, 20), (30, 20)]
    assert world.times == [40, 50]


@pytest.mark.parametrize(("rule", "flushed"), [("flush", [680]), ("keep", [])])
def test_an_empty_group_flushes_the_late_updates_or_keeps_them(
    rule: str, flushed: list[float]
) -> None:
    """R8. A client that gets slower and slower: 3 s a step from 20 s on, 6 s from 320 s on.

    Its group of 20 s waits until 140 s and the update comes at 320 s; the next waits until 680 s, and nobody comes.
    """
    world = play(
        [1.0],
        schedule={"name": "compass", "min_steps": 20, "max_steps": 100, "empty_timer": rule},
        compute={
            "perturbations": [
                {"at": 20, "clients": [0], "factor": 3.0},
                {"at": 320, "clients": [0], "factor": 2.0},
            ]
        },
        until_s=900,
    )
    assert world.times == [20, *flushed]
    if flushed:
        (late,) = world.book.aggregates[-1].contributions
        assert (late.group, world.book.aggregates[-1].attributes["group"]) == (1, 2)


def test_steps_are_decided_when_the_work_is_handed_out() -> None:
    """With aggregations of 5 s, members get the time that is left when the server is free."""
    world = play(
        [1.0, 2.0],
        schedule={"name": "compass", "min_steps": 20, "max_steps": 100},
        aggregation_time=5.0,
        until_s=60,
    )
    # First updates at 20 s and 40 s; hand-outs at 25 s (group until 125 s) and 45 s: 80 s left, 40 steps.
    assert world.assigned() == [(25, 1, 1, 100), (45, 2, 1, 40)]


def test_defaults_of_the_bounds() -> None:
    world = play([1.0, 1.0], steps=50, schedule={"name": "compass"}, until_s=100)
    assert [row["steps_assigned"] for row in world.book.rows if row["sequence"] < 2] == [
        10,
        10,
        50,
        50,
    ]
