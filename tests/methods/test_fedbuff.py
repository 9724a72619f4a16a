"""FedBuff against iterates written out from its paper's algorithm."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.methods.async_worlds import quadratics, trained


@pytest.mark.parametrize("scale", ["mean", "population"])
def test_fedbuff(scale: str) -> None:
    """Algorithm 1: w + eta_g sum of s(age) share_i Delta_i with s = 1 / sqrt(1 + age) and 1 / K, or p_i, as share."""
    samples = [1, 2, 5]
    options = {} if scale == "mean" else {"scale": scale, "weights": "samples"}
    world = quadratics(
        [1.0, 1.7, 4.1],
        {"name": "fedbuff", "server_lr": 0.7, **options},
        schedule={"name": "buffered", "buffer_size": 3},
        until_s=60,
        samples=samples,
    )
    assert len(world.times) > 8
    twice = False
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        change = sum(
            (model - start) / (age + 1) ** 0.5 * (1 / 3 if scale == "mean" else samples[client] / 8)
            for client, start, model, age in updates
        )
        assert after == pytest.approx(before + 0.7 * change, rel=1e-12)
        twice |= len({client for client, *_ in updates}) < 3
    assert twice


def test_fedbuff_under_the_synchronous_schedule_is_fedavg() -> None:
    fedbuff = quadratics([1.0, 2.0, 3.0], {"name": "fedbuff"}, rounds=5)
    fedavg = quadratics([1.0, 2.0, 3.0], {"name": "fedavg"}, rounds=5)
    assert fedbuff.w == fedavg.w
