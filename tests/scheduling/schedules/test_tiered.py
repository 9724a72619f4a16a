"""Rounds within tiers that do not wait for each other."""

from __future__ import annotations

from tests.scheduling.stories import ALWAYS, run, versions
from tests.simulation.harness import online


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


def test_tiers_are_those_of_clients_online_at_the_start() -> None:
    """With ratio 2 the unreachable client of 1 s would split {1.5, 2.5} s; by those online they are one tier."""
    world = online([(1e5, 1e6)], ALWAYS, ALWAYS)
    for profiled, members in (("online", [1, 2]), ("all", [1])):
        schedule = {"name": "tiered", "profiled": profiled}
        book = run([1.0, 1.5, 2.5], schedule, availability=world, until_s=26)
        first = book.aggregates[0]
        assert sorted(item.client for item in first.contributions) == members


def test_tiers_form_when_the_first_client_comes_online() -> None:
    world = online([(50.0, 1e6)], [(60.0, 1e6)])
    book = run([1.0, 1.5], {"name": "tiered"}, availability=world, until_s=80)
    first = book.aggregates[0]
    assert (first.time_s, len(first.contributions)) == (60, 1)


def test_a_client_that_drops_out_frees_its_tier() -> None:
    book = run(
        [1.0, 1.5],
        {"name": "tiered"},
        availability=online(ALWAYS, [(0.0, 12.0), (50.0, 1e6)]),
        until_s=30,
    )
    # Client 1 is gone at 12 s, after client 0 had arrived: the round ends there with what has come.
    assert versions(book)[:2] == [(12, [0], [0]), (22, [0], [0])]
