"""Hand-worked runs: three clients, whole seconds, every time on paper."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.simulation.book_table import table
from tests.simulation.harness import online, simulate

SCRIPT = {"name": "scripted", "rounds": [[0, 1, 2]]}


def test_a_round_waits_for_its_slowest_client() -> None:
    """Download 1 s, 10 steps of 1, 2 and 3 s, upload 1 s: arrivals at 12, 22 and 32 s."""
    book = simulate(step_s=[1, 2, 3], selection=SCRIPT, rounds=2)
    assert [book.row(i)["arrived"] for i in range(3)] == [12.0, 22.0, 32.0]
    assert [book.row(i)["downloaded"] for i in range(3)] == [1.0, 1.0, 1.0]
    assert [book.row(i)["computed"] for i in range(3)] == [11.0, 21.0, 31.0]
    assert [aggregate.time_s for aggregate in book.aggregates] == [32.0, 64.0]
    assert [c.client for c in book.aggregates[0].contributions] == [0, 1, 2]
    assert [book.row(i)["dispatched"] for i in range(3, 6)] == [32.0] * 3
    assert [book.row(i)["version"] for i in range(3, 6)] == [1] * 3


def test_latency_is_paid_in_both_directions() -> None:
    """Latency 0.5 s: 0.5 + 1 down, 10 steps of 1 s, 0.5 + 1 up."""
    book = simulate(
        step_s=[1], selection={"name": "scripted", "rounds": [[0]]}, latency_s=0.5, rounds=1
    )
    assert book.row(0)["downloaded"] == 1.5
    assert book.row(0)["computed"] == 11.5
    assert book.row(0)["arrived"] == 13.0


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


def test_a_drop_while_computing_counts_the_whole_steps_done() -> None:
    """Steps of 2 s from 1 s on; gone at 8 s: three whole steps."""
    book = simulate(
        step_s=[2],
        selection={"name": "scripted", "rounds": [[0]]},
        availability=online([(0.0, 8.0)]),
        rounds=1,
    )
    assert (book.row(0)["steps_done"], book.row(0)["bytes_up"]) == (3, 0)
    assert book.row(0)["ended"] == 8.0


def test_a_drop_in_mid_download_counts_the_bytes_that_came() -> None:
    """A quarter of the download of 1 s has come when the client leaves."""
    book = simulate(
        step_s=[2],
        selection={"name": "scripted", "rounds": [[0]]},
        availability=online([(0.0, 0.25)]),
        rounds=1,
    )
    assert book.row(0)["bytes_down"] == 250_000
    assert math.isnan(book.row(0)["downloaded"])


def test_an_upload_that_ends_as_the_client_leaves_has_arrived() -> None:
    """Online until exactly 12 s, which is when the last byte arrives."""
    book = simulate(
        step_s=[1],
        selection={"name": "scripted", "rounds": [[0]]},
        availability=online([(0.0, 12.0)]),
        rounds=1,
    )
    assert book.outcomes() == {0: "aggregated"}


def test_an_update_that_arrives_at_the_deadline_is_in_time() -> None:
    """Deadline 22 s: clients 0 (12 s) and 1 (22 s) are in time, client 2 (32 s) is late."""
    book = simulate(
        step_s=[1, 2, 3],
        selection=SCRIPT,
        schedule={"name": "sync", "deadline": 22, "pause": 1000},
        until_s=500,
    )
    assert book.outcomes() == {0: "aggregated", 1: "aggregated", 2: "late"}
    assert book.aggregates[0].time_s == 22.0
    assert book.row(2)["arrived"] == 32.0


def test_stragglers_can_be_cut_at_the_deadline() -> None:
    """At 22 s client 2 is stopped: 7 steps of 3 s since 1 s are done, and nothing was sent."""
    book = simulate(
        step_s=[1, 2, 3],
        selection=SCRIPT,
        schedule={"name": "sync", "deadline": 22, "stragglers": "cut"},
        rounds=1,
    )
    assert book.outcomes()[2] == "cut"
    assert (book.row(2)["steps_done"], book.row(2)["bytes_up"], book.row(2)["ended"]) == (
        7,
        0,
        22.0,
    )


def test_over_selection_closes_the_round_with_the_plain_cohort() -> None:
    """Cohort 2 x 1.5 = 3 dispatched; the round closes with the second arrival at 22 s."""
    book = simulate(
        step_s=[1, 2, 3],
        selection={"name": "uniform", "cohort": 2},
        schedule={"name": "sync", "over_selection": 1.5, "pause": 1000},
        until_s=500,
    )
    assert sorted(book.outcomes().values()) == ["aggregated", "aggregated", "late"]
    assert book.aggregates[0].time_s == 22.0


def test_too_few_updates_fail_the_round() -> None:
    """Two updates by the deadline, but three are wanted: both are discarded, the model stays."""
    book = simulate(
        step_s=[1, 2, 3],
        selection=SCRIPT,
        schedule={"name": "sync", "deadline": 22, "min_updates": 3, "pause": 1000},
        until_s=500,
    )
    assert book.outcomes() == {0: "discarded", 1: "discarded", 2: "late"}
    assert book.aggregates == []


def test_nobody_online_for_two_hours() -> None:
    """Both clients are away from 100 s to 7,300 s: the round that cannot start then starts at 7,300 s."""
    away = [(0.0, 100.0), (7300.0, 1e6)]
    book = simulate(
        step_s=[9, 9], availability=online(away, away), rounds=2, schedule={"name": "sync"}
    )
    # Round 1: 0 to 92 s. Round 2 starts at 92 s, and both drop out at 100 s.
    assert book.outcomes() == {0: "aggregated", 1: "aggregated", 2: "dropped", 3: "dropped"}
    assert [a.time_s for a in book.aggregates] == [92.0]


def test_the_server_waits_until_somebody_is_back() -> None:
    """As above with more rounds: the round after the failed one starts at 7,300 s, when both are back."""
    away = [(0.0, 100.0), (7300.0, 1e6)]
    book = simulate(
        step_s=[9, 9],
        availability=online(away, away),
        until_s=7500,
        schedule={"name": "sync", "min_updates": 1},
    )
    assert [book.row(i)["dispatched"] for i in range(6)] == [0.0, 0.0, 92.0, 92.0, 7300.0, 7300.0]
    assert [a.time_s for a in book.aggregates] == [92.0, 7392.0, 7484.0]


def test_an_offline_client_of_a_script_gets_its_work_when_it_checks_in() -> None:
    """Client 1 is away until 50 s; its work of 12 s begins then."""
    book = simulate(
        step_s=[1, 1],
        selection={"name": "scripted", "rounds": [[0, 1]]},
        availability=online([(0.0, 1e6)], [(50.0, 1e6)]),
        rounds=1,
    )
    assert [book.row(i)["dispatched"] for i in range(2)] == [0.0, 50.0]
    assert book.aggregates[0].time_s == 62.0


def test_a_paused_client_goes_on_when_it_is_back() -> None:
    """Away from 5 to 15 s: 12 s of work end at 22 s."""
    book = simulate(
        step_s=[1],
        selection={"name": "scripted", "rounds": [[0]]},
        availability=online([(0.0, 5.0), (15.0, 1e6)]),
        on_disconnect="pause",
        rounds=1,
    )
    assert (book.row(0)["computed"], book.row(0)["arrived"], book.row(0)["steps_done"]) == (
        21.0,
        22.0,
        10,
    )


def test_a_paused_upload_sends_the_rest() -> None:
    """Away from 11.25 to 20 s: a quarter of the upload was out, the rest takes 0.75 s more."""
    book = simulate(
        step_s=[1],
        selection={"name": "scripted", "rounds": [[0]]},
        availability=online([(0.0, 11.25), (20.0, 1e6)]),
        on_disconnect="pause",
        rounds=1,
    )
    assert book.row(0)["arrived"] == 20.75
    assert book.row(0)["bytes_up"] == 1_000_000


def test_a_finishing_client_computes_offline_and_sends_on_return() -> None:
    """Away from 5 to 40 s: the steps end at 11 s all the same, the upload starts at 40 s."""
    book = simulate(
        step_s=[1],
        selection={"name": "scripted", "rounds": [[0]]},
        availability=online([(0.0, 5.0), (40.0, 1e6)]),
        on_disconnect="finish",
        rounds=1,
    )
    assert (book.row(0)["computed"], book.row(0)["arrived"]) == (11.0, 41.0)


def test_a_leaving_client_sends_its_partial_work_on_return() -> None:
    """Away from 5.5 to 40 s: four whole steps were done, sent at 40 s."""
    book = simulate(
        step_s=[1],
        selection={"name": "scripted", "rounds": [[0]]},
        availability=online([(0.0, 5.5), (40.0, 1e6)]),
        on_disconnect="send_partial",
        rounds=1,
    )
    row = book.row(0)
    assert (row["computed"], row["arrived"], row["steps_done"], row["steps_assigned"]) == (
        5.5,
        41.0,
        4,
        10,
    )
    assert book.outcomes() == {0: "aggregated"}


def test_partial_work_is_sent_in_time_for_the_deadline() -> None:
    """Deadline 22 s, steps of 3 s: the upload must start by 21 s, so 6 steps (1 to 19 s) fit."""
    book = simulate(
        step_s=[1, 2, 3],
        selection=SCRIPT,
        schedule={"name": "sync", "deadline": 22},
        partial_work="send",
        rounds=1,
    )
    assert [book.row(i)["steps_done"] for i in range(3)] == [10, 10, 6]
    assert [book.row(i)["arrived"] for i in range(3)] == [12.0, 22.0, 20.0]
    assert set(book.outcomes().values()) == {"aggregated"}


def test_a_lost_client_is_noticed_after_the_detection_time() -> None:
    """Gone at 8 s, noticed 30 s later: the round closes at 38 s."""
    book = simulate(
        step_s=[1, 2],
        selection={"name": "scripted", "rounds": [[0, 1]]},
        availability=online([(0.0, 1e6)], [(0.0, 8.0)]),
        failure_detection=30.0,
        rounds=1,
    )
    assert book.aggregates[0].time_s == 38.0


def test_the_run_ends_at_its_time_and_counts_what_was_on_the_way() -> None:
    """Until 20 s: client 0 has arrived (12 s), clients 1 and 2 are at work."""
    book = simulate(step_s=[1, 2, 3], selection=SCRIPT, until_s=20)
    assert book.outcomes() == {0: "unfinished", 1: "unfinished", 2: "unfinished"}
    assert book.row(0)["arrived"] == 12.0
    assert [book.row(i)["steps_done"] for i in range(3)] == [10, 9, 6]
    assert book.row(1)["ended"] == 20.0


def test_aggregation_takes_the_servers_time() -> None:
    """Five seconds of aggregation: the next round's work is handed out at 37 s."""
    book = simulate(step_s=[1, 2, 3], selection=SCRIPT, rounds=2, aggregation_time=5.0)
    assert book.row(3)["dispatched"] == 37.0


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


def test_lost_uploads_are_repeated_and_then_given_up() -> None:
    """With loss 1 and two retries three uploads of 1 s go out in vain."""
    book = simulate(
        step_s=[1],
        selection={"name": "scripted", "rounds": [[0]]},
        failures={"upload_loss": 1.0, "upload_retries": 2},
        rounds=1,
    )
    assert book.outcomes() == {0: "dropped"}
    assert (book.row(0)["ended"], book.row(0)["bytes_up"]) == (14.0, 3_000_000)


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
    assert table(book, *columns) == [
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
