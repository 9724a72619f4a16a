"""Asynchronous, buffered and tiered schedules: exact times, places, and clients that are gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.scheduling.worlds import NO_NETWORK, World, play
from tests.simulation.harness import Book, online, simulate

ALWAYS = [(0.0, 1e6)]


def run(step_s: list[float], schedule: dict[str, Any], **world: Any) -> Book:
    """10 steps without a network."""
    return simulate(step_s=step_s, schedule=schedule, **{"steps": 10, **NO_NETWORK, **world})


def versions(book: Book) -> list[tuple[float, list[int], list[int]]]:
    """Time, clients and staleness of each version."""
    return [
        (
            aggregate.time_s,
            [item.client for item in aggregate.contributions],
            [item.staleness for item in aggregate.contributions],
        )
        for aggregate in book.aggregates
    ]


def test_every_update_makes_a_version() -> None:
    """Work of 10 s and 25 s; the second client's updates are stale by what the first did meanwhile."""
    book = run([1.0, 2.5], {"name": "async"}, until_s=50)
    assert versions(book) == [
        (10, [0], [0]),
        (20, [0], [0]),
        (25, [1], [2]),
        (30, [0], [1]),
        (40, [0], [0]),
        (50, [1], [2]),
        (50, [0], [1]),
    ]
    assert [row["dispatched"] for row in book.rows if row["client"] == 1] == [0, 25, 50]


def test_updates_of_one_instant_are_handled_in_order_of_dispatching() -> None:
    """Both arrive at 10 s; the second client then starts from version 2, the first from version 1."""
    book = run([1.0, 1.0], {"name": "async"}, until_s=10)
    assert versions(book) == [(10, [0], [0]), (10, [1], [1])]
    again = {row["client"]: row["version"] for row in book.rows if row["dispatched"] == 10}
    assert again == {0: 1, 1: 2}


