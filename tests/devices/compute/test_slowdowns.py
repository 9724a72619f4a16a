"""Perturbations and replayed contention: exact where they can be worked out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.devices.compute.slowdowns import Slowdown
from fedsim.devices.compute.times import ComputeTimes
from fedsim.errors import UserError
from fedsim.units import NS_PER_S
from tests.devices.worlds import ONE, context, times
from tests.simulation.harness import online, simulate
from tests.traces.cases import bundle_of

S = 1_000_000
"""Microseconds in a second."""


SLOW = {"perturbations": [{"at": 4, "until": 8, "factor": 2}]}
AWAY = online([(0.0, 5.0), (7.0, 1e5)])


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        # 3 steps before, 2 within, 5 after.
        ({}, {"computed": 13.0, "arrived": 14.0}),
        # Gone at 7 s: 3 steps by 4 s, one and a half of the slow ones by 7 s.
        ({"availability": online([(0.0, 7.0)])}, {"steps_done": 4}),
        # Away from 5 to 7 s: 3 steps by 4 s, half a step by 5, half by 8, and 6 more. 11 s at work at 2 W, one transfer
        # of 1 s at 1 W and one at 3 W.
        (
            {"availability": AWAY, "on_disconnect": "pause"},
            {"computed": 14.0, "energy": 22.0 + 1.0 + 3.0},
        ),
        # To send by 8 s, for a deadline of 9 s: 3 steps by 4 s and two slow ones by 8 s.
        (
            {"schedule": {"name": "sync", "deadline": 9}, "partial_work": "send"},
            {"steps_done": 5, "arrived": 9.0},
        ),
    ],
)
def test_steps_are_half_as_fast_from_4_to_8_s(
    world: dict[str, Any], expected: dict[str, float]
) -> None:
    """10 steps of 1 s from 1 s on."""
    row = simulate(step_s=[1], selection=ONE, rounds=1, compute=SLOW, **world).row(0)
    assert {key: row[key] for key in expected} == expected


def test_a_perturbation_concerns_the_clients_it_names() -> None:
    """Client 1 is ten times as slow from the start."""
    both = {"name": "scripted", "rounds": [[0, 1]]}
    slow = {"perturbations": [{"at": 0, "clients": [1], "factor": 10}]}
    book = simulate(step_s=[1, 1], selection=both, rounds=1, compute=slow)
    assert [book.row(i)["computed"] for i in range(2)] == [11.0, 101.0]


@given(
    edges=st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True).map(sorted),
    factors=st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]), min_size=6, max_size=6),
    start=st.integers(0, 10**6),
    work=st.integers(0, 10**6),
)
def test_work_is_done_when_it_has_been_worked(edges, factors, start, work) -> None:
    """finish and worked are inverse, and work adds up over a split."""
    slowdown = Slowdown(edges, factors[: len(edges)])
    end = slowdown.finish(start, work)
    assert slowdown.worked(start, end) == pytest.approx(work, abs=4)
    middle = (start + end) // 2
    assert slowdown.worked(start, middle) + slowdown.worked(middle, end) == pytest.approx(
        work, abs=4
    )


def test_repeating_contention() -> None:
    """Laps of 10 ns: full speed for 4 ns, a third of it for 6; 20 units of work from 2 on."""
    slowdown = Slowdown([4], [3.0], period_ns=10)
    # 2 by 4, 2 by 10, then 6 a lap: 4 + 2 (20) ... 10 (20), 16 (30), 20 (34)
    assert slowdown.finish(2, 20) == 34
    assert slowdown.worked(2, 34) == 20


def _contended(on_end: str, *pieces: tuple[int, int, float], **population: Any) -> ComputeTimes:
    """One device observed from 100 s to 200 s, with pieces (start, length, factor)."""
    bundle = bundle_of(
        {"a": []},
        on_end=on_end,
        devices={"window_start_us": [100 * S], "window_end_us": [200 * S]},
        tables={
            "compute_series": {
                "device_id": ["a"] * len(pieces),
                "start_us": [start * S for start, _, _ in pieces],
                "dur_us": [length * S for _, length, _ in pieces],
                "multiplier": [factor for _, _, factor in pieces],
            }
        },
    )
    return times("values", context(bundle=bundle, device_rows=np.array([0]), **population), step=1)


def _slow_seconds(on_end: str, offset_s: int, *pieces: tuple[int, int, float]) -> list[int]:
    """Seconds of simulated time, to 250 s, in which work takes longer."""
    slowdowns = _contended(on_end, *pieces, offset_ns=offset_s * NS_PER_S)
    return [
        second
        for second in range(250)
        if slowdowns.worked(0, second * NS_PER_S, (second + 1) * NS_PER_S) < NS_PER_S
    ]


def test_a_piece_of_contention_lasts_as_long_as_it_says() -> None:
    """From 10 to 20 s of a window of 100 s that repeats: a factor of 3 there, and 1 from 20 to 110 s."""
    piece = (110, 10, 3.0)
    assert _slow_seconds("wrap", 100, piece) == [*range(10, 20), *range(110, 120), *range(210, 220)]
    slowdowns = _contended("wrap", piece, offset_ns=100 * NS_PER_S)
    # 10 s before, 10/3 s of work within, and the rest of 20 s after
    assert slowdowns.finish(0, 0, 20 * NS_PER_S) == 20 * NS_PER_S + round((10 - 10 / 3) * NS_PER_S)
    assert not slowdowns.steady


def test_contention_beyond_the_window_follows_the_trace() -> None:
    """Simulated time 0 is 150 s in the trace: the end of the window is at 50 s."""
    pieces = (110, 10, 3.0), (180, 20, 2.0)
    assert _slow_seconds("unavailable", 150, *pieces) == [*range(30, 50)]
    assert _slow_seconds("hold", 150, *pieces) == [*range(30, 250)]
    assert _slow_seconds("wrap", 150, *pieces)[:31] == [*range(30, 50), *range(60, 70), 130]


def test_neighboring_pieces_of_contention_join() -> None:
    assert _slow_seconds("unavailable", 100, (110, 10, 3.0), (120, 5, 2.0)) == [*range(10, 25)]


def test_a_series_of_microseconds_is_refused() -> None:
    """Its changes would be visited one by one."""
    tables = {"device_id": ["a"], "start_us": [0], "dur_us": [1], "multiplier": [2.0]}
    bundle = bundle_of({"a": []}, devices={"window_end_us": [2]}, tables={"compute_series": tables})
    with pytest.raises(UserError, match="the speed of a client repeats every 2 us"):
        times("values", context(bundle=bundle, device_rows=np.array([0])), step=1)


def test_series_can_be_left_out() -> None:
    bundle = bundle_of(
        {"a": []},
        tables={
            "compute_series": {
                "device_id": ["a"], "start_us": [0], "dur_us": [1], "multiplier": [2.0]
            }
        },
    )  # fmt: skip
    one = context(bundle=bundle, device_rows=np.array([0]))
    assert times("values", one, step=1, series=False).steady
