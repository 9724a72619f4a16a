"""FedDyn against a few-line reference of its paper's algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.descent import LOG, START, FloatArray, Rounds, descend, gradient, played


def feddyn(alpha: float, log: Rounds) -> tuple[list[FloatArray], FloatArray, FloatArray]:
    """Acar et al. 2021, Algorithm 1: models, h and all clients' gradients in the end."""
    theta, h, stored = START, np.zeros(2), np.zeros((3, 2))
    models = [theta]
    for round_ in log:
        ends = {}
        for i, steps in round_:
            ends[i] = descend(
                theta,
                steps,
                lambda x, i=i, theta=theta: gradient(i, x) - stored[i] + alpha * (x - theta),
            )
        for i, end in ends.items():
            stored[i] -= alpha * (end - theta)
        h = h - alpha / 3 * sum(end - theta for end in ends.values())
        theta = np.mean(list(ends.values()), axis=0) - h / alpha
        models.append(theta)
    return models, h, stored


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_feddyn(alpha: float) -> None:
    run = played("feddyn", alpha=alpha)
    models, h, stored = feddyn(alpha, LOG)
    np.testing.assert_allclose(run.models, models, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.state("h")[-1], h, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.memory("gradient"), stored, rtol=1e-11, atol=1e-12)


@settings(max_examples=15)
@given(
    log=st.lists(
        st.dictionaries(st.integers(0, 2), st.integers(1, 3), min_size=1), min_size=1, max_size=6
    )
)
def test_feddyn_under_any_participation(log: Any) -> None:
    """The reference, and h as the mean of all clients' stored gradients."""
    rounds = [list(clients.items()) for clients in log]
    run = played("feddyn", rounds, alpha=0.5)
    np.testing.assert_allclose(run.models, feddyn(0.5, rounds)[0], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(
        run.state("h")[-1], run.memory("gradient").mean(0), rtol=1e-11, atol=1e-12
    )
