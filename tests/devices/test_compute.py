"""Step times: exact where they can be worked out, in distribution where they are drawn."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.devices.compute import registry
from fedsim.devices.compute.slowdowns import Slowdown
from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.context import DeviceContext
from fedsim.errors import UserError
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table
from tests.simulation.harness import online, simulate

ONE = {"name": "scripted", "rounds": [[0]]}


def context(clients: int = 1, **changes: Any) -> DeviceContext:
    """A population without a bundle."""
    fields: dict[str, Any] = {
        "clients": clients,
        "seed": 0,
        "folder": Path(),
        "bundle": None,
        "device_rows": np.empty(0, dtype=np.int64),
        "batch_samples": np.full(clients, 10),
        "flops_per_sample": None,
        "eligible": np.ones(clients, dtype=np.bool_),
    }
    return DeviceContext(**{**fields, **changes})


def times(name: str, population: DeviceContext, **params: Any) -> ComputeTimes:
    """Step times of a compute model."""
    model = registry()[name]
    checked = model.Params(**params)
    return ComputeTimes(model(checked, population), checked, population)


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


def test_noise_from_step_to_step_has_its_mean_spread_and_correlation() -> None:
    """20,000 steps of one dispatch: mean factor 1, sd of the logarithm 0.1, lag-1 correlation 0.7."""
    own = times("values", context(), step=1, step_noise={"sd": 0.1, "correlation": 0.7})
    steps = 20_000
    step_ns = own.step_ns(0, 0, 0)
    ends = np.array([own.work_ns(0, 0, step_ns, steps)])
    x = np.log(np.diff(own._step_ends(0, 0, step_ns, steps), prepend=0) / step_ns)
    assert ends[0] / step_ns / steps == pytest.approx(1.0, abs=0.01)
    assert x.std() == pytest.approx(0.1, abs=0.005)
    assert np.corrcoef(x[:-1], x[1:])[0, 1] == pytest.approx(0.7, abs=0.02)
    assert own.steps_of(0, 0, step_ns, steps, int(ends[0])) == steps
    assert own.steps_of(0, 0, step_ns, steps, int(ends[0]) - 1) == steps - 1


def test_jitter_and_stragglers_in_distribution() -> None:
    """Mean 1 and the coefficient of variation asked for; the share of stragglers and their mean factor."""
    own = times("values", context(), step=1, jitter={"cv": 0.2})
    factors = np.array([own.step_ns(0, k, 0) for k in range(20_000)]) / 1e9
    assert factors.mean() == pytest.approx(1.0, abs=0.005)
    assert factors.std() == pytest.approx(0.2, abs=0.005)
    slow = times("values", context(), step=1, stragglers={"probability": 0.1})
    factors = np.array([slow.step_ns(0, k, 0) for k in range(20_000)]) / 1e9
    assert (factors > 1).mean() == pytest.approx(0.1, abs=0.01)
    assert factors[factors > 1].mean() == pytest.approx(2.75, abs=0.05)
    assert factors.max() <= 4


def test_drift_swings_and_comes_back() -> None:
    """One period apart the factor is the same; over a period it goes both ways by the amplitude."""
    own = times("values", context(), step=1, drift={"amplitude": 0.3, "period": 1000})
    factors = np.array([own.step_ns(0, 0, round(t * 1e9)) for t in range(1000)]) / 1e9
    assert (factors.min(), factors.max()) == pytest.approx((0.7, 1.3), abs=1e-3)
    assert own.step_ns(0, 0, 0) == pytest.approx(own.step_ns(0, 0, 1000 * 10**9), abs=1)


def test_redrawn_speeds_stay_until_the_next_draw() -> None:
    """With probability 0.1 a new speed: runs of about ten dispatches, whatever is asked first."""
    params = {"mean": 1, "redraw": 0.1}
    forward, backward = (times("exponential", context(), **params) for _ in range(2))
    there = [forward.step_ns(0, k, 0) for k in range(400)]
    back = [backward.step_ns(0, k, 0) for k in reversed(range(400))]
    assert there == back[::-1]
    assert 20 <= sum(a != b for a, b in itertools.pairwise(there)) <= 60
    assert there[0] == round(forward.step_s[0] * 1e9)


@pytest.mark.parametrize(
    ("name", "params", "mean"),
    [
        ("lognormal", {"median": 1, "sigma": 0.5, "limit": 100}, float(np.exp(0.125))),
        ("normal", {"mean": 2, "cv": 0.3}, 2.0),
        ("exponential", {"mean": 3}, 3.0),
        ("uniform", {"low": 1, "high": 2}, 1.5),
    ],
)
def test_distributions_over_clients(name: str, params: dict[str, float], mean: float) -> None:
    """The mean over 20,000 clients, and a client's draw that does not depend on how many there are."""
    many = times(name, context(20_000), **params).step_s
    assert many.mean() == pytest.approx(mean, rel=0.02)
    assert times(name, context(3), **params).step_s.tolist() == many[:3].tolist()


def test_step_times_from_counted_flops() -> None:
    """10 samples of 1e6 operations at 1e8 a second, plus 5 ms: 105 ms."""
    own = times("flops", context(flops_per_sample=1e6), flops_per_s=1e8, fixed="5ms", sigma=0)
    assert own.step_s[0] == pytest.approx(0.105)


def test_counted_flops_are_needed() -> None:
    """A timing task that does not tell its operations cannot use them."""
    with pytest.raises(UserError, match="flops_per_sample"):
        times("flops", context(), flops_per_s=1e8)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"step": [1.0, 2.0]}, "2 step times for 1 clients"),
        ({"step": 1.0, "perturbations": [{"at": 0, "clients": [3], "factor": 2}]}, "client 3"),
    ],
)
def test_step_times_that_do_not_fit(params: dict[str, Any], message: str) -> None:
    """One clear error."""
    with pytest.raises(UserError, match=message):
        times("values", context(), **params)
