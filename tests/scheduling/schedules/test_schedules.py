"""Schedules by hand, by brute force and by the bounds of their papers; by default every dispatch is 10 steps."""

import heapq
import itertools
import math
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.scheduling.base import Demands
from fedsim.scheduling.schedules.trials import allocated
from fedsim.vocabulary.outcomes import Outcome
from tests.scheduling.worlds import NO_NETWORK, play
from tests.simulation.harness import Book, online, simulate

QUORUM = {"name": "sync", "quorum": 2}
TRIALS = {"name": "mindflayer", "limit": "20s"}


# -- worlds ------------------------------------------------------------------------------------------------------------


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


def apart(times: list[int]) -> list[float]:
    """Up to six times, changed a little, so that few multiples of them coincide."""
    return [
        time + offset * 1e-5
        for time, offset in zip(times, (1, 7.3, 3.1, 9.7, 5.9, 2.3), strict=False)
    ]


@pytest.mark.parametrize(
    ("step_s", "schedule", "world", "expected"),
    [
        # A client may stand in a buffer twice.
        ([1, 5], {"name": "buffered", "buffer_size": 3}, {}, [(30, [0, 0, 0], [0, 0, 0])]),
        # A quorum is followed by a time of grace, which the deadline may end.
        ([1, 1.5, 2, 4], QUORUM | {"grace": "0s"}, {}, [(15, [0, 1], [0, 0])]),
        ([1, 1.5, 2, 4], QUORUM | {"grace": "5s"}, {}, [(20, [0, 1, 2], [0, 0, 0])]),
        ([1, 1.5, 2, 4], QUORUM | {"grace": "30s"}, {}, [(40, [0, 1, 2, 3], [0] * 4)]),
        (
            [1, 1.5, 2, 4],
            QUORUM | {"grace": "30s", "deadline": "25s"},
            {},
            [(25, [0, 1, 2], [0, 0, 0]), (45, [0, 1, 2], [0, 0, 0])],
        ),
        # Two warm-up rounds of the clients that are online first, then a window that waits for the third.
        (
            [1, 2, 1],
            {"name": "window", "length": 30, "warm_up": 2},
            {"availability": online(ALWAYS, ALWAYS, [(70, 1e6)])},
            [(20, [0, 1], [0, 0]), (40, [0, 1], [0, 0]), (80, [0, 1, 2], [0, 0, 0])],
        ),
        # A round of the warm-up does without clients that drop out.
        (
            [1, 2],
            {"name": "window", "warm_up": 1},
            {"availability": online(ALWAYS, [(0, 15), (60, 1e6)])},
            [(15, [0], [0]), (80, [0, 1], [0, 0])],
        ),
        # One step per dispatch, so that the expected duration is true: half of the clients have time for it.
        ([1, 1.5, 2, 4], {"name": "timely"}, {"steps": 1}, [(1.5, [0, 1], [0, 0])]),
        # Malenia with S = 3 and n = 2: 2 / (1/1 + 1/1) = 1 < 3/2 when client 1 arrives for the first time, with 2
        # updates of client 0: 2 / (1/2 + 1) = 4/3 < 3/2; with 3 of client 0, 2 / (1/3 + 1) = 3/2. Client 1 worked on a
        # stale update until 50; then 55 and 60 of client 0 do not suffice without it.
        (
            [1, 2.5],
            {"name": "malenia", "batch": 3},
            {},
            [(30, [0, 0, 1, 0], [0] * 4), (75, [0, 0, 0, 0, 1], [0] * 5)],
        ),
        (
            [1, 1.5, 4],
            {"name": "malenia", "batch": 3},
            {},
            [(40, [0, 1, 0, 1, 0, 2], [0] * 6)],
        ),
        # The harness expects one step's time: limits of 15 s and 30 s for dispatches of 10 s and 20 s.
        (
            [1, 2],
            {"name": "mindflayer", "limit_factor": 15},
            {},
            [(20, [0, 1], [0, 0]), (40, [0, 1], [0, 0])],
        ),
        # Client 1 has no trial in 20 s, or is never expected to end one.
        (
            [1, 2],
            {"name": "mindflayer", "limit_factor": 15, "horizon": "20s"},
            {},
            [(10, [0], [0])],
        ),
        *(
            (
                [1, 2],
                {"name": "mindflayer", "limit_factor": 1, **horizon},
                {"expected_s": [10, math.inf]},
                [(10, [0], [0])],
            )
            for horizon in ({}, {"horizon": "10s"})
        ),
        # A trial ends when the message to stop it arrives.
        ([1, 10], TRIALS, {"latency_s": 1}, [(21, [0], [0])]),
        # A client that goes offline has failed its trial.
        (
            [1, 1.5],
            TRIALS,
            {"availability": online(ALWAYS, [(0, 12), (13, 1e6)])},
            [(12, [0], [0]), (28, [0, 1], [0, 0])],
        ),
        # One that stays offline fails it at the limit; in the second round it has 18 of the 20 s left at its check-in.
        (
            [1, 1.5],
            TRIALS,
            {"availability": online(ALWAYS, [(22, 1e6)])},
            [(20, [0], [0]), (37, [0, 1], [0, 0])],
        ),
        ([5, 1, 4, 2, 3], {"name": "tiered", "tiers": 2}, {}, [(30, [1, 3, 4], [0] * 3)]),
    ],
)
def test_versions_by_hand(
    step_s: list[float],
    schedule: dict[str, Any],
    world: dict[str, Any],
    expected: list[tuple[float, list[int], list[int]]],
) -> None:
    book = run(step_s, schedule, rounds=len(expected), **world)
    assert versions(book) == expected


