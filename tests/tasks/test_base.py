"""Local work of a task."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.scenario.loading import load_scenario_dict
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


OF_USER = """
from fedsim.vocabulary.metrics import MetricDefinition
from fedsim.tasks.kinds.quadratic import QuadraticTask


class Excess(QuadraticTask):
    exact_metrics = (MetricDefinition("excess", higher_is_better=False),)

    def measure(self, model):
        return {"excess": super().measure(model)["loss"] - 0.5}
"""


def test_a_kind_of_task_lists_its_metrics(tmp_path: Path) -> None:
    """f_i = (x - c_i)^2 / 2 with c = (-1, 1), from x = 3 with rate 0.1: x is 3 x 0.9^k, and the excess x^2 / 2."""
    (tmp_path / "excess.py").write_text(OF_USER)
    world = quadratic([[0, 1]] * 3)
    world["task"] = {"name": f"{tmp_path}/excess.py:Excess", "centers": [-1, 1], "initial": 3.0}
    world["training"]["local_steps"] = 1
    world["devices"]["compute"]["step"] = [1.0, 1.0]
    world["stop"] = {"rounds": 3, "target": {"excess": 3.0}}
    world["evaluation"] = {"every_rounds": 1}
    run = fedsim.run(world, tmp_path / "run")
    excess = run.metrics["excess"].to_numpy()
    assert excess == pytest.approx(4.5 * 0.81 ** np.arange(3))
    assert "loss" not in run.metrics.columns


PARTITIONED = {"name": "supervised", "dataset": "digits", "model": "logistic_regression"}


@pytest.mark.parametrize(
    ("task", "key"),
    [
        ({"name": "timing", "clients": 3}, "clients"),
        ({"name": "flower", "clients": 3}, "clients"),
        ({"name": "quadratic", "centers": [1, 2]}, ""),
        (PARTITIONED | {"partition": {"name": "iid", "clients": 3}}, "partition.clients"),
        (PARTITIONED | {"partition": {"name": "natural"}}, "partition.clients"),
        (PARTITIONED | {"partition": {"name": "file", "path": "clients.csv"}}, ""),
    ],
)
def test_the_key_that_sets_the_number_of_clients(
    task: dict[str, Any], key: str, tmp_path: Path
) -> None:
    (tmp_path / "clients.csv").touch()
    world = quadratic([[0]])
    world["task"] = task
    section = load_scenario_dict(world, folder=tmp_path).scenario.task
    assert section.type.clients_key(section.params) == key
