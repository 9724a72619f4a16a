"""The task of a Flower app: nodes and the unit of their work, without a model."""

from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.scenario.training import Training
from fedsim.tasks.base import TaskContext
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.flower import FlowerParams, FlowerTask


def test_a_unit_of_work_takes_the_time_of_a_mini_batch_or_of_a_sample() -> None:
    by_step = FlowerTask(FlowerParams(clients=3, unit="step"), batch_size=16)
    by_example = FlowerTask(FlowerParams(clients=3, unit="example"), batch_size=16)
    assert by_step.samples.tolist() == [16, 16, 16]
    assert by_example.samples.tolist() == [1, 1, 1]


def test_every_device_is_eligible_and_nothing_is_learned() -> None:
    task = FlowerTask(FlowerParams(clients=2, flops_per_sample=5e6), batch_size=16)
    assert task.memory_bytes(Training(), kept=10**9).tolist() == [0, 0]
    assert task.flops_per_sample() == 5e6
    assert not task.learns


def test_it_runs_only_with_its_app() -> None:
    def load(*_: object) -> Dataset:
        raise AssertionError

    context = TaskContext(Training(), 0, Path(), load)
    with pytest.raises(UserError, match="fedsim flower APP --devices FILE"):
        FlowerTask.build(FlowerParams(), context)
