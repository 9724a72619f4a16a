"""ATA is mini-batch SGD, whichever client computes how many gradients."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.methods.async_worlds import CENTRES
from tests.scheduling.worlds import play


def test_a_step_is_the_mean_of_all_gradients_at_the_model() -> None:
    world = play(
        [1.0, 2.0, 6.0],
        task={"centers": [[center] for center in CENTRES], "curvatures": 1.0},
        lr=0.1,
        method={"name": "ata", "server_lr": 0.5},
        schedule={"name": "ata", "tasks": 6, "spread": 0},
        rounds=3,
    )
    # (2, 2, 2) in the first round, (4, 2, 0) afterwards.
    counts = [(2, 2, 2), (4, 2, 0), (4, 2, 0)]
    for (before, after), tasks in zip(pairwise(world.w), counts, strict=True):
        gradient = sum(n * (before - c) for n, c in zip(tasks, CENTRES, strict=True)) / 6
        assert after == pytest.approx(before - 0.5 * 0.1 * gradient, rel=1e-12)
