"""FedSim, FedAlt, FedPer, FedRep, LG-FedAvg and Ditto against few-line references from the original papers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.methods.driver import Part, Player, quadratic

FloatArray = npt.NDArray[np.float64]

SAMPLES = np.array([1.0, 2.0, 5.0])
CENTERS = np.array([[1.0, 2.0, 0.0], [-1.0, 0.0, 1.0], [2.0, -1.0, 3.0]])
# Symmetric matrices that couple all coordinates: u is the first two, v the last.
CURVATURES = np.array(
    [
        [[2.0, 0.5, 0.5], [0.5, 1.0, 0.25], [0.5, 0.25, 1.5]],
        [[1.0, 0.0, 0.5], [0.0, 2.0, -0.5], [0.5, -0.5, 1.0]],
        [[1.5, -0.5, 0.0], [-0.5, 1.0, 0.5], [0.0, 0.5, 2.0]],
    ]
)
START = np.array([0.5, -0.5, 1.0])
U, V = slice(0, 2), slice(2, 3)
RATE = 0.1
LOG = [[(0, 3), (1, 2), (2, 1)], [(2, 3)], [(1, 1), (0, 3)], [(0, 2), (2, 2)]]


def gradient(i: int, x: FloatArray) -> FloatArray:
    return CURVATURES[i] @ (x - CENTERS[i])


def told(method: str, **params: Any) -> tuple[FloatArray, FloatArray]:
    """Shared parts of all versions, and every client's own model in the end."""
    task = quadratic(
        CENTERS.tolist(),
        CURVATURES.tolist(),
        START.tolist(),
        names={"u": 2, "v": 1},
        samples=SAMPLES.astype(int).tolist(),
    )
    player = Player(method, task, lr=RATE, steps=3, **params)
    played = player.play([[Part(*part) for part in round_] for round_ in LOG])
    everybody, learner = np.arange(3), played.learner
    rows = learner.store.rows(everybody)
    models = learner.station.method.personal_models(learner.server, everybody, rows).numpy()
    return played.state("shared" if "shared" in learner.server else "model"), models


def phases(first: float, second: float, steps: int) -> tuple[int, int]:
    """Steps of two phases one after the other, of which ``steps`` of 3 local steps have the time."""
    whole = math.ceil(3 * first), math.ceil(3 * second)
    if steps == 3:
        return whole
    time = math.floor(steps * (first + second))
    return min(time, whole[0]), max(0, time - whole[0])


def share(clients: list[int], weights: str) -> FloatArray:
    raw = SAMPLES[clients] if weights == "samples" else np.ones(len(clients))
    return raw / raw.sum()


def joint(personal: slice, weights: str) -> tuple[FloatArray, FloatArray]:
    """One gradient step on the whole model; the personal slice stays, the rest is averaged.

    Pillutla et al. 2022, Algorithm 3 (FedSim); Arivazhagan et al. 2019, Algorithms 1 and 2 (FedPer: personal layers
    are the last ones); Liang et al. 2020, Algorithm 1 (LG-FedAvg: they are the first ones).
    """
    own = [START.copy() for _ in range(3)]
    shared = np.setdiff1d(np.arange(3), np.arange(3)[personal])
    s = START[shared]
    versions = [s]
    for round_ in LOG:
        ends = []
        for i, steps in round_:
            own[i][shared] = s
            for _ in range(steps):
                own[i] = own[i] - RATE * gradient(i, own[i])
            ends.append(own[i][shared])
        s = share([i for i, _ in round_], weights) @ np.array(ends)
        versions.append(s)
    for model in own:
        model[shared] = s
    return np.array(versions), np.array(own)


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
    versions, own = joint(personal, weights)
    found_versions, found = told(method, **params)
    np.testing.assert_allclose(found_versions, versions, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found, own, rtol=1e-12, atol=1e-13)


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
    u, own = START[U], [START[V]] * 3
    versions = [u]
    for round_ in LOG:
        ends = []
        for i, steps in round_:
            x = np.concatenate([u, own[i]])
            on_personal, on_shared = phases(ratio, 1, steps)
            for _ in range(on_personal):
                x[V] = x[V] - RATE * gradient(i, x)[V]
            for _ in range(on_shared):
                x[U] = x[U] - RATE * gradient(i, x)[U]
            own[i] = x[V].copy()
            ends.append(x[U].copy())
        u = share([i for i, _ in round_], weights) @ np.array(ends)
        versions.append(u)
    found_versions, found = told(method, **params)
    np.testing.assert_allclose(found_versions, versions, rtol=1e-12, atol=1e-13)
    expected = [np.concatenate([u, v]) for v in own]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize(("attraction", "ratio"), [(0.0, 1.0), (0.5, 1.0), (2.0, 1.5)])
def test_ditto(attraction: float, ratio: float, weights: str) -> None:
    """Li et al. 2021, Algorithm 1 with FedAvg as solver of the global problem:
    v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w^t))."""
    w, own = START, [START] * 3
    versions = [w]
    for round_ in LOG:
        ends = []
        for i, steps in round_:
            x = w
            on_global, on_personal = phases(1, ratio, steps)
            for _ in range(on_global):
                x = x - RATE * gradient(i, x)
            ends.append(x)
            for _ in range(on_personal):
                own[i] = own[i] - RATE * (gradient(i, own[i]) + attraction * (own[i] - w))
        w = share([i for i, _ in round_], weights) @ np.array(ends)
        versions.append(w)
    params = {"attraction": attraction, "personal_steps": ratio, "weights": weights}
    found_versions, found = told("ditto", **params)
    np.testing.assert_allclose(found_versions, versions, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found, own, rtol=1e-12, atol=1e-13)


def test_ditto_joins_training_alone_and_the_global_model() -> None:
    """attraction 0: clients train alone; the stronger it is, the nearer they are to the model they received."""
    task = quadratic([0.0, 4.0], [1.0, 1.0])
    gaps = []
    for attraction in (0.0, 1.0, 8.0):
        player = Player("ditto", task, lr=0.1, steps=1, attraction=attraction)
        played = player.play([[0, 1]] * 200)
        own, server = played.memory("personal")[:, 0], played.models[-1, 0]
        # At rest grad F_k(v_k) + lambda (v_k - w) = 0.
        np.testing.assert_allclose(own, (np.array([0, 4]) + attraction * 2) / (1 + attraction))
        gaps.append(np.abs(own - server).max())
    assert gaps[0] > gaps[1] > gaps[2]
