"""Courses: their pieces one after another, by hand."""

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


# 10 bytes at 0, 20 at 50, 40 at 100, the last 30 at 150.
ROUNDS = Course(100.0, windows_bytes=(10, 20, 40, 30), round_ns=50)
STAGES = ((30.0, BPS / 2), (60.0, BPS / 3))
STAGED = Course(100.0, windows_bytes=(10,), round_ns=50, stages=STAGES, pause_ns=5)


@pytest.mark.parametrize(
    ("course", "start_ns", "end_ns"),
    [
        (Course(100.0, setup_ns=7), 1000, 1000 + 7 + 100),
        (Course(0.0, setup_ns=40), 0, 40),
        (ROUNDS, 0, 180),
        # 10 bytes at 0, 60 at 50 until 110; from then on the link is never idle.
        (Course(1000.0, windows_bytes=(10, 60, 120, 240, 480, 90), round_ns=50), 0, 50 + 990),
        (STAGED, 0, 5 + 50 + 2 * 30 + 3 * 60),
    ],
)
def test_hand_worked_ends(course: Course, start_ns: int, end_ns: int) -> None:
    assert course.end_ns(start_ns, carry) == end_ns
    assert course.alone_s(BPS) == pytest.approx((course.end_ns(0, carry)) / 1e9)


def test_a_queue_that_others_fill_makes_rounds_longer() -> None:
    """At half the rate: 10 bytes at 0, 20 at 100 (50 and 50 in the queue), 70 at 200, which take 140."""
    course = Course(100.0, windows_bytes=(10, 20, 70), round_ns=50, rate_bps=BPS, queue_ns=50)
    slow = Course(100.0, windows_bytes=(10, 20, 70), round_ns=50)
    assert course.end_ns(0, lambda piece: piece.start_ns + round(2 * piece.size_bytes)) == 340
    assert slow.end_ns(0, lambda piece: piece.start_ns + round(2 * piece.size_bytes)) == 240
    assert course.end_ns(0, carry) == slow.end_ns(0, carry) == 170


@pytest.mark.parametrize(
    ("until_ns", "sent"), [(0, 0), (5, 5), (30, 10), (50, 10), (60, 20), (75, 30), (999, 100)]
)
def test_bytes_sent_by_an_instant(until_ns: int, sent: float) -> None:
    assert ROUNDS.sent_by(0, until_ns, carry, carried) == sent
    assert STAGED.sent_by(0, 5 + 50 + 60 + 90, carry, carried) == 10 + 30 + 30


def test_links_that_are_down_never_end_it() -> None:
    course = Course(100.0, windows_bytes=(10, 90), round_ns=50)
    assert course.end_ns(0, lambda piece: NEVER) == NEVER
    assert course.alone_s(0.0) == math.inf
