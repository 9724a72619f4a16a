"""CA2FL, ACE and ACED: caches of the clients' latest updates under asynchronous schedules."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.methods.async_worlds import quadratics, trained
from tests.scheduling.worlds import World

FAST = [1.0, 1.7, 4.1]


def _buffered(method: dict[str, Any], **world: Any) -> World:
    return quadratics(FAST, method, schedule={"name": "buffered", "buffer_size": 2}, **world)


def test_ca2fl() -> None:
    world = _buffered({"name": "ca2fl", "server_lr": 0.7}, until_s=60)
    cache = np.zeros(3)
    calibrated = False
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        change = cache.mean()
        for client, start, model, _ in updates:
            change += (model - start - cache[client]) / len(updates)
            calibrated |= bool(cache[client])
            cache[client] = model - start
        assert after == pytest.approx(before + 0.7 * change, rel=1e-10)
    assert calibrated


def test_ace_steps_along_the_mean_of_all_latest_updates() -> None:
    world = quadratics(
        FAST, {"name": "ace", "server_lr": 0.3}, schedule={"name": "async"}, until_s=60
    )
    cache = np.zeros(3)
    for (before, after), ((client, start, model, _),) in zip(
        pairwise(world.w), trained(world), strict=True
    ):
        cache[client] = model - start
        assert after == pytest.approx(before + 0.3 * cache.mean(), rel=1e-10)


@pytest.mark.parametrize("delay", [1, 3, 50])
def test_aced_forgets_clients_that_were_not_seen_lately(delay: int) -> None:
    world = quadratics(
        FAST,
        {"name": "aced", "server_lr": 0.3, "delay": delay},
        schedule={"name": "async"},
        until_s=60,
    )
    arrivals: list[tuple[int, float]] = []
    engaged = set()
    for (before, after), ((client, start, model, _),) in zip(
        pairwise(world.w), trained(world), strict=True
    ):
        arrivals.append((client, model - start))
        latest = dict(arrivals[-delay:])
        engaged.add(len(latest))
        assert after == pytest.approx(before + 0.3 * np.mean(list(latest.values())), rel=1e-10)
    assert engaged == {1: {1}, 3: {1, 2, 3}, 50: {1, 2, 3}}[delay]
