"""Ringleader ASGD against the table written out from its paper."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.async_worlds import quadratics, trained


def test_a_step_is_the_mean_of_the_table() -> None:
    world = quadratics(
        [1.0, 1.7, 4.1],
        {"name": "ringleader", "server_lr": 0.3},
        schedule={"name": "ringleader"},
        until_s=120,
    )
    sums, counts, x = np.zeros(3), np.zeros(3), world.w[0]
    restarts = [bool(aggregate.attributes["restart"]) for aggregate in world.book.aggregates]
    assert sum(restarts) > 4
    for updates, restart, after in zip(trained(world), restarts, world.w[1:], strict=True):
        if restart:
            sums[:], counts[:] = 0, 0
        for client, start, model, _ in updates:
            sums[client] += model - start
            counts[client] += 1
        x += 0.3 * float((sums / counts).mean())
        assert after == pytest.approx(x, rel=1e-10)
    # In every round each client makes one version, the first of which also collects.
    assert restarts[:6] == [True, False, False, True, False, False]
