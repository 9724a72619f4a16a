"""Trials with time limits, on paper."""

from __future__ import annotations

import math

import pytest

from tests.scheduling.stories import run, versions
from tests.simulation.harness import online, simulate


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


def test_limits_in_proportion_to_the_expected_duration() -> None:
    # The harness expects one step's time: limits of 15 s and 30 s for dispatches of 10 s and 20 s.
    book = run([1.0, 2.0], {"name": "mindflayer", "limit_factor": 15}, rounds=2)
    assert versions(book) == [(20, [0, 1], [0, 0]), (40, [0, 1], [0, 0])]
    # Client 1 has no trial in 20 s.
    book = run([1.0, 2.0], {"name": "mindflayer", "limit_factor": 15, "horizon": "20s"}, rounds=1)
    assert versions(book) == [(10, [0], [0])]


def test_a_client_that_is_never_expected_to_end_has_no_trial() -> None:
    schedule = {"name": "mindflayer", "limit_factor": 1.0}
    for horizon in ({}, {"horizon": "10s"}):
        book = run([1.0, 2.0], schedule | horizon, rounds=1, expected_s=[10.0, math.inf])
        assert versions(book) == [(10, [0], [0])]


@pytest.mark.parametrize("detection", [0.0, 100.0, "never"])
def test_a_failure_that_the_server_has_not_noticed_is_a_failed_trial(detection: object) -> None:
    # Client 1 leaves at 5 s in the middle of its first trial, which ends at the limit of 20 s.
    book = run(
        [1.0, 1.5],
        {"name": "mindflayer", "limit": "20s"},
        availability=online([(0.0, 1e4)], [(0.0, 5.0), (15.0, 1e4)]),
        failure_detection=detection,
        rounds=3,
    )
    # It is back at 15 s, and needs 15 s for a trial.
    times_s = [10, 30, 45] if detection == 0.0 else [20, 35, 50]
    assert [time for time, *_ in versions(book)] == times_s


def test_a_trial_ends_when_the_message_arrives() -> None:
    book = simulate(
        step_s=[1.0, 10.0],
        schedule={"name": "mindflayer", "limit": "20s"},
        latency_s=1.0,
        bytes_down=0.0,
        bytes_up=0.0,
        rounds=1,
    )
    assert versions(book) == [(21, [0], [0])]


@pytest.mark.parametrize("late_s", [0.5, 1.5])
def test_an_update_after_its_limit_does_not_count(late_s: float) -> None:
    # The latency is 1 s: the update arrives half a second after the limit, or is stopped before.
    step_s = (20.0 - 2.0 + late_s) / 10
    book = simulate(
        step_s=[1.0, step_s],
        schedule={"name": "mindflayer", "limit": "20s"},
        latency_s=1.0,
        bytes_down=0.0,
        bytes_up=0.0,
        rounds=1,
    )
    assert versions(book) == [(20 + min(late_s, 1.0), [0], [0])]
    assert book.outcomes()[1] == ("discarded" if late_s < 1 else "cut")


def test_a_client_that_goes_offline_has_failed_its_trial() -> None:
    book = run(
        [1.0, 1.5],
        {"name": "mindflayer", "limit": "20s"},
        availability=online([(0.0, 1e6)], [(0.0, 12.0), (13.0, 1e6)]),
        rounds=2,
    )
    assert versions(book) == [(12, [0], [0]), (28, [0, 1], [0, 0])]


def test_a_client_that_stays_offline_fails_its_trial_at_the_limit() -> None:
    book = run(
        [1.0, 1.5],
        {"name": "mindflayer", "limit": "20s"},
        availability=online([(0.0, 1e6)], [(22.0, 1e6)]),
        rounds=2,
    )
    # In the second round it has 18 of the 20 s left when it checks in.
    assert versions(book) == [(20, [0], [0]), (37, [0, 1], [0, 0])]