@pytest.mark.parametrize("next_client", ["same", "selection"])
def test_places_are_kept_filled(next_client: str) -> None:
    schedule = {"name": "async", "concurrency": 2, "next_client": next_client}
    book = run([1.0] * 6, schedule, until_s=100)
    working = {row["client"] for row in book.rows}
    assert len(working) == (2 if next_client == "same" else 6)
    starts = sorted(row["dispatched"] for row in book.rows)
    assert starts[:20] == [10.0 * (k // 2) for k in range(20)]


def test_concurrency_is_the_selections_cohort_when_not_given() -> None:
    book = run([1.0] * 6, {"name": "async"}, selection={"name": "cyclic", "cohort": 2}, until_s=35)
    order = [row["client"] for row in sorted(book.rows, key=lambda row: row["dispatch_id"])]
    assert order == [0, 1, 2, 3, 4, 5, 0, 1]


def test_buffers_of_two() -> None:
    """The client that completes the buffer starts from the new version, the other from the old one."""
    book = run([1.0, 1.5], {"name": "buffered", "buffer_size": 2}, until_s=30)
    assert versions(book) == [(15, [0, 1], [0, 0]), (30, [0, 1], [1, 0])]
    handed = {(row["client"], row["dispatched"]): row["version"] for row in book.rows}
    assert handed == {
        (0, 0): 0,
        (1, 0): 0,
        (0, 10): 0,
        (1, 15): 1,
        (0, 20): 1,
        (1, 30): 2,
        (0, 30): 2,
    }


def test_a_client_may_stand_in_a_buffer_twice() -> None:
    book = run([1.0, 5.0], {"name": "buffered", "buffer_size": 3}, until_s=30)
    assert versions(book) == [(30, [0, 0, 0], [0, 0, 0])]


def test_too_stale_updates_are_thrown_away() -> None:
    book = run([1.0, 3.5], {"name": "async", "max_staleness": 2}, until_s=35)
    assert versions(book) == [(10, [0], [0]), (20, [0], [0]), (30, [0], [0])]
    assert book.outcomes()[1] == "discarded"
    assert max(row["dispatched"] for row in book.rows if row["client"] == 1) == 35


def test_a_place_goes_to_who_is_there() -> None:
    """Client 0 leaves at 5 s; its place goes to client 2, and its own comes when client 1 is done."""
    book = run(
        [1.0, 1.0, 1.0],
        {"name": "async", "concurrency": 2},
        selection={"name": "cyclic"},
        availability=online([(0.0, 5.0), (12.0, 1e6)], ALWAYS, ALWAYS),
        until_s=21,
    )
    rows = [
        (row["client"], row["dispatched"])
        for row in sorted(book.rows, key=lambda row: row["dispatch_id"])
    ]
    assert rows[:4] == [(0, 0), (1, 0), (2, 5), (1, 10)]
    assert book.outcomes()[0] == "dropped"
    assert (0, 20) in rows or (0, 15) in rows


def test_a_place_that_nobody_can_take_is_filled_at_the_next_check_in() -> None:
    book = run(
        [1.0, 1.0],
        {"name": "async"},
        availability=online(ALWAYS, [(33.0, 1e6)]),
        until_s=50,
    )
    assert min(row["dispatched"] for row in book.rows if row["client"] == 1) == 33
    assert [version[0] for version in versions(book)] == [10, 20, 30, 40, 43, 50]


def test_the_same_client_gets_its_work_when_it_checks_in_again() -> None:
    book = run(
        [1.0, 1.0],
        {"name": "async", "next_client": "same"},
        availability=online([(0.0, 15.0), (40.0, 1e6)], ALWAYS),
        until_s=50,
    )
    assert [row["dispatched"] for row in book.rows if row["client"] == 0] == [0, 10, 40, 50]


def test_a_busy_server_hands_out_when_it_is_done() -> None:
    """An aggregation takes 3 s, so clients start 3 s after their update made a version."""
    book = run([1.0, 4.0], {"name": "async"}, aggregation_time=3.0, until_s=30)
    assert [row["dispatched"] for row in book.rows if row["client"] == 0] == [0, 13, 26]


SCHEDULES: list[dict[str, Any]] = [
    {"name": "async"},
    {"name": "async", "next_client": "same"},
    {"name": "async", "concurrency": 3},
    {"name": "buffered", "buffer_size": 3},
    {"name": "tiered"},
    {"name": "compass", "min_steps": 2, "max_steps": 10},
]
SELECTIONS: list[dict[str, Any]] = [
    {"name": "uniform"},
    {"name": "uniform_with_replacement"},
    {"name": "sample_weighted"},
    {"name": "bernoulli", "probability": 0.4},
    {"name": "cyclic"},
    {"name": "reshuffled_cyclic"},
    {"name": "periodic_groups", "groups": 3, "slot": 50},
    {"name": "round_robin"},
    {"name": "tifl", "tiers": 3},
    {"name": "refl"},
    {"name": "oort"},
]
CLIENTS = 9


def flickering(clients: int = CLIENTS, horizon: float = 2000) -> Any:
    """Devices that come and go every few dozen seconds, each at times of its own."""
    rng = np.random.default_rng(5)
    sessions: list[list[tuple[float, float]]] = []
    for _ in range(clients):
        ends = np.cumsum(np.column_stack([rng.uniform(5, 40, 60), rng.uniform(15, 60, 60)]).ravel())
        starts_and_ends = np.round(ends, 3).reshape(-1, 2)
        sessions.append([(a, b) for a, b in starts_and_ends.tolist() if b < horizon])
    return online(*sessions)


def hold(world: World, until: float) -> None:
    """No schedule stands still, and nobody is given work while away or at work."""
    assert len(world.times) > 20
    assert world.times[-1] > until - 150
    available = flickering()
    rows = sorted(world.book.rows, key=lambda row: int(row["dispatch_id"]))
    ended = [0.0] * CLIENTS
    for row in rows:
        client = row["client"]
        assert available.is_online(client, round(row["dispatched"] * 1e9))
        assert row["dispatched"] >= ended[client]
        ended[client] = row["ended"]
    assert {row["client"] for row in rows} == set(range(CLIENTS))


@pytest.mark.parametrize(
    "schedule", [*SCHEDULES, {"name": "sync"}], ids=lambda item: str(item["name"])
)
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda item: str(item["name"]))
def test_any_schedule_with_any_selection_on_devices_that_come_and_go(
    schedule: dict[str, Any], selection: dict[str, Any]
) -> None:
    if schedule["name"] == "compass" and selection["name"] not in ("uniform", "oort"):
        pytest.skip("the compass schedule draws nobody")
    if schedule.get("next_client") == "same" and selection["name"] != "uniform":
        pytest.skip("nobody is drawn while everybody takes part")
    world = play(
        [0.5 + 0.4 * client for client in range(CLIENTS)],
        method={"name": "fedavg"},
        lr=0.01,
        steps=10,
        samples=[1 + client for client in range(CLIENTS)],
        schedule=dict(schedule),
        selection=dict(selection),
        availability=flickering(),
        until_s=1500,
    )
    hold(world, 1500)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda item: str(item["name"]))
