"""A version of every K updates."""

from __future__ import annotations

from tests.scheduling.stories import run, versions


def test_buffers_of_two() -> None:
    """The client that completes the buffer starts from the new version, the other from the old one."""
    book = run([1.0, 1.5], {"name": "buffered", "buffer_size": 2}, until_s=30)
    assert versions(book) == [(15, [0, 1], [0, 0]), (30, [0, 1], [1, 0])]
    handed = {(row["client"], row["dispatched"]): row["version"] for row in book.rows}
    assert handed == {
        (0, 0): 0,
        (1, 0): 0,
        (0, 10): 0,
        (1, 15): 1,
        (0, 20): 1,
        (1, 30): 2,
        (0, 30): 2,
    }


def test_a_client_may_stand_in_a_buffer_twice() -> None:
    book = run([1.0, 5.0], {"name": "buffered", "buffer_size": 3}, until_s=30)
    assert versions(book) == [(30, [0, 0, 0], [0, 0, 0])]
