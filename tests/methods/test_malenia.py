"""Malenia SGD against its paper's algorithm, with the arrivals of the simulation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.methods.async_worlds import quadratics, trained


def test_a_step_is_the_mean_of_the_clients_means() -> None:
    world = quadratics(
        [1.0, 1.7, 4.1],
        {"name": "malenia", "server_lr": 0.7},
        schedule={"name": "malenia", "batch": 5},
        until_s=80,
    )
    assert len(world.times) > 4
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        changes: dict[int, list[float]] = {}
        for client, start, model, _ in updates:
            assert start == before
            changes.setdefault(client, []).append(model - start)
        assert sorted(changes) == [0, 1, 2]
        mean = sum(sum(each) / len(each) for each in changes.values()) / 3
        assert after == pytest.approx(before + 0.7 * mean, rel=1e-12)
