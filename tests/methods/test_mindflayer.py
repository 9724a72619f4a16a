"""MindFlayer SGD: sums of the trials that were done in time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.methods.async_worlds import quadratics, trained

SCHEDULE = {"name": "mindflayer", "limit": "5s", "horizon": "10s"}


@pytest.mark.parametrize("expected", [None, 3.5])
def test_a_step_divides_by_the_expected_or_the_actual_number(expected: float | None) -> None:
    world = quadratics(
        [1.0, 1.7, 4.1],
        {"name": "mindflayer", "server_lr": 0.7, "expected": expected},
        schedule=SCHEDULE,
        rounds=4,
    )
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        # Client 2 needs 8.2 s for a trial of 5 s.
        assert [client for client, *_ in updates] == [0, 1, 0, 1]
        change = sum(model - start for _, start, model, _ in updates) / (expected or 4)
        assert after == pytest.approx(before + 0.7 * change, rel=1e-12)
