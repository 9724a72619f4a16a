"""FedProx against a few-line reference from its paper's equation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.descent import LOG, START, descend, gradient, played, share


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
    models = played("fedprox", mu=mu, weights=weights).models
    np.testing.assert_allclose(models, expected, rtol=1e-12, atol=1e-13)
