"""Batches of gradients at one model: on paper, by brute force, and the time that the theory predicts."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.stories import apart, run, versions

RENNALA = {"name": "rennala"}


def test_stale_updates_are_ignored_and_their_clients_start_again() -> None:
    book = run([1.0, 1.5], {"name": "rennala", "batch": 3}, until_s=45)
    # 10 and 20 of client 0 with 15 of client 1; the second one of client 1, at 30, began before version 1.
    assert versions(book) == [(20, [0, 1, 0], [0, 0, 0]), (45, [0, 0, 1], [0, 0, 0])]
    (stale,) = [row for row in book.rows if book.outcomes()[row["dispatch_id"]] == "discarded"]
    assert (stale["client"], stale["arrived"], stale["version"], stale["staleness"]) == (
        1,
        30,
        0,
        1,
    )


def test_a_batch_of_one_is_asynchronous_without_stale_updates() -> None:
    world = {"until_s": 200}
    rennala = run([1.0, 1.7, 4.1], {"name": "rennala", "batch": 1}, **world)
    limited = {"name": "async", "max_staleness": 0, "next_client": "same"}
    assert versions(rennala) == versions(run([1.0, 1.7, 4.1], limited, **world))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6, unique=True), st.integers(1, 12))
def test_time_of_a_batch(times: list[int], batch: int) -> None:
    """Exact times by brute force, and the bound of Tyurin and Richtarik (2023, theorem 7.4)."""
    taus = apart(times)
    made = [
        0.0,
        *(v.time_s for v in run(taus, RENNALA | {"batch": batch}, steps=1, rounds=5).aggregates),
    ]
    # A client whose gradient is stale is still busy with it when a version begins.
    free = [0.0] * len(taus)
    for start, end in pairwise(made):
        arrivals = sorted(
            (free[i] + k * tau, i) for i, tau in enumerate(taus) for k in range(1, batch + 1)
        )
        assert end == pytest.approx(arrivals[batch - 1][0], abs=1e-7)
        for i, tau in enumerate(taus):
            done = sum(client == i for _, client in arrivals[:batch])
            free[i] += done * tau
            if free[i] < end - 1e-9:
                free[i] += tau
        rates = list(accumulate(1 / tau for tau in sorted(taus)))
        assert end - start <= 2 * min((batch + m) / rate for m, rate in enumerate(rates, 1)) + 1e-6


@pytest.mark.parametrize("batch", [1, 4, 9])
def test_the_time_of_the_first_batch_is_the_least_one(batch: int) -> None:
    times = [2.0, 3.0, 7.0]
    (version,) = run(times, {"name": "rennala", "batch": batch}, steps=1, rounds=1).aggregates
    counts = [sum(t // each for each in times) for t in range(100)]
    assert version.time_s == next(t for t, count in enumerate(counts) if count >= batch)