@pytest.mark.parametrize(
    ("schedule", "world", "message"),
    [
        ({"name": "window", "length": 20, "deadline": 10}, {}, "shorter than the shortest"),
        (
            {"name": "sync", "min_updates": 3},
            {"selection": {"name": "uniform", "cohort": 2}},
            "3 updates",
        ),
        (
            {"name": "sync"},
            {"selection": {"name": "bernoulli", "allow_empty": True}},
            "fewer updates",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    schedule: dict[str, Any], world: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run([1.0] * 3, schedule, rounds=1, **world)


@pytest.mark.parametrize(
    ("name", "params", "demands"),
    [
        ("sync", {}, Demands(cohort=1)),
        (
            "sync",
            {"deadline": 60, "over_selection": 1.5, "min_updates": 3, "min_cohort": 4},
            Demands(updates=3, limit_s=60.0, over_selection=1.5, cohort=4),
        ),
        ("async", {"concurrency": 5}, Demands(concurrency=5)),
        ("buffered", {"buffer_size": 7, "timeout": "2min"}, Demands(updates=7, limit_s=120.0)),
    ],
)
def test_demands_of_a_schedule(name: str, params: dict[str, Any], demands: Demands) -> None:
    kind = CATALOG.parts("schedule")[name]
    assert kind.demands(kind.Params(**params)) == demands


# -- asynchronous ------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    step_s=st.lists(st.floats(0.01, 50.0), min_size=2, max_size=8),
    places=st.integers(1, 8),
    arrivals=st.integers(1, 60),
    rate=st.floats(1e5, 1e9),
    latency=st.floats(0.0, 2.0),
    cv=st.sampled_from([0.0, 0.8]),
    shared=st.booleans(),
)
def test_the_mean_delay_is_concurrency_minus_one(
    step_s: list[float],
    places: int,
    arrivals: int,
    rate: float,
    latency: float,
    cv: float,
    shared: bool,
) -> None:
    """With n updates always under way, each version ages the n - 1 others, whatever the speeds and links.

    So the delays of the updates that have arrived, and those of the n under way, add up to (n - 1) per version, and the
    mean delay is n - 1 (the discrete Little's law of arXiv:2502.08206).
    """
    places = min(places, len(step_s))
    book = simulate(
        step_s=step_s,
        schedule={"name": "async", "concurrency": places},
        selection={"name": "uniform"},
        arrivals=arrivals,
        down_bps=rate,
        up_bps=rate,
        latency_s=latency,
        compute={"jitter": {"cv": cv}},
        shared=shared,
        server_up_bps=2 * rate,
    )
    arrived = [row["staleness"] for row in book.rows if row["outcome"] == Outcome.AGGREGATED]
    ages = [arrivals - row["version"] for row in book.rows if row["outcome"] != Outcome.AGGREGATED]
    assert (len(arrived), len(ages)) == (arrivals, places)
    assert sum(arrived) + sum(ages) == (places - 1) * arrivals


# -- tiered ------------------------------------------------------------------------------------------------------------


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


# -- timely ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "length_s", "steps"), [(0.25, 1.2, [10, 6, 5, 2]), (0.5, 1.7, [15, 10, 7, 3])]
)
def test_steps_fit_into_the_round(share: float, length_s: float, steps: list[int]) -> None:
    # Ten steps, and 0.2 s of transfers, which leave 1 or 1.5 s of the round.
    step_s = [0.1, 0.15, 0.2, 0.4]
    kept = []
    book = run(
        step_s,
        {"name": "timely", "share": share},
        rounds=1,
        observe=lambda schedule, server: kept.append(schedule),
        until_s=1000,
        expected_s=[10 * each + 0.2 for each in step_s],
    )
    assert [row["steps_assigned"] for row in sorted(book.rows, key=lambda r: r["client"])] == steps
    (schedule,) = kept
    assert schedule.limit_s(range(4)) == length_s


# -- ata ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=4), st.integers(1, 7))
def test_the_allocation_ends_as_early_as_possible(times: list[float], tasks: int) -> None:
    counts = allocated(np.array(times), tasks)
    assert sum(counts) == tasks
    ends = min(
        max(count * time for count, time in zip(each, times, strict=True))
        for each in itertools.product(range(tasks + 1), repeat=len(times))
        if sum(each) == tasks
    )
    assert max(count * time for count, time in zip(counts, times, strict=True)) == ends


def test_rounds_by_hand() -> None:
    # Nothing is known in round 1: two tasks each of 1, 2 and 6 s. With spread 0, round 2 then trusts these times:
    # (4, 2, 0) ends after 4 s.
    book = run([1.0, 2.0, 6.0], {"name": "ata", "tasks": 6, "spread": 0}, rounds=2)
    assert versions(book) == [(12, [0, 1, 2], [0, 0, 0]), (16, [0, 1], [0, 0])]
    assert [(row["client"], row["steps_done"]) for row in book.rows] == [
        (0, 2),
        (1, 2),
        (2, 2),
        (0, 4),
        (1, 2),
    ]


@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_lower_bounds(spread: float) -> None:
    kept = []
    run(
        [1.0, 2.0, 6.0],
        {"name": "ata", "tasks": 6, "spread": spread},
        rounds=1,
        observe=lambda schedule, server: kept.append(schedule),
    )
    (schedule,) = kept
    assert schedule._rounds == 1
    surprise = math.log(2) / 2
    width = 2 * spread * max(math.sqrt(surprise), surprise)
    assert schedule.lower_bounds_s() == pytest.approx(np.array([1.0, 2.0, 6.0]) * max(1 - width, 0))


# -- rennala -----------------------------------------------------------------------------------------------------------


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


# -- ringmaster --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "limit"),
    [
        ({"threshold": 10**9}, None),
        ({"threshold": 10**9, "stale": "stop"}, None),
        ({"threshold": 2}, 1),
        # By default, the threshold is the number of clients at work.
        ({}, 2),
    ],
)
def test_ringmaster_is_the_asynchronous_schedule_without_old_updates(
    schedule: dict[str, Any], limit: int | None
) -> None:
    limited = {"name": "async", "next_client": "same", "max_staleness": limit}
    ringmaster, asynchronous = (
        run([1.0, 1.7, 4.1], one, until_s=300)
        for one in ({"name": "ringmaster", **schedule}, limited)
    )
    assert versions(ringmaster) == versions(asynchronous)


