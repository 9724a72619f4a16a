"""Asynchronous versions without old updates: ignored, or stopped by a message."""

from __future__ import annotations

import pytest

from tests.scheduling.stories import run, versions
from tests.simulation.harness import Book, simulate


def _asynchronous(**schedule: object) -> dict[str, object]:
    return {"name": "async", "next_client": "same", **schedule}


@pytest.mark.parametrize("stale", ["ignore", "stop"])
def test_an_infinite_threshold_is_the_asynchronous_schedule(stale: str) -> None:
    schedule = {"name": "ringmaster", "threshold": 10**9, "stale": stale}
    world = {"until_s": 300}
    assert versions(run([1.0, 1.7, 4.1], schedule, **world)) == versions(
        run([1.0, 1.7, 4.1], _asynchronous(), **world)
    )


def test_old_updates_are_ignored() -> None:
    world = {"until_s": 300}
    assert versions(
        run([1.0, 1.7, 4.1], {"name": "ringmaster", "threshold": 2}, **world)
    ) == versions(run([1.0, 1.7, 4.1], _asynchronous(max_staleness=1), **world))


def test_the_threshold_is_the_number_of_clients_at_work_by_default() -> None:
    world = {"until_s": 300}
    assert versions(run([1.0, 1.7, 4.1], {"name": "ringmaster"}, **world)) == versions(
        run([1.0, 1.7, 4.1], _asynchronous(max_staleness=2), **world)
    )


def test_ignored_work_is_not_stopped_where_there_is_a_timeout() -> None:
    schedule = {"name": "ringmaster", "threshold": 2}
    plain, limited = (
        run([1.0, 4.5], schedule | timeout, until_s=100) for timeout in ({}, {"timeout": "60s"})
    )
    assert "discarded" in plain.outcomes().values()
    assert limited.outcomes() == plain.outcomes()


def _stopped(**world: object) -> Book:
    options = {"bytes_down": 0.0, "bytes_up": 0.0, "steps": 10, **world}
    schedule = {"name": "ringmaster", "threshold": 2, "stale": "stop"}
    return simulate(step_s=[1.0, 4.5], schedule=schedule, **options)  # type: ignore[arg-type]


def test_old_work_is_stopped_and_starts_again() -> None:
    book = _stopped(until_s=50)
    # Versions 2 and 4 make the work of client 1 two versions old, at 20 and 40.
    assert [version[:2] for version in versions(book)] == [(t, [0]) for t in (10, 20, 30, 40, 50)]
    cut = [row for row in book.rows if book.outcomes()[row["dispatch_id"]] == "cut"]
    assert [(row["client"], row["dispatched"], row["ended"], row["version"]) for row in cut] == [
        (1, 0, 20, 0),
        (1, 20, 40, 2),
    ]


def test_a_stop_is_a_message_that_takes_the_latency() -> None:
    book = _stopped(latency_s=1.0, until_s=30)
    # Client 0 needs 12 s per update; the message of 24 s arrives at 25 s, and the next work begins then.
    (cut,) = [row for row in book.rows if book.outcomes()[row["dispatch_id"]] == "cut"]
    assert (cut["dispatched"], cut["downloaded"], cut["ended"], cut["compute"]) == (0, 1, 25, 24)
    # 2 W while computing; the latency of the download takes 1 W.
    assert cut["energy"] == pytest.approx(24 * 2.0 + 1.0)
    (again,) = [row for row in book.rows if row["client"] == 1 and row["sequence"] == 1]
    assert (again["dispatched"], again["version"]) == (25, 2)


def test_an_update_on_its_way_when_the_message_is_sent_arrives_and_is_ignored() -> None:
    # Client 1 arrives at 24.5, half a second after the message of version 2 was sent and before it is there.
    book = simulate(
        step_s=[1.0, 2.25],
        schedule={"name": "ringmaster", "threshold": 2, "stale": "stop"},
        bytes_down=0.0,
        bytes_up=0.0,
        steps=10,
        latency_s=1.0,
        until_s=25.5,
    )
    outcome = {(row["client"], row["sequence"]): row for row in book.rows}[(1, 0)]
    assert book.outcomes()[outcome["dispatch_id"]] == "discarded"
    assert outcome["arrived"] == 24.5
