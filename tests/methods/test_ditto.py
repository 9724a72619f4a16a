"""Ditto against a few-line reference of its paper's algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.personal_descent import LOG, RATE, START, gradient, phases, share, simulated


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
            x = w
            on_global, on_personal = phases(1, ratio, steps)
            for _ in range(on_global):
                x = x - RATE * gradient(i, x)
            ends.append(x)
            for _ in range(on_personal):
                personal[i] = personal[i] - RATE * (
                    gradient(i, personal[i]) + attraction * (personal[i] - w)
                )
        w = share([i for i, _ in round_], weights) @ np.array(ends)
        versions.append(w)
    params = {"attraction": attraction, "personal_steps": ratio, "weights": weights}
    actual_versions, actual_models = simulated("ditto", **params)
    np.testing.assert_allclose(actual_versions, versions, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(actual_models, personal, rtol=1e-12, atol=1e-13)
