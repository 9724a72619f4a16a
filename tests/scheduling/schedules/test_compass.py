"""Groups of clients that arrive together."""

from __future__ import annotations

from tests.scheduling.worlds import play


def test_steps_are_decided_when_the_work_is_handed_out() -> None:
    """With aggregations of 5 s, members get the time that is left when the server is free."""
    world = play(
        [1.0, 2.0],
        schedule={"name": "compass", "min_steps": 20, "max_steps": 100},
        aggregation_time=5.0,
        until_s=60,
    )
    # First updates at 20 s and 40 s; hand-outs at 25 s (group until 125 s) and 45 s: 80 s left, 40 steps.
    assert world.assigned() == [(25, 1, 1, 100), (45, 2, 1, 40)]


def test_defaults_of_the_bounds() -> None:
    world = play([1.0, 1.0], steps=50, schedule={"name": "compass"}, until_s=100)
    assert [row["steps_assigned"] for row in world.book.rows if row["sequence"] < 2] == [
        10,
        10,
        50,
        50,
    ]
