"""FedSim, FedPer, LG-FedAvg, FedAlt and FedRep against few-line references from the original papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.methods.personal_descent import (
    LOG,
    RATE,
    START,
    FloatArray,
    gradient,
    phases,
    share,
    simulated,
)

U, V = slice(0, 2), slice(2, 3)


def joint(personal: slice, weights: str) -> tuple[FloatArray, FloatArray]:
    """One gradient step on the whole model; the personal slice stays, the rest is averaged.

    Pillutla et al. 2022, Algorithm 3 (FedSim); Arivazhagan et al. 2019, Algorithms 1 and 2 (FedPer: personal layers
    are the last ones); Liang et al. 2020, Algorithm 1 (LG-FedAvg: they are the first ones).
    """
    models = [START.copy() for _ in range(3)]
    shared = np.setdiff1d(np.arange(3), np.arange(3)[personal])
    s = START[shared]
    versions = [s]
    for round_ in LOG:
        ends = []
        for i, steps in round_:
            models[i][shared] = s
            for _ in range(steps):
                models[i] = models[i] - RATE * gradient(i, models[i])
            ends.append(models[i][shared])
        s = share([i for i, _ in round_], weights) @ np.array(ends)
        versions.append(s)
    for model in models:
        model[shared] = s
    return np.array(versions), np.array(models)


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
    versions, models = joint(personal, weights)
    actual_versions, actual_models = simulated(method, **params)
    np.testing.assert_allclose(actual_versions, versions, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(actual_models, models, rtol=1e-12, atol=1e-13)


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
    u, personal_parts = START[U], [START[V]] * 3
    versions = [u]
    for round_ in LOG:
        ends = []
        for i, steps in round_:
            x = np.concatenate([u, personal_parts[i]])
            on_personal, on_shared = phases(ratio, 1, steps)
            for _ in range(on_personal):
                x[V] = x[V] - RATE * gradient(i, x)[V]
            for _ in range(on_shared):
                x[U] = x[U] - RATE * gradient(i, x)[U]
            personal_parts[i] = x[V].copy()
            ends.append(x[U].copy())
        u = share([i for i, _ in round_], weights) @ np.array(ends)
        versions.append(u)
    actual_versions, actual_models = simulated(method, **params)
    np.testing.assert_allclose(actual_versions, versions, rtol=1e-12, atol=1e-13)
    expected = [np.concatenate([u, v]) for v in personal_parts]
    np.testing.assert_allclose(actual_models, expected, rtol=1e-12, atol=1e-13)
