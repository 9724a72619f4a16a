"""Ditto, FedSim, FedPer, LG-FedAvg, FedAlt and FedRep against few-line references from the papers; phases on paper."""

import math
from typing import Any

import numpy as np
import pytest

import fedsim
from tests.devices.worlds import LINKS, STEPS, timing
from tests.methods.driver import FloatArray, Part, Player, quadratic

# Three clients with symmetric matrices that couple all coordinates: u is the first two, v the last.
SAMPLES = np.array([1.0, 2.0, 5.0])
CENTERS = np.array([[1.0, 2.0, 0.0], [-1.0, 0.0, 1.0], [2.0, -1.0, 3.0]])
CURVATURES = np.array(
    [
        [[2.0, 0.5, 0.5], [0.5, 1.0, 0.25], [0.5, 0.25, 1.5]],
        [[1.0, 0.0, 0.5], [0.0, 2.0, -0.5], [0.5, -0.5, 1.0]],
        [[1.5, -0.5, 0.0], [-0.5, 1.0, 0.5], [0.0, 0.5, 2.0]],
    ]
)
START = np.array([0.5, -0.5, 1.0])
U, V = slice(0, 2), slice(2, 3)
LOG = [[(0, 3), (1, 2), (2, 1)], [(2, 3)], [(1, 1), (0, 3)], [(0, 2), (2, 2)]]


def step(i: int, x: FloatArray) -> FloatArray:
    """A change of 0.1 along the gradient of client i."""
    return -0.1 * CURVATURES[i] @ (x - CENTERS[i])


def check(versions: Any, models: Any, method: str, **params: Any) -> None:
    """Compare the shared parts of all versions, and every client's own model in the end."""
    task = quadratic(
        CENTERS.tolist(),
        CURVATURES.tolist(),
        START.tolist(),
        names={"u": 2, "v": 1},
        samples=SAMPLES.astype(int).tolist(),
    )
    player = Player(method, task, lr=0.1, steps=3, **params)
    played = player.play([[Part(*part) for part in round_] for round_ in LOG])
    everybody, learner = np.arange(3), played.learner
    rows = learner.store.rows(everybody)
    actual = learner.station.method.personal_models(learner.server, everybody, rows).numpy()
    shared = played.state("shared" if "shared" in learner.server else "model")
    np.testing.assert_allclose(shared, versions, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(actual, models, rtol=1e-12, atol=1e-13)


def phases(first: float, second: float, steps: int) -> tuple[int, int]:
    """Steps of two phases one after the other, of which ``steps`` of 3 local steps have the time."""
    whole = math.ceil(3 * first), math.ceil(3 * second)
    if steps == 3:
        return whole
    time = math.floor(steps * (first + second))
    return min(time, whole[0]), max(0, time - whole[0])


def mean(ends: list[FloatArray], round_: list[tuple[int, int]], weights: str) -> FloatArray:
    raw = SAMPLES[[i for i, _ in round_]] if weights == "samples" else np.ones(len(round_))
    return raw / raw.sum() @ np.array(ends)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize(("attraction", "ratio"), [(0.0, 1.0), (0.5, 1.0), (2.0, 1.5)])
def test_ditto(attraction: float, ratio: float, weights: str) -> None:
    """Li et al. 2021, Algorithm 1 with FedAvg as solver of the global problem:
    v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w^t))."""
    w, personal = START, [START] * 3
    versions = [w]
    for round_ in LOG:
        ends = []
        for i, steps in round_:
            x, v = w, personal[i]
            on_global, on_personal = phases(1, ratio, steps)
            for _ in range(on_global):
                x = x + step(i, x)
            ends.append(x)
            for _ in range(on_personal):
                v = v + step(i, v) - 0.1 * attraction * (v - w)
            personal[i] = v
        versions.append(w := mean(ends, round_, weights))
    params = {"attraction": attraction, "personal_steps": ratio, "weights": weights}
    check(versions, personal, "ditto", **params)


@pytest.mark.parametrize(
    ("method", "params", "personal", "weights"),
    [
        ("fedsim", {}, V, "uniform"),
        ("fedsim", {"weights": "samples"}, V, "samples"),
        ("fedper", {}, V, "samples"),
        ("lg_fedavg", {}, U, "samples"),
        ("fedsim", {"personal": ["u"]}, U, "uniform"),
    ],
)
def test_joint_training(method: str, params: Any, personal: slice, weights: str) -> None:
    """One gradient step on the whole model; the personal slice stays, the rest is averaged.

    Pillutla et al. 2022, Algorithm 3 (FedSim); Arivazhagan et al. 2019, Algorithms 1 and 2 (FedPer: personal layers
    are the last ones); Liang et al. 2020, Algorithm 1 (LG-FedAvg: they are the first ones).
    """
    models = [START.copy() for _ in range(3)]
    shared = U if personal == V else V
    versions = [s := START[shared]]
    for round_ in LOG:
        for i, steps in round_:
            models[i][shared] = s
            for _ in range(steps):
                models[i] = models[i] + step(i, models[i])
        versions.append(s := mean([models[i][shared] for i, _ in round_], round_, weights))
    for model in models:
        model[shared] = s
    check(versions, models, method, **params)


@pytest.mark.parametrize(
    ("method", "params", "ratio", "weights"),
    [
        ("fedalt", {}, 1.0, "uniform"),
        ("fedalt", {"personal_steps": 2.5, "weights": "samples"}, 2.5, "samples"),
        ("fedrep", {}, 10.0, "uniform"),
        ("fedrep", {"personal_steps": 4}, 4.0, "uniform"),
    ],
)
def test_alternating_training(method: str, params: Any, ratio: float, weights: str) -> None:
    """Pillutla et al. 2022, Algorithm 2 (FedAlt) and Collins et al. 2021, Algorithm 1 (FedRep): first the personal part
    with the received shared one, then the shared part with the new personal one."""
    models = [START.copy() for _ in range(3)]
    versions = [u := START[U]]
    for round_ in LOG:
        for i, steps in round_:
            models[i][U] = u
            on_personal, on_shared = phases(ratio, 1, steps)
            for _ in range(on_personal):
                models[i][V] += step(i, models[i])[V]
            for _ in range(on_shared):
                models[i][U] += step(i, models[i])[U]
        versions.append(u := mean([models[i][U] for i, _ in round_], round_, weights))
    for model in models:
        model[U] = u
    check(versions, models, method, **params)


def test_vector_work_is_counted_against_the_operations_of_a_pass(tmp_path: Any) -> None:
    """1,000 parameters, 16 samples of 9,375 operations: 3,000 operations on 150,000."""
    scenario = timing({"compute": STEPS, "network": LINKS}, clients=1)
    scenario["task"]["flops_per_sample"] = 9375
    scenario["server"]["method"] = {"name": "fedprox", "mu": 0.1}
    row = fedsim.run(scenario, tmp_path / "run").dispatches.iloc[0]
    assert row.computed_s - row.downloaded_s == pytest.approx(5 * 1.02, abs=1e-8)
