"""FADAS against AMSGrad written out, with the arrivals of the simulation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.methods.async_worlds import quadratics, trained


@pytest.mark.parametrize("delay", [None, 1])
@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.0, 0.0)])
def test_fadas(betas: tuple[float, float], delay: int | None) -> None:
    beta1, beta2 = betas
    world = quadratics(
        [1.0, 1.7, 9.1],
        {"name": "fadas", "server_lr": 0.4, "beta1": beta1, "beta2": beta2, "delay": delay},
        schedule={"name": "buffered", "buffer_size": 2},
        until_s=90,
    )
    m = v = largest = 0.0
    shrunk = False
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        change = sum(model - start for _, start, model, _ in updates) / 2
        m = beta1 * m + (1 - beta1) * change
        v = beta2 * v + (1 - beta2) * change**2
        largest = max(largest, v)
        longest = max(age for *_, age in updates)
        rate = 0.4 if delay is None or longest <= delay else min(0.4, 1 / longest)
        shrunk |= rate < 0.4
        assert after == pytest.approx(before + rate * m / (largest**0.5 + 1e-8), rel=1e-10)
    assert shrunk is (delay is not None)
