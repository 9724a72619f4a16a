"""Methods of rounds on three quadratics in two dimensions, with partial work: papers' algorithms written out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import FloatArray, Part, Played, play, quadratic

CENTERS = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 1.0]])
CURVATURES = np.array([[1.0, 2.0], [0.5, 1.0], [2.0, 0.25]])
SAMPLES = np.array([1.0, 2.0, 5.0])
START = np.array([4.0, -4.0])
RATE = 0.2
Rounds = list[list[tuple[int, int]]]
LOG: Rounds = [[(0, 3), (1, 2), (2, 1)], [(2, 3)], [(1, 1), (0, 3)], [(0, 2), (2, 2)]]
WEIGHTS = pytest.mark.parametrize("weights", ["samples", "uniform"])


def descend(x: FloatArray, i: int, steps: int, extra: Callable[..., Any]) -> FloatArray:
    """Local steps along the gradient and ``extra`` of the local model."""
    for _ in range(steps):
        x = x - RATE * (CURVATURES[i] * (x - CENTERS[i]) + extra(x))
    return x


def played(method: str, log: Rounds = LOG, **params: Any) -> Played:
    task = quadratic(
        CENTERS.tolist(), CURVATURES.tolist(), START.tolist(), samples=SAMPLES.astype(int).tolist()
    )
    rounds = [[Part(client, steps) for client, steps in clients] for clients in log]
    return play(method, task, rounds, lr=RATE, steps=3, **params)


def mean(ends: list[FloatArray], round_: list[tuple[int, int]], weights: str) -> FloatArray:
    raw = SAMPLES[[i for i, _ in round_]] if weights == "samples" else np.ones(len(round_))
    return raw / raw.sum() @ np.array(ends)


@WEIGHTS
@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_fedprox(mu: float, weights: str) -> None:
    """Li et al. 2020, Algorithm 2 with inexact solutions of equation 2: min F_i(w) + mu / 2 |w - w^t|^2."""
    expected = [w := START]
    for round_ in LOG:
        ends = [descend(w, i, steps, lambda x, w=w: mu * (x - w)) for i, steps in round_]
        expected.append(w := mean(ends, round_, weights))
    models = played("fedprox", mu=mu, weights=weights).models
    np.testing.assert_allclose(models, expected, rtol=1e-12, atol=1e-13)


SECOND_MOMENTS: dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = {
    "fedadagrad": lambda v, d, beta2: v + d**2,
    "fedadam": lambda v, d, beta2: beta2 * v + (1 - beta2) * d**2,
    "fedyogi": lambda v, d, beta2: v - (1 - beta2) * d**2 * np.sign(v - d**2),
}


@WEIGHTS
@pytest.mark.parametrize("method", SECOND_MOMENTS)
def test_adaptive_servers(method: str, weights: str) -> None:
    """Reddi et al. 2021, Algorithm 2 (v starts at tau^2, as it allows, and m at zero)."""
    eta, beta1, beta2, tau = 0.3, 0.7, 0.8, 0.05
    x, m, v = START, np.zeros(2), np.full(2, tau**2)
    expected = [x]
    for round_ in LOG:
        ends = [descend(x, i, steps, lambda y: 0) for i, steps in round_]
        d = mean(ends, round_, weights) - x
        m = beta1 * m + (1 - beta1) * d
        v = SECOND_MOMENTS[method](v, d, beta2)
        x = x + eta * m / (np.sqrt(v) + tau)
        expected.append(x)
    options = {} if method == "fedadagrad" else {"beta2": beta2}
    run = played(method, server_lr=eta, beta1=beta1, tau=tau, weights=weights, **options)
    np.testing.assert_allclose(run.models, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.state("second_moment")[-1], v, rtol=1e-11)
    np.testing.assert_allclose(run.state("momentum")[-1], m, rtol=1e-11)


@settings(max_examples=15)
@given(
    st.sampled_from([0.1, 0.5, 1.0]),
    st.lists(
        st.dictionaries(st.integers(0, 2), st.integers(1, 3), min_size=1), min_size=1, max_size=6
    ),
)
def test_feddyn(alpha: float, log: list[dict[int, int]]) -> None:
    """Acar et al. 2021, Algorithm 1; h is the mean of all clients' stored gradients."""
    x, h, stored = START, np.zeros(2), np.zeros((3, 2))
    models = [x]
    for clients in log:
        ends = {
            i: descend(x, i, steps, lambda y, i=i, x=x: alpha * (y - x) - stored[i])
            for i, steps in clients.items()
        }
        for i, end in ends.items():
            stored[i] -= alpha * (end - x)
        h = h - alpha / 3 * sum(end - x for end in ends.values())
        models.append(x := np.mean(list(ends.values()), axis=0) - h / alpha)
    run = played("feddyn", [list(clients.items()) for clients in log], alpha=alpha)
    np.testing.assert_allclose(run.models, models, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.state("h")[-1], h, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.memory("gradient"), stored, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(stored.mean(0), h, rtol=1e-10, atol=1e-12)