def test_a_timeout_does_where_the_server_never_learns_who_is_gone(schedule: dict[str, Any]) -> None:
    steps = [0.5 + 0.4 * client for client in range(CLIENTS)]
    options: dict[str, Any] = {
        "method": {"name": "fedavg"},
        "lr": 0.01,
        "steps": 10,
        "availability": flickering(),
        "until_s": 1500,
        "failure_detection": "never",
    }
    world = play(steps, schedule=schedule | {"timeout": 37}, **options)
    hold(world, 1500)
    with pytest.raises(UserError, match="never be given work again"):
        play(steps, schedule=dict(schedule), **options)


def test_a_timeout_stops_who_takes_too_long() -> None:
    book = run([1.0, 9.0], {"name": "async", "timeout": 30}, until_s=60)
    cut = [row for row in book.rows if row["client"] == 1]
    assert [(row["dispatched"], row["ended"]) for row in cut] == [(0, 30), (30, 60), (60, 60)]
    assert book.outcomes()[1] == "cut"
    assert cut[0]["steps_done"] == 3


def test_a_world_without_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedsim.scheduling.continuous import Continuous

    monkeypatch.setattr(Continuous, "MAX_INSTANT_UPDATES", 1000)
    with pytest.raises(UserError, match="took no simulated time"):
        run([0.0, 0.0], {"name": "async"}, until_s=10)
    assert len(run([0.0, 0.0], {"name": "async"}, rounds=500).aggregates) == 500


# -- tiers -----------------------------------------------------------------------------------------------------------


def test_tiers_do_not_wait_for_each_other() -> None:
    """Speed ratio 2: {1, 1.8} s a step, {3} and {7, 9}; rounds of 18, 30 and 90 s."""
    book = run([1.0, 1.8, 3.0, 9.0, 7.0], {"name": "tiered"}, until_s=90)
    tiers = [
        (
            aggregate.time_s,
            int(aggregate.attributes["tier"]),
            sorted(item.client for item in aggregate.contributions),
        )
        for aggregate in book.aggregates
    ]
    assert tiers == [
        (18, 0, [0, 1]),
        (30, 1, [2]),
        (36, 0, [0, 1]),
        (54, 0, [0, 1]),
        (60, 1, [2]),
        (72, 0, [0, 1]),
        (90, 2, [3, 4]),
        (90, 1, [2]),
        (90, 0, [0, 1]),
    ]
    assert all(aggregate.attributes["tiers"] == 3 for aggregate in book.aggregates)
    assert {
        item.group for a in book.aggregates for item in a.contributions if item.client == 3
    } == {2}


def test_tiers_of_equal_size() -> None:
    book = run([5.0, 1.0, 4.0, 2.0, 3.0], {"name": "tiered", "tiers": 2}, until_s=30)
    assert [sorted(item.client for item in a.contributions) for a in book.aggregates] == [[1, 3, 4]]


def test_a_round_of_a_tier_takes_a_cohort_of_it() -> None:
    book = run(
        [1.0] * 4 + [10.0] * 4,
        {"name": "tiered"},
        selection={"name": "uniform", "cohort": 2},
        until_s=400,
    )
    for aggregate in book.aggregates:
        tier = int(aggregate.attributes["tier"])
        assert len(aggregate.contributions) == 2
        assert all(item.client // 4 == tier for item in aggregate.contributions)
    assert {row["client"] for row in book.rows} == set(range(8))


def test_a_tier_without_anybody_waits_for_its_own() -> None:
    book = run(
        [1.0, 10.0],
        {"name": "tiered"},
        availability=online(ALWAYS, [(120.0, 1e6)]),
        until_s=230,
    )
    slow = [aggregate.time_s for aggregate in book.aggregates if aggregate.attributes["tier"] == 1]
    assert slow == [220]


def test_a_client_that_drops_out_frees_its_tier() -> None:
    book = run(
        [1.0, 1.5],
        {"name": "tiered"},
        availability=online(ALWAYS, [(0.0, 12.0), (50.0, 1e6)]),
        until_s=30,
    )
    # Client 1 is gone at 12 s, after client 0 had arrived: the round ends there with what has come.
    assert versions(book)[:2] == [(12, [0], [0]), (22, [0], [0])]


# -- Compass ---------------------------------------------------------------------------------------------------------


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


def test_what_compass_refuses() -> None:
    with pytest.raises(UserError, match="all clients take part"):
        run([1.0] * 3, {"name": "compass"}, selection={"name": "uniform", "cohort": 2}, until_s=1)
    with pytest.raises(ValueError, match="min_steps must not be more"):
        run([1.0], {"name": "compass", "min_steps": 5, "max_steps": 4}, until_s=1)
