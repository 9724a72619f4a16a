"""Schedules without rounds: who gets a free place, timeouts, and worlds in which devices come and go."""

from typing import Any

import numpy as np
import pytest

from fedsim.parts.catalog import CATALOG
from fedsim.simulation.story import Server
from tests.scheduling.schedules.test_schedules import ALWAYS, run
from tests.scheduling.worlds import play
from tests.simulation.harness import Book, online


def test_concurrency_is_the_selections_cohort_when_not_given() -> None:
    book = run([1.0] * 6, {"name": "async"}, selection={"name": "cyclic", "cohort": 2}, until_s=35)
    order = [row["client"] for row in sorted(book.rows, key=lambda row: row["dispatch_id"])]
    assert order == [0, 1, 2, 3, 4, 5, 0, 1]


@pytest.mark.parametrize("selection", ["uniform", "round_robin", "cyclic", "sample_weighted"])
def test_a_client_that_is_back_before_its_drop_is_noticed_gets_no_second_place(
    selection: str,
) -> None:
    """Client 0 is back at 6 s; the server learns at 10 s of the drop at 5 s. Clients 2 and 3 come late."""
    book = run(
        [1.0] * 4,
        {"name": "async", "next_client": "same", "concurrency": 3},
        selection={"name": selection},
        availability=online([(0.0, 5.0), (6.0, 1e6)], ALWAYS, [(33.0, 1e6)], [(34.0, 1e6)]),
        failure_detection=5.0,
        until_s=44,
    )
    rows = sorted((row["client"], row["dispatched"]) for row in book.rows)
    expected = {0: [0, 10, 20, 30, 40], 1: [0, 10, 20, 30, 40], 2: [33, 43]}
    assert rows == [(client, at) for client, times in expected.items() for at in times]


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
STEPS_S = [0.5 + 0.4 * client for client in range(CLIENTS)]


def flickering(clients: int = CLIENTS, horizon: float = 2000) -> Any:
    """Devices that come and go every few dozen seconds, each at times of its own."""
    rng = np.random.default_rng(5)
    sessions: list[list[tuple[float, float]]] = []
    for _ in range(clients):
        ends = np.cumsum(np.column_stack([rng.uniform(5, 40, 60), rng.uniform(15, 60, 60)]).ravel())
        starts_and_ends = np.round(ends, 3).reshape(-1, 2)
        sessions.append([(a, b) for a, b in starts_and_ends.tolist() if b < horizon])
    return online(*sessions)


def hold(book: Book, until: float) -> None:
    """No schedule stands still, and nobody is given work while away or at work."""
    assert len(book.aggregates) > 20
    assert book.aggregates[-1].time_s > until - 150
    available = flickering()
    rows = sorted(book.rows, key=lambda row: int(row["dispatch_id"]))
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
    draws = schedule["name"] != "compass" and schedule.get("next_client") != "same"
    if selection["name"] != "uniform" and not draws:
        pytest.skip("refused: all clients participate all the time")
    # Those that make fewer versions get more time.
    slow = schedule["name"] in ("sync", "buffered") or selection["name"] == "periodic_groups"
    until_s = 700 if slow else 400
    options: dict[str, Any] = {
        "schedule": schedule,
        "selection": selection,
        "samples": [1 + client for client in range(CLIENTS)],
        "availability": flickering(),
        "until_s": until_s,
    }
    # Training takes most of the time: one selection trains with each schedule, the others only if they use the losses.
    if CATALOG.parts("selection")[selection["name"]].needs_training or selection == SELECTIONS[0]:
        book = play(STEPS_S, method={"name": "fedavg"}, lr=0.01, steps=10, **options).book
    else:
        book = run(STEPS_S, **options)
    hold(book, until_s)


def test_a_draw_does_not_look_at_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch costs the same among ten clients and a million."""

    def forbidden(self: Server) -> None:
        raise AssertionError("looked at all clients")

    monkeypatch.setattr(Server, "online_clients", forbidden)
    for schedule in ({"name": "async"}, {"name": "buffered", "buffer_size": 2}):
        book = run([1.0] * 6, schedule, selection={"name": "uniform", "cohort": 3}, until_s=35)
        assert len(book.rows) > 9


def test_dynamic_local_updates_take_about_the_same_time() -> None:
    # The harness expects the time of one step: 10 steps for the fastest, 10 / 1.5 and 10 / 4 rounded down.
    schedule = {"name": "async", "local_steps": "by_speed", "next_client": "same"}
    book = run([1.0, 1.5, 4.0], schedule, until_s=10)
    assert [(row["client"], row["steps_done"], row["arrived"]) for row in book.rows[:3]] == [
        (2, 2, 8),
        (1, 6, 9),
        (0, 10, 10),
    ]