def test_ignored_work_is_not_stopped_where_there_is_a_timeout() -> None:
    schedule = {"name": "ringmaster", "threshold": 2}
    plain, limited = (
        run([1.0, 4.5], schedule | timeout, until_s=100) for timeout in ({}, {"timeout": "60s"})
    )
    assert "discarded" in plain.outcomes().values()
    assert limited.outcomes() == plain.outcomes()


STOPS = {"name": "ringmaster", "threshold": 2, "stale": "stop"}


def test_old_work_is_stopped_and_starts_again() -> None:
    book = run([1.0, 4.5], STOPS, until_s=50)
    # Versions 2 and 4 make the work of client 1 two versions old, at 20 and 40.
    assert [version[:2] for version in versions(book)] == [(t, [0]) for t in (10, 20, 30, 40, 50)]
    cut = [row for row in book.rows if book.outcomes()[row["dispatch_id"]] == "cut"]
    assert [(row["client"], row["dispatched"], row["ended"], row["version"]) for row in cut] == [
        (1, 0, 20, 0),
        (1, 20, 40, 2),
    ]


def test_a_stop_is_a_message_that_takes_the_latency() -> None:
    book = run([1.0, 4.5], STOPS, latency_s=1.0, until_s=30)
    # Client 0 needs 12 s per update; the message of 24 s arrives at 25 s, and the next work begins then.
    (cut,) = [row for row in book.rows if book.outcomes()[row["dispatch_id"]] == "cut"]
    assert (cut["dispatched"], cut["downloaded"], cut["ended"], cut["compute"]) == (0, 1, 25, 24)
    # 2 W while computing; the latency of the download takes 1 W.
    assert cut["energy"] == pytest.approx(24 * 2.0 + 1.0)
    (again,) = [row for row in book.rows if row["client"] == 1 and row["sequence"] == 1]
    assert (again["dispatched"], again["version"]) == (25, 2)


