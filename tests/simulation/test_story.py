"""Hand-worked runs: three clients, whole seconds, every time on paper."""

import math

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
