"""Hand-worked runs: three clients, whole seconds, every time on paper."""

import math
from typing import Any

import pytest

from tests.simulation.harness import online, simulate

SCRIPT = {"name": "scripted", "rounds": [[0, 1, 2]]}


def test_a_drop_in_mid_upload_loses_the_update_and_keeps_the_books() -> None:
    """Client 1 leaves at 21.5 s, half-way through its upload of 21 to 22 s: half of its bytes had gone out."""
    everlasting = [(0.0, 1e6)]
    book = simulate(
        step_s=[1, 2, 3],
        selection=SCRIPT,
        availability=online(everlasting, [(0.0, 21.5), (100.0, 1e6)], everlasting),
        rounds=1,
    )
    dropped = book.row(1)
    assert book.outcomes() == {0: "aggregated", 1: "dropped", 2: "aggregated"}
    assert (dropped["downloaded"], dropped["computed"], dropped["ended"]) == (1.0, 21.0, 21.5)
    assert math.isnan(dropped["arrived"])
    assert (dropped["steps_done"], dropped["bytes_down"], dropped["bytes_up"]) == (
        10,
        1_000_000,
        500_000,
    )
    # 1 s receiving at 1 W, 20 s computing at 2 W, 0.5 s sending at 3 W
    assert dropped["energy"] == 1.0 + 40.0 + 1.5
    assert book.aggregates[0].time_s == 32.0


def test_the_run_ends_at_its_time_and_counts_what_was_on_the_way() -> None:
    """Until 20 s: client 0 has arrived (12 s), clients 1 and 2 are at work."""
    book = simulate(step_s=[1, 2, 3], selection=SCRIPT, until_s=20)
    assert book.outcomes() == {0: "unfinished", 1: "unfinished", 2: "unfinished"}
    assert book.row(0)["arrived"] == 12.0
    assert [book.row(i)["steps_done"] for i in range(3)] == [10, 9, 6]
    assert book.row(1)["ended"] == 20.0


def test_device_behaviour_does_not_depend_on_the_schedule() -> None:
    """The k-th dispatch of a client takes the same time whatever happened around it."""
    plain = simulate(step_s=[1, 1, 1], selection=SCRIPT, rounds=3, compute={"jitter": {"cv": 0.3}})
    alone = simulate(
        step_s=[1, 1, 1],
        selection={"name": "scripted", "rounds": [[2]]},
        rounds=3,
        compute={"jitter": {"cv": 0.3}},
    )

    def durations(book, client):
        return [
            round(r["computed"] - r["downloaded"], 6) for r in book.rows if r["client"] == client
        ]

    assert durations(plain, 2) == durations(alone, 2)
    assert len(set(durations(plain, 2))) == 3


# -- two events at one instant -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [{"name": "async"}, {"name": "buffered", "buffer_size": 1}],
    ids=["async", "buffered"],
)
def test_a_client_with_work_waiting_is_not_drawn_for_another_place(schedule: Any) -> None:
    """Two places, each kept by its client: client 0 is online in [0, 5) and [50, 100), 1 and 2 in [200, 300).

    A dispatch takes 1 s down, ten steps of 1 s and 1 s up. Client 0 leaves at 5 s and its next work waits for it. At
    50 s the other place looks for a client before that work is handed out, and finds none; at 200 s it does.
    """
    book = simulate(
        step_s=[1, 1, 1],
        availability=online([(0, 5), (50, 100)], [(200, 300)], [(200, 300)]),
        schedule={**schedule, "concurrency": 2, "next_client": "same"},
        until_s=250,
    )
    other = book.row(6)["client"]
    assert other in (1, 2)
    columns = ("client", "version", "dispatched", "arrived", "ended", "steps_done")
    assert book.table(*columns) == [
        (0, 0, 0.0, None, 5.0, 4, "dropped"),
        *((0, i, 50.0 + 12 * i, 62.0 + 12 * i, 62.0 + 12 * i, 10, "aggregated") for i in range(4)),
        (0, 4, 98.0, None, 100.0, 1, "dropped"),
        *(
            (other, 4 + i, 200.0 + 12 * i, 212.0 + 12 * i, 212.0 + 12 * i, 10, "aggregated")
            for i in range(4)
        ),
        (other, 8, 248.0, None, 250.0, 1, "unfinished"),
    ]
    assert [aggregate.time_s for aggregate in book.aggregates] == [
        *(62.0, 74.0, 86.0, 98.0),
        *(212.0, 224.0, 236.0, 248.0),
    ]
