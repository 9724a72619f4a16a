"""A version of every update."""

from __future__ import annotations

from tests.scheduling.stories import run, versions


def test_every_update_makes_a_version() -> None:
    """Work of 10 s and 25 s; the second client's updates are stale by what the first did meanwhile."""
    book = run([1.0, 2.5], {"name": "async"}, until_s=50)
    assert versions(book) == [
        (10, [0], [0]),
        (20, [0], [0]),
        (25, [1], [2]),
        (30, [0], [1]),
        (40, [0], [0]),
        (50, [1], [2]),
        (50, [0], [1]),
    ]
    assert [row["dispatched"] for row in book.rows if row["client"] == 1] == [0, 25, 50]


def test_updates_of_one_instant_are_handled_in_order_of_dispatching() -> None:
    """Both arrive at 10 s; the second client then starts from version 2, the first from version 1."""
    book = run([1.0, 1.0], {"name": "async"}, until_s=10)
    assert versions(book) == [(10, [0], [0]), (10, [1], [1])]
    again = {row["client"]: row["version"] for row in book.rows if row["dispatched"] == 10}
    assert again == {0: 1, 1: 2}
