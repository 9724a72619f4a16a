"""Courses: their pieces one after another, by hand."""

from __future__ import annotations

import math

import pytest

from fedsim.network.transport import Course, Piece
from fedsim.units import NEVER

BPS = 8e9  # one byte per nanosecond


def carry(piece: Piece) -> int:
    """One byte per nanosecond, or the limit of the piece if that is slower."""
    return piece.start_ns + round(piece.size_bytes * 8e9 / min(BPS, piece.limit_bps))


def carried(piece: Piece, until_ns: int) -> float:
    return (until_ns - piece.start_ns) * min(BPS, piece.limit_bps) / 8e9


def test_without_windows_all_bytes_leave_after_the_set_up() -> None:
    assert Course(100.0, setup_ns=7).end_ns(1000, carry) == 1000 + 7 + 100


def test_a_window_waits_for_its_round() -> None:
    # 10 bytes at 0, 20 at 50, 40 at 100, the last 30 at 150.
    course = Course(100.0, windows_bytes=(10, 20, 40, 30), round_ns=50)
    assert course.end_ns(0, carry) == 180


def test_a_queue_that_others_fill_makes_rounds_longer() -> None:
    """At half the rate: 10 bytes at 0, 20 at 100 (50 and 50 in the queue), 70 at 200, which take 140."""
    course = Course(100.0, windows_bytes=(10, 20, 70), round_ns=50, rate_bps=BPS, queue_ns=50)
    slow = Course(100.0, windows_bytes=(10, 20, 70), round_ns=50)
    assert course.end_ns(0, lambda piece: piece.start_ns + round(2 * piece.size_bytes)) == 340
    assert slow.end_ns(0, lambda piece: piece.start_ns + round(2 * piece.size_bytes)) == 240
    assert course.end_ns(0, carry) == slow.end_ns(0, carry) == 170


def test_windows_longer_than_a_round_leave_no_gap() -> None:
    # 10 bytes at 0, 60 at 50 until 110; from then on the link is never idle.
    course = Course(1000.0, windows_bytes=(10, 60, 120, 240, 480, 90), round_ns=50)
    assert course.end_ns(0, carry) == 50 + 990


def test_stages_follow_the_windows_at_their_rates() -> None:
    stages = ((30.0, BPS / 2), (60.0, BPS / 3))
    course = Course(100.0, windows_bytes=(10,), round_ns=50, stages=stages, pause_ns=5)
    assert course.end_ns(0, carry) == 5 + 50 + 2 * 30 + 3 * 60
    assert course.sent_by(0, 5 + 50 + 60 + 90, carry, carried) == 10 + 30 + 30


@pytest.mark.parametrize(
    ("until_ns", "sent"), [(0, 0), (5, 5), (30, 10), (50, 10), (60, 20), (75, 30), (999, 100)]
)
def test_bytes_sent_by_an_instant(until_ns: int, sent: float) -> None:
    course = Course(100.0, windows_bytes=(10, 20, 40, 30), round_ns=50)
    assert course.sent_by(0, until_ns, carry, carried) == sent


def test_a_transfer_of_no_bytes_waits_for_the_connection() -> None:
    assert Course(0.0, setup_ns=40).end_ns(0, carry) == 40


def test_links_that_are_down_never_end_it() -> None:
    course = Course(100.0, windows_bytes=(10, 90), round_ns=50)
    assert course.end_ns(0, lambda piece: NEVER) == NEVER
    assert course.alone_s(0.0) == math.inf


def test_alone_is_the_time_at_a_constant_rate() -> None:
    course = Course(100.0, windows_bytes=(10, 20, 40, 30), round_ns=50)
    assert course.alone_s(BPS) == 180e-9
