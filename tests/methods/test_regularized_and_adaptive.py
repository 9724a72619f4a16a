"""FedProx, FedDyn and the adaptive servers against few-line references from the original papers' equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.methods import registry
from tests.learning.problems import Timeline, make_learner, supervised_task
from tests.methods.driver import Part, Played, play, quadratic

FloatArray = npt.NDArray[np.float64]

CENTERS = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 1.0]])
CURVATURES = np.array([[1.0, 2.0], [0.5, 1.0], [2.0, 0.25]])
SAMPLES = np.array([1.0, 2.0, 5.0])
START = np.array([4.0, -4.0])
RATE = 0.2
LOG = [[(0, 3), (1, 2), (2, 1)], [(2, 3)], [(1, 1), (0, 3)], [(0, 2), (2, 2)]]
Rounds = list[list[tuple[int, int]]]


def gradient(i: int, x: FloatArray) -> FloatArray:
    return CURVATURES[i] * (x - CENTERS[i])


def descend(x: FloatArray, steps: int, direction: Callable[[FloatArray], FloatArray]) -> FloatArray:
    for _ in range(steps):
        x = x - RATE * direction(x)
    return x


def played(method: str, log: Rounds = LOG, **params: Any) -> Played:
    task = quadratic(
        CENTERS.tolist(), CURVATURES.tolist(), START.tolist(), samples=SAMPLES.astype(int).tolist()
    )
    rounds = [[Part(client, steps) for client, steps in clients] for clients in log]
    return play(method, task, rounds, lr=RATE, steps=3, **params)


def share(clients: list[int], weights: str) -> FloatArray:
    raw = SAMPLES[clients] if weights == "samples" else np.ones(len(clients))
    return raw / raw.sum()


# -- FedProx -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_fedprox(mu: float, weights: str) -> None:
    """Li et al. 2020, Algorithm 2 with inexact solutions of equation 2: min F_i(w) + mu / 2 |w - w^t|^2."""
    w = START
    expected = [w]
    for round_ in LOG:
        clients = [client for client, _ in round_]
        ends = [
            descend(w, steps, lambda x, i=i, w=w: gradient(i, x) + mu * (x - w))
            for i, steps in round_
        ]
        w = share(clients, weights) @ np.array(ends)
        expected.append(w)
    found = played("fedprox", mu=mu, weights=weights).models
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_a_strong_proximal_term_holds_clients_back() -> None:
    """mu = 4 against no proximal term: the model moves less."""
    near, far = (played("fedprox", mu=mu).models[1] for mu in (4.0, 0.0))
    assert np.abs(near - START).max() < np.abs(far - START).max()


# -- FedDyn ------------------------------------------------------------------------------------------------------------


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


def test_feddyn_ends_at_the_minimum_where_fedavg_does_not() -> None:
    """Full participation, three local steps: the stationary point is that of the mean objective."""
    optimum = (CURVATURES * CENTERS).sum(0) / CURVATURES.sum(0)
    log = [[(0, 3), (1, 3), (2, 3)]] * 300
    np.testing.assert_allclose(played("feddyn", log, alpha=1.0).models[-1], optimum, rtol=1e-9)
    biased = played("fedavg", log, weights="uniform").models[-1]
    assert np.abs(biased - optimum).max() > 0.05


# -- FedAdagrad, FedAdam, FedYogi --------------------------------------------------------------------------------------

SECOND_MOMENTS: dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = {
    "fedadagrad": lambda v, d, beta2: v + d**2,
    "fedadam": lambda v, d, beta2: beta2 * v + (1 - beta2) * d**2,
    "fedyogi": lambda v, d, beta2: v - (1 - beta2) * d**2 * np.sign(v - d**2),
}


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("method", SECOND_MOMENTS)
def test_adaptive_servers(method: str, weights: str) -> None:
    """Reddi et al. 2021, Algorithm 2 (v starts at tau^2, as it allows, and m at zero)."""
    eta, beta1, beta2, tau = 0.3, 0.7, 0.8, 0.05
    x, m, v = START, np.zeros(2), np.full(2, tau**2)
    expected = [x]
    for round_ in LOG:
        clients = [client for client, _ in round_]
        ends = [descend(x, steps, lambda y, i=i: gradient(i, y)) for i, steps in round_]
        d = share(clients, weights) @ (np.array(ends) - x)
        m = beta1 * m + (1 - beta1) * d
        v = SECOND_MOMENTS[method](v, d, beta2)
        x = x + eta * m / (np.sqrt(v) + tau)
        expected.append(x)
    options = {} if method == "fedadagrad" else {"beta2": beta2}
    run = played(method, server_lr=eta, beta1=beta1, tau=tau, weights=weights, **options)
    np.testing.assert_allclose(run.models, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.state("second_moment")[-1], v, rtol=1e-11)
    np.testing.assert_allclose(run.state("momentum")[-1], m, rtol=1e-11)


@pytest.mark.parametrize("method", SECOND_MOMENTS)
def test_without_adaptivity_the_server_averages(method: str) -> None:
    """v stays tau^2 where tau is large and v does not fade: server_lr / (2 tau) times the mean change is FedAvg."""
    tau = 1e6
    options = {} if method == "fedadagrad" else {"beta2": 1 - 1e-12}
    run = played(method, tau=tau, server_lr=2 * tau, beta1=0.0, **options)
    np.testing.assert_allclose(run.models, played("fedavg").models, rtol=1e-9)


def test_without_memory_the_first_step_goes_by_signs() -> None:
    """beta2 = 0: Adam's v is D^2; Yogi's is v - D^2 sign(v - D^2), which after one step from zero is D^2 too."""
    for method in ("fedadam", "fedyogi"):
        run = played(method, [LOG[0]], beta1=0.0, beta2=0.0, tau=1e-9, server_lr=0.5)
        change = played("fedavg", [LOG[0]]).models[1] - START
        np.testing.assert_allclose(run.models[1], START + 0.5 * np.sign(change), rtol=1e-7)


@pytest.mark.parametrize("method", ["feddyn", *SECOND_MOMENTS])
def test_running_statistics_are_averaged_plainly(method: str) -> None:
    """Buffers of batch normalization after one round are those of FedAvg."""
    buffers = []
    for name in (method, "fedavg"):
        kind = registry()[name]
        uniform = {"weights": "uniform"} if "weights" in kind.Params.model_fields else {}
        timeline = Timeline()
        timeline.aggregate(*[timeline.dispatch(client, 1) for client in (0, 3, 5)])
        task = supervised_task("batch_norm")
        learner = make_learner(task, method=kind, params=kind.Params.model_validate(uniform))
        timeline.play(learner)
        learner.close()
        buffers.append(learner.server["model"][task.layout.trainable :])
    assert len(buffers[0])
    torch.testing.assert_close(buffers[0], buffers[1], rtol=1e-6, atol=1e-7)
