"""Rounds within tiers that do not wait for each other."""

from __future__ import annotations

from tests.scheduling.stories import run


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
