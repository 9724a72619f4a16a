"""Rennala SGD against its paper's algorithm, with the arrivals of the simulation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.methods.async_worlds import quadratics, trained

FAST = [1.0, 1.7, 4.1]


def test_a_step_is_the_mean_of_the_batch_at_one_model() -> None:
    world = quadratics(
        FAST,
        {"name": "rennala", "server_lr": 0.7},
        schedule={"name": "rennala", "batch": 4},
        until_s=60,
    )
    assert len(world.times) > 4
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        assert [start for _, start, *_ in updates] == [before] * 4
        change = sum(model - start for _, start, model, _ in updates) / 4
        assert after == pytest.approx(before + 0.7 * change, rel=1e-12)
