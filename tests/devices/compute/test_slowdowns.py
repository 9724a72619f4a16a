"""Perturbations and replayed contention: exact where they can be worked out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.devices.compute.slowdowns import Slowdown
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table
from tests.devices.compute.population import ONE, context, times
from tests.simulation.harness import online, simulate


def test_a_perturbation_slows_the_steps_it_covers() -> None:
    """Steps of 1 s from 1 s on, half as fast from 4 to 8 s: 3 steps before, 2 within, 5 after: 13 s."""
    book = simulate(
        step_s=[1],
        selection=ONE,
        rounds=1,
        compute={"perturbations": [{"at": 4, "until": 8, "factor": 2}]},
    )
    assert (book.row(0)["computed"], book.row(0)["arrived"]) == (13.0, 14.0)


def test_a_drop_in_a_perturbation_counts_the_slow_steps() -> None:
    """As above and gone at 7 s: 3 steps by 4 s, one and a half of the slow ones by 7 s."""
    book = simulate(
        step_s=[1],
        selection=ONE,
        rounds=1,
        availability=online([(0.0, 7.0)]),
        compute={"perturbations": [{"at": 4, "until": 8, "factor": 2}]},
    )
    assert book.row(0)["steps_done"] == 4


def test_a_pause_in_a_perturbation() -> None:
    """Away from 5 to 7 s: 3 steps by 4 s, half a step by 5, half by 8, and 6 more: 14 s."""
    book = simulate(
        step_s=[1],
        selection=ONE,
        rounds=1,
        availability=online([(0.0, 5.0), (7.0, 1e5)]),
        on_disconnect="pause",
        compute={"perturbations": [{"at": 4, "until": 8, "factor": 2}]},
    )
    assert book.row(0)["computed"] == 14.0
    # 11 s at work at 2 W, a transfer of 1 s at 1 W and one at 3 W
    assert book.row(0)["energy"] == 22.0 + 1.0 + 3.0


def test_a_perturbation_concerns_the_clients_it_names() -> None:
    """Client 1 is ten times as slow from the start."""
    book = simulate(
        step_s=[1, 1],
        selection={"name": "scripted", "rounds": [[0, 1]]},
        rounds=1,
        compute={"perturbations": [{"at": 0, "clients": [1], "factor": 10}]},
    )
    assert [book.row(i)["computed"] for i in range(2)] == [11.0, 101.0]


def test_partial_work_under_a_perturbation() -> None:
    """To send by 8 s, for a deadline of 9 s: 3 steps by 4 s and two slow ones by 8 s."""
    book = simulate(
        step_s=[1],
        selection=ONE,
        rounds=1,
        schedule={"name": "sync", "deadline": 9},
        partial_work="send",
        compute={"perturbations": [{"at": 4, "until": 8, "factor": 2}]},
    )
    assert (book.row(0)["steps_done"], book.row(0)["arrived"]) == (5, 9.0)


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


def test_contention_is_replayed_from_the_bundle() -> None:
    """A device whose series says twice the time from 4 to 8 s, in a trace of 10 s that wraps."""
    bundle = TraceBundle(
        Manifest(name="t", horizon_us=10_000_000, importer="hand", importer_version="1"),
        {
            "devices": make_table(
                "devices",
                {
                    "device_id": ["a"],
                    "window_start_us": [0],
                    "window_end_us": [10_000_000],
                    "valid": [True],
                },
            ),
            "compute_series": make_table(
                "compute_series",
                {
                    "device_id": ["a", "a"],
                    "start_us": [4_000_000, 8_000_000],
                    "dur_us": [4_000_000, 2_000_000],
                    "multiplier": [2.0, 1.0],
                },
            ),
        },
    )
    own = times("values", context(bundle=bundle, device_rows=np.array([0])), step=1)
    assert not own.steady
    # 4 s, 2 s of work in the slow four seconds, 2 s; then again
    assert own.finish(0, 0, 16_000_000_000) == 20_000_000_000
    assert times(
        "values", context(bundle=bundle, device_rows=np.array([0])), step=1, series=False
    ).steady
