"""FedAvgM against iterates written out from its paper."""

from __future__ import annotations

import pytest

from tests.methods.async_worlds import local, quadratics


def test_fedavgm() -> None:
    """v = beta v + Delta, w = w + eta v (Hsu et al., section 4)."""
    world = quadratics(
        [1.0, 1.0, 1.0],
        {"name": "fedavgm", "momentum": 0.8, "server_lr": 0.5},
        rounds=8,
        samples=[1, 2, 5],
    )
    x = v = 0.0
    for version in range(9):
        assert world.w[version] == pytest.approx(x, rel=1e-12, abs=1e-15)
        changes = [local(x, client) - x for client in range(3)]
        v = 0.8 * v + (changes[0] + 2 * changes[1] + 5 * changes[2]) / 8
        x += 0.5 * v
