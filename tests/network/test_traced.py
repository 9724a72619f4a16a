"""Traced links against hand-worked transfers and against an exact walk over the pieces in rational numbers."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.static import StaticNetwork
from fedsim.network.traced import RateSeries, Ride, TracedNetwork
from fedsim.traces.parameters import OnEnd
from fedsim.units import NEVER
from tests.network.bundles import MB, S, series_of

DOWN, UP = Direction.DOWN, Direction.UP

# 8 Mbit/s for 2 s, an outage of 3 s, 4 Mbit/s for 5 s: 2 + 0 + 2.5 MB in 10 s.
STEPS = [(0, 2, 8e6), (2, 3, 0.0), (5, 5, 4e6)]


def ride(series: int = 0, offset_ns: int = 0, scale: float = 1.0) -> Ride:
    return Ride(np.array([series]), np.array([offset_ns]), np.array([scale]))


def network_of(
    pieces: list[tuple[float, float, float]] = STEPS,
    on_end: OnEnd = "wrap",
    latency_s: float = 0.0,
    **where: Any,
) -> TracedNetwork:
    return TracedNetwork(
        series_of(pieces, on_end), down=ride(**where), up=ride(**where), latency_s=latency_s
    )


@pytest.mark.parametrize(
    ("start_s", "size_mb", "end_s"),
    [
        (0, 1, 1),  # inside the first piece
        (0, 2, 2),  # ends exactly with the piece: the outage is not waited for
        (0, 2.5, 6),  # 2 MB, the outage, 0.5 MB at 0.5 MB/s
        (1, 2, 7),
        (3, 0.5, 6),  # starts in the outage
        (0, 4.5, 10),  # exactly one lap
        (0, 5, 10.5),
        (9, 0.5, 10),
        (9, 2, 11.5),  # over the seam
        (9, 3, 16),  # over the seam and the next outage
        (13, 0.5, 16),  # starts in a later lap
        (0, 9, 20),  # exactly two laps
        (0, 45.25, 100.25),
        (1, 45, 101),
        (4, 4.5, 12),  # the end of the next first piece
    ],
)
def test_hand_worked_ends(start_s: float, size_mb: float, end_s: float) -> None:
    network = network_of()
    assert network.transfer_end_ns(0, DOWN, size_mb * MB, int(start_s * S)) == int(end_s * S)
    assert network.bytes_by(0, DOWN, 1e12, int(start_s * S), int(end_s * S)) == size_mb * MB


def test_cut_off_in_an_outage() -> None:
    network = network_of()
    assert network.bytes_by(0, DOWN, 3 * MB, 1 * S, 4 * S) == 1 * MB
    assert network.bytes_by(0, DOWN, 3 * MB, 3 * S, 4 * S) == 0
    assert network.bytes_by(0, DOWN, 3 * MB, 3 * S, 2 * S) == 0
    assert network.bytes_by(0, DOWN, 3 * MB, 0, 90 * S) == 3 * MB


@pytest.mark.parametrize(
    ("on_end", "offset_s", "size_mb", "end_s"),
    [
        ("hold", 0, 4.5, 10),
        ("hold", 0, 6.5, 14),  # 4 Mbit/s goes on
        ("hold", -1, 3, 3),  # 8 Mbit/s before the start as well
        ("hold", 30, 1, 2),
        ("unavailable", 0, 4.5, 10),
        ("unavailable", 0, 4.6, None),
        ("unavailable", -1, 1, 2),
        ("unavailable", 10, 0.001, None),
        ("error", 0, 4.5, 10),
    ],
)
def test_outside_the_measured_time(
    on_end: OnEnd, offset_s: int, size_mb: float, end_s: float | None
) -> None:
    network = network_of(on_end=on_end, offset_ns=offset_s * S)
    end_ns = network.transfer_end_ns(0, DOWN, size_mb * MB, 0)
    assert end_ns == (NEVER if end_s is None else int(end_s * S))


@pytest.mark.parametrize(("offset_s", "size_mb"), [(0, 4.6), (11, 0.1), (-1, 0.1)])
def test_a_series_that_refuses_to_be_left(offset_s: int, size_mb: float) -> None:
    network = network_of(on_end="error", offset_ns=offset_s * S)
    with pytest.raises(UserError, match="series 'a'"):
        network.transfer_end_ns(0, DOWN, size_mb * MB, 0)
    with pytest.raises(UserError, match="series 'a'"):
        network.bytes_by(0, DOWN, 1e9, 0, 11 * S)


def test_a_series_of_nothing_but_outage_never_delivers() -> None:
    network = network_of([(0, 2, 0.0), (2, 2, 0.0)])
    assert network.transfer_end_ns(0, DOWN, 1, 0) == NEVER
    assert network.transfer_end_ns(0, DOWN, 0, 1) == 1
    assert network_of(scale=0.0).transfer_end_ns(0, DOWN, 1, 0) == NEVER
    assert network_of([(0, 1, 1e-9)]).transfer_end_ns(0, DOWN, 1e12, 0) == NEVER


def test_missing_measurements_carry_the_last_known_rate() -> None:
    gap = network_of([(0, 1, 8e6), (3, 1, 16e6)])  # nothing is known from 1 s to 3 s
    assert gap.transfer_end_ns(0, DOWN, 4 * MB, 0) == int(3.5 * S)
    unknown = network_of([(0, 1, 8e6), (1, 2, float("nan")), (3, 1, 16e6)])
    assert unknown.transfer_end_ns(0, DOWN, 4 * MB, 0) == int(3.5 * S)
    last = network_of([(0, 1, 8e6), (1, 3, float("nan"))])
    assert last.transfer_end_ns(0, DOWN, 9 * MB, 0) == 9 * S
    with pytest.raises(UserError, match="series 'a' has no piece of known rate"):
        network_of([(0, 1, float("nan"))])


def test_work_too_small_for_the_running_sum_still_waits_for_the_outage_to_end() -> None:
    # 1e15 bit have passed when the outage begins; one byte is next to nothing beside them.
    day = 86_400
    network = network_of([(0, 10 * day, 1e10), (10 * day, day, 0.0), (11 * day, day, 8e6)])
    late_ns = network.transfer_end_ns(0, DOWN, 1e-3, int(10.5 * day) * S) - 11 * day * S
    assert 0 < late_ns < 5_000
    almost = 1_250_000_000 * 10 * day * (1 + 1e-14)
    assert network.transfer_end_ns(0, DOWN, almost, 0) == pytest.approx(10 * day * S, rel=1e-12)


def exact_end_s(
    pieces: list[tuple[int, int]], size_bytes: int, start_ms: int, wrap: bool
) -> Fraction | None:
    """Walk piece by piece, (length in ms, rate in bit/s), in rational numbers."""
    bits = Fraction(8 * size_bytes)
    period = sum(length for length, _ in pieces)
    if not any(rate for _, rate in pieces):
        return None
    now = Fraction(start_ms, 1000)
    skip = start_ms % period if wrap else start_ms
    while True:
        for length, rate in pieces:
            if skip >= length:
                skip -= length
                continue
            room = Fraction(length - skip, 1000)
            skip = 0
            if bits <= room * rate:
                return now + bits / rate
            bits -= room * rate
            now += room
        if not wrap:
            return None


LENGTHS_AND_RATES = st.lists(
    st.tuples(st.integers(1, 5000), st.sampled_from([0, 0, 1, 1000, 12_000, 333_333, 10**7])),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=120)
@given(
    pieces=LENGTHS_AND_RATES,
    size_bytes=st.integers(1, 100_000),
    start_ms=st.integers(0, 40_000),
    wrap=st.booleans(),
)
@example(pieces=[(1000, 8000), (1000, 0)], size_bytes=3000, start_ms=0, wrap=True)
@example(pieces=[(1000, 0), (1000, 8000)], size_bytes=1000, start_ms=2500, wrap=True)
def test_ends_agree_with_an_exact_walk(
    pieces: list[tuple[int, int]], size_bytes: int, start_ms: int, wrap: bool
) -> None:
    # Keeps the exact walk short: no more than about a thousand laps.
    period_bits = sum(length * rate for length, rate in pieces) / 1000
    size_bytes = max(1, min(size_bytes, int(period_bits * 125)))
    lengths = np.array([length for length, _ in pieces]) * 1_000_000
    series = RateSeries(
        series=np.zeros(len(pieces), int),
        start_ns=np.concatenate([[0], np.cumsum(lengths)[:-1]]),
        duration_ns=lengths,
        rate_bps=[rate for _, rate in pieces],
        on_end="wrap" if wrap else "unavailable",
        names=["a"],
    )
    network = TracedNetwork(series, down=ride(), up=ride(), latency_s=0)
    start_ns = start_ms * 1_000_000
    end_ns = network.transfer_end_ns(0, DOWN, size_bytes, start_ns)
    exact = exact_end_s(pieces, size_bytes, start_ms, wrap)
    if exact is None:
        assert end_ns == NEVER
        return
    assert abs(end_ns - exact * S) <= 1 + Fraction(1, 10**12) * exact * S
    moved = network.bytes_by(0, DOWN, 2 * size_bytes, start_ns, end_ns)
    assert moved == pytest.approx(size_bytes, abs=max(rate for _, rate in pieces) / 8e9, rel=1e-12)
    assert network.bytes_by(0, DOWN, size_bytes, start_ns, end_ns - 2) <= size_bytes


@given(rate=st.floats(1.0, 1e10), size=st.integers(1, 10**9), start=st.integers(0, 10**15))
def test_a_constant_series_is_a_static_link(rate: float, size: int, start: int) -> None:
    static = StaticNetwork(latency_s=0.01, down_bps=rate, up_bps=rate, clients=1)
    traced = network_of([(0, 7, rate)], on_end="hold", latency_s=0.01)
    wrapped = network_of([(0, 7, rate)], latency_s=0.01)
    end = static.transfer_end_ns(0, DOWN, size, start)
    assert abs(traced.transfer_end_ns(0, DOWN, size, start) - end) <= 1 + 1e-15 * (end - start)
    assert abs(wrapped.transfer_end_ns(0, DOWN, size, start) - end) <= 1 + 1e-12 * (end - start)


@pytest.mark.parametrize(
    ("start_s", "size_mb", "end_s"),
    [
        (0, 4.5, 10),  # one lap of the series
        (0, 6.5, 12),  # and the first piece of the next
        (13, 2, 15),  # the second lap of the device begins at 13 s, in the series' first piece
        (12, 0.5, 13.5),  # the device's lap ends in the outage
        (12, 4.5, 23),
        (0, 65, 129),  # ten laps of 6.5 MB in 13 s each; the last ends before its outage
        (0, 66, 131),
        (26, 6.5, 38),
    ],
)
def test_a_device_that_repeats_starts_its_series_again(
    start_s: float, size_mb: float, end_s: float
) -> None:
    """Laps of 13 s over a series of 10 s: 4.5 MB, then 2 MB in 2 s and 1 s of its outage."""
    where = Ride(np.array([0]), np.array([0]), np.array([1.0]), 13 * S, 0)
    network = TracedNetwork(series_of(STEPS), down=where, up=where, latency_s=0.0)
    end_ns = int(end_s * S)
    assert network.transfer_end_ns(0, DOWN, size_mb * MB, int(start_s * S)) == end_ns
    assert network.bytes_by(0, DOWN, 1e12, int(start_s * S), end_ns) == size_mb * MB


def test_a_lap_that_is_an_outage_never_ends_a_transfer() -> None:
    where = Ride(np.array([0]), np.array([2 * S]), np.array([1.0]), 3 * S, 0)
    network = TracedNetwork(series_of(STEPS), down=where, up=where, latency_s=0.0)
    assert network.transfer_end_ns(0, DOWN, MB, 0) == NEVER
