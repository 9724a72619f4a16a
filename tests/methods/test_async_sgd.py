"""Asynchronous SGD and Ringmaster against iterates written out from the papers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.methods.async_worlds import quadratics, trained

FAST = [1.0, 1.7, 4.1]


def test_steps_shrink_with_the_delay() -> None:
    """gamma min(1, c / tau), Koloskova et al. (2022) and Mishchenko et al. (2022)."""
    reciprocal = {"name": "reciprocal", "delay": 2}
    world = quadratics(
        [1.0, 1.7, 9.1],
        {"name": "async_sgd", "server_lr": 0.7, "staleness": reciprocal},
        schedule={"name": "async"},
        until_s=60,
    )
    delays = []
    for (before, after), ((_, start, model, age),) in zip(
        pairwise(world.w), trained(world), strict=True
    ):
        factor = 1.0 if age <= 2 else 2 / age
        assert after == pytest.approx(before + 0.7 * factor * (model - start), rel=1e-12)
        delays.append(age)
    assert max(delays) > 5


@pytest.mark.parametrize("stale", ["ignore", "stop"])
def test_ringmaster_without_a_threshold_is_asynchronous_sgd(stale: str) -> None:
    schedule: dict[str, Any] = {"name": "ringmaster", "threshold": 10**9, "stale": stale}
    ringmaster = quadratics(FAST, {"name": "ringmaster"}, schedule=schedule, until_s=60)
    same = {"name": "async", "next_client": "same"}
    assert ringmaster.w == quadratics(FAST, {"name": "async_sgd"}, schedule=same, until_s=60).w
    assert len(ringmaster.w) > 40


def test_ringmaster_uses_no_gradient_older_than_its_threshold() -> None:
    world = quadratics(
        FAST,
        {"name": "ringmaster", "server_lr": 0.7},
        schedule={"name": "ringmaster", "threshold": 2},
        until_s=60,
    )
    ages = set()
    for (before, after), ((_, start, model, age),) in zip(
        pairwise(world.w), trained(world), strict=True
    ):
        assert after == pytest.approx(before + 0.7 * (model - start), rel=1e-12)
        ages.add(age)
    assert ages == {0, 1}
