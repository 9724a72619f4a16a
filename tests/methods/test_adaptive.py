"""FedAdagrad, FedAdam and FedYogi against a few-line reference of their paper's algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.descent import LOG, START, descend, gradient, played, share
from tests.methods.executed import SECOND_MOMENTS


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
