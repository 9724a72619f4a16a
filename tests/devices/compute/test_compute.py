"""Compute models: the step times of each, how they vary, and what is refused."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

import fedsim
from fedsim.composition.build import build
from fedsim.devices.compute.base import Perturbation, Stragglers
from fedsim.errors import UserError
from tests.composition.worlds import digits
from tests.devices.worlds import LINKS, context, phones, times, timing
from tests.traces.cases import DAY, bundle_of


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        (Stragglers, {"slowdown_min": 3, "slowdown_max": 2}, "slowdown_max is smaller"),
        (Perturbation, {"at": "2h", "until": "2h", "factor": 2}, "until must come after at"),
    ],
)
def test_spans_in_the_wrong_order_are_refused(
    model: type[BaseModel], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        model(**values)


def test_a_table_of_times_only_cannot_be_asked_for_relative_speeds(tmp_path: Path) -> None:
    columns = {"task": ["*"] * 4, "phase": ["inference"] * 4, "sample_s": [0.1] * 4}
    folder = phones(tmp_path, compute=columns)
    devices = {"trace": folder, "compute": {"reference_step": 1}, "network": LINKS}
    with pytest.raises(UserError, match="has no relative_speed for 4 of 4 clients") as caught:
        build(fedsim.read_scenario(timing(devices)))
    assert "devices.compute.reference_step" in str(caught.value)
    assert "remove it" in str(caught.value)
    devices["compute"] = {"train_factor": 3}
    times = build(fedsim.read_scenario(timing(devices))).population.compute.step_s
    assert times.tolist() == pytest.approx([3 * 16 * 0.1] * 4)
    bundle = phones(tmp_path, "trained", compute={**columns, "phase": ["training"] * 4})
    with pytest.raises(UserError, match="not measured for inference"):
        build(fedsim.read_scenario(timing({**devices, "trace": bundle})))


def test_rows_of_a_task_are_chosen_and_the_first_of_a_device_counts(tmp_path: Path) -> None:
    ids = ["d0", "d1", "d0", "d1"]
    bundle_of(
        {"d0": [(0, DAY)], "d1": [(0, DAY)]},
        tables={
            "compute": {
                "device_id": ids,
                "task": ["cnn", "lstm", "lstm", "cnn"],
                "phase": ["training"] * 4,
                "step_fixed_s": [1.0, None, None, 2.0],
                "sample_s": [0.5, 2.0, 1.0, 0.25],
            }
        },
    ).write(tmp_path / "two")

    def steps(task: str) -> list[float]:
        devices = {"trace": str(tmp_path / "two"), "compute": {"task": task}, "network": LINKS}
        world = timing(devices, clients=2)
        return list(build(fedsim.read_scenario(world)).population.compute.step_s)

    assert steps("cnn") == [1 + 16 * 0.5, 2 + 16 * 0.25]
    assert steps("lstm") == [16 * 1.0, 16 * 2.0]
    assert steps("*") == [1 + 16 * 0.5, 16 * 2.0]


def test_one_time_for_all_clients_or_one_each() -> None:
    assert times("values", context(3), step=0.5).step_s.tolist() == [0.5] * 3
    assert times("values", context(2), step=["1s", "250ms"]).step_s.tolist() == [1.0, 0.25]
    with pytest.raises(UserError, match="2 step times for 3 clients"):
        times("values", context(3), step=[1, 2])


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
    compute = times("flops", context(flops_per_sample=1e6), flops_per_s=1e8, fixed="5ms", sigma=0)
    assert compute.step_s[0] == pytest.approx(0.105)


@pytest.mark.parametrize("file", ["speed.py", "my_flops.py"])
def test_operations_are_counted_for_a_model_that_declares_it_whatever_its_file(
    file: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(
        "from fedsim.devices.compute.known import Flops\n\n\nclass Mine(Flops):\n    name = ''\n"
    )

    def step_s(compute: dict[str, Any]) -> list[float]:
        scenario = digits()
        scenario["devices"]["compute"] = compute
        population = build(fedsim.read_scenario(scenario)).population
        times_s: list[float] = population.compute.step_s.tolist()
        return times_s

    assert step_s({"name": f"{tmp_path / file}:Mine"}) == step_s({"name": "flops"})


def test_step_times_from_relative_speeds(tmp_path: Path) -> None:
    columns = {"task": ["*"] * 4, "phase": ["training"] * 4, "relative_speed": [1.0, 2.0, 0.5, 4.0]}
    folder = phones(tmp_path, compute=columns)

    def steps(compute: dict[str, Any], **task: Any) -> list[float]:
        world = timing({"trace": folder, "compute": compute, "network": LINKS})
        world["task"].update(task)
        times: list[float] = build(fedsim.read_scenario(world)).population.compute.step_s
        return list(times)

    # From a reference time; from 16 samples of 2 GFLOP at 8 GFLOP/s on a device of speed 1, after a fixed second.
    assert steps({"reference_step": "3s"}) == [3.0, 1.5, 6.0, 0.75]
    flops = {"name": "flops", "speed": "bundle", "flops_per_s": 8e9, "fixed": 1}
    assert steps(flops, flops_per_sample=2e9) == [5.0, 2.5, 10.0, 1.25]
    with pytest.raises(UserError, match="it has relative speeds: give") as caught:
        steps({})
    assert str(caught.value).startswith("scenario: devices.compute: the trace bundle ")
    online = {f"d{i}": [(0, DAY)] for i in range(4)}
    of_one = {"device_id": ["d3"], "task": ["*"], "phase": ["training"], "relative_speed": [1.0]}
    bundle_of(online, tables={"compute": of_one}).write(tmp_path / "gaps")
    folder = str(tmp_path / "gaps")
    with pytest.raises(
        UserError,
        match="case has no relative_speed for 3 of 4 clients; the first is client 0, device 'd0'",
    ):
        steps(flops, flops_per_sample=2e9)
    with pytest.raises(UserError, match="no relative_speed for 3 of 4 clients") as caught:
        steps({"reference_step": "3s"})
    assert "use another bundle" in str(caught.value)
    with pytest.raises(UserError, match="train_factor has no effect beside reference_step"):
        steps({"reference_step": "3s", "train_factor": 3})
    with pytest.raises(UserError, match=r"no time of a local step for 4 of 4 clients"):
        steps({})


def test_noise_from_step_to_step_has_its_mean_spread_and_correlation() -> None:
    """20,000 steps of one dispatch: mean factor 1, sd of the logarithm 0.1, lag-1 correlation 0.7."""
    compute = times("values", context(), step=1, step_noise={"sd": 0.1, "correlation": 0.7})
    steps = 20_000
    step_ns = compute.step_ns(0, 0, 0)
    ends = np.array([compute.work_ns(0, 0, step_ns, steps)])
    x = np.log(np.diff(compute._step_ends(0, 0, step_ns, steps), prepend=0) / step_ns)
    assert ends[0] / step_ns / steps == pytest.approx(1.0, abs=0.01)
    assert x.std() == pytest.approx(0.1, abs=0.005)
    assert np.corrcoef(x[:-1], x[1:])[0, 1] == pytest.approx(0.7, abs=0.02)
    assert compute.steps_of(0, 0, step_ns, steps, int(ends[0])) == steps
    assert compute.steps_of(0, 0, step_ns, steps, int(ends[0]) - 1) == steps - 1


def test_jitter_and_stragglers_in_distribution() -> None:
    """Mean 1 and the requested coefficient of variation; the share of stragglers and their mean factor."""
    compute = times("values", context(), step=1, jitter={"cv": 0.2})
    factors = np.array([compute.step_ns(0, k, 0) for k in range(20_000)]) / 1e9
    assert factors.mean() == pytest.approx(1.0, abs=0.005)
    assert factors.std() == pytest.approx(0.2, abs=0.005)
    slow = times("values", context(), step=1, stragglers={"probability": 0.1})
    factors = np.array([slow.step_ns(0, k, 0) for k in range(20_000)]) / 1e9
    assert (factors > 1).mean() == pytest.approx(0.1, abs=0.01)
    assert factors[factors > 1].mean() == pytest.approx(2.75, abs=0.05)
    assert factors.max() <= 4


def test_drift_swings_and_comes_back() -> None:
    """One period apart the factor is the same; over a period it goes both ways by the amplitude."""
    compute = times("values", context(), step=1, drift={"amplitude": 0.3, "period": 1000})
    factors = np.array([compute.step_ns(0, 0, round(t * 1e9)) for t in range(1000)]) / 1e9
    assert (factors.min(), factors.max()) == pytest.approx((0.7, 1.3), abs=1e-3)
    assert compute.step_ns(0, 0, 0) == pytest.approx(compute.step_ns(0, 0, 1000 * 10**9), abs=1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"step": [1.0, 2.0]}, r"2 step times for 1 client\b(?!s)"),
        ({"step": 1.0, "perturbations": [{"at": 0, "clients": [3], "factor": 2}]}, "client 3"),
    ],
)
def test_step_times_that_do_not_fit(params: dict[str, Any], message: str) -> None:
    """One clear error."""
    with pytest.raises(UserError, match=message):
        times("values", context(), **params)