def test_an_update_on_its_way_when_the_message_is_sent_arrives_and_is_ignored() -> None:
    # Client 1 arrives at 24.5, half a second after the message of version 2 was sent and before it is there.
    book = run([1.0, 2.25], STOPS, latency_s=1.0, until_s=25.5)
    outcome = {(row["client"], row["sequence"]): row for row in book.rows}[(1, 0)]
    assert book.outcomes()[outcome["dispatch_id"]] == "discarded"
    assert outcome["arrived"] == 24.5


# -- ringleader --------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5, unique=True))
def test_versions_against_the_algorithm(times: list[int]) -> None:
    taus = apart(times)
    count = len(taus)
    events = [(tau, client, 0) for client, tau in enumerate(taus)]
    heapq.heapify(events)
    version, kept, due, expected = 0, [], set(), []
    while len(expected) < 4 * count:
        now, client, begun = heapq.heappop(events)
        if client in due:
            due.remove(client)
            expected.append([(client, version - begun)])
            version += 1
        else:
            kept.append((client, begun))
            if not due and {each for each, _ in kept} == set(range(count)):
                expected.append([(each, version - since) for each, since in kept])
                version += 1
                kept, due = [], set(range(count)) - {client}
        heapq.heappush(events, (now + taus[client], client, version))
    book = run(taus, {"name": "ringleader"}, steps=1, rounds=4 * count)
    made = [
        [(item.client, book.row(item.dispatch_id)["version"]) for item in aggregate.contributions]
        for aggregate in book.aggregates
    ]
    delays = [
        [(client, index - begun) for client, begun in contributions]
        for index, contributions in enumerate(made)
    ]
    assert delays == expected
    # The bound of the paper; the delay of a gradient grows while its entry is used, until its round ends.
    assert max(delay for each in delays for _, delay in each) <= 2 * count - 2 or count == 1


# -- mindflayer --------------------------------------------------------------------------------------------------------


def test_every_client_has_its_trials() -> None:
    book = run(
        [1.0, 1.5, 10.0], {"name": "mindflayer", "limit": "20s", "horizon": "40s"}, until_s=60
    )
    # Two trials each: 10 and 20, 15 and 30; those of client 2 are stopped at 20 and 40.
    assert versions(book) == [(40, [0, 1, 0, 1], [0, 0, 0, 0])]
    assert [row["ended"] for row in book.rows if row["client"] == 2][:2] == [20, 40]
    assert [book.outcomes()[row["dispatch_id"]] for row in book.rows if row["client"] == 2][:2] == [
        "cut",
        "cut",
    ]


@pytest.mark.parametrize("detection", [0.0, 100.0, "never"])
def test_a_failure_that_the_server_has_not_noticed_is_a_failed_trial(detection: object) -> None:
    # Client 1 leaves at 5 s in the middle of its first trial, which ends at the limit of 20 s.
    book = run(
        [1.0, 1.5],
        TRIALS,
        availability=online(ALWAYS, [(0.0, 5.0), (15.0, 1e6)]),
        failure_detection=detection,
        rounds=3,
    )
    # It is back at 15 s, and needs 15 s for a trial.
    times_s = [10, 30, 45] if detection == 0.0 else [20, 35, 50]
    assert [time for time, *_ in versions(book)] == times_s


@pytest.mark.parametrize("late_s", [0.5, 1.5])
def test_an_update_after_its_limit_does_not_count(late_s: float) -> None:
    # The latency is 1 s: the update arrives half a second after the limit, or is stopped before.
    step_s = (20.0 - 2.0 + late_s) / 10
    book = run([1.0, step_s], TRIALS, latency_s=1.0, rounds=1)
    assert versions(book) == [(20 + min(late_s, 1.0), [0], [0])]
    assert book.outcomes()[1] == ("discarded" if late_s < 1 else "cut")


# -- compass -----------------------------------------------------------------------------------------------------------


def test_defaults_of_the_bounds() -> None:
    world = play([1.0, 1.0], steps=50, schedule={"name": "compass"}, until_s=100)
    assert [row["steps_assigned"] for row in world.book.rows if row["sequence"] < 2] == [
        10,
        10,
        50,
        50,
    ]
