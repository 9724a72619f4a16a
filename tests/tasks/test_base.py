"""Local work of a task."""

from __future__ import annotations

from pathlib import Path

import fedsim
from tests.composition.worlds import quadratic


def test_local_work_as_steps_epochs_or_time(tmp_path: Path) -> None:
    """Steps of 1, 2 and 3 s: 7 s of compute time are 7, 3 and 2 whole steps, and 0.5 s still one; epochs round up."""

    def steps_of(**training: object) -> list[int]:
        world = quadratic([[0, 1, 2]])
        world["training"] = {"optimizer": {"name": "sgd", "lr": 0.1}, **training}
        world["task"] = {**world["task"], "samples": [10, 20, 45]}
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        done = fedsim.run(world, folder, timing_only=True).dispatches.sort_values("client_id")
        assert (done.steps_done == done.steps_assigned).all()
        return [int(steps) for steps in done.steps_done]

    assert steps_of(time_budget="7s") == [7, 3, 2]
    assert steps_of(time_budget="0.5s") == [1, 1, 1]
    assert steps_of(local_epochs=1.5, batch_size=10) == [2, 3, 8]
    assert steps_of(local_steps=4) == [4, 4, 4]
