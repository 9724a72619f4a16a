"""Step times drawn from a distribution."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.devices.compute.population import context, times


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
