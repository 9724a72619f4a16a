"""The timing task: sizes without learning."""

from typing import Any

import pytest
from pydantic import ValidationError

from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import Evaluation
from fedsim.scenario.training import Training
from fedsim.tasks.kinds.timing import TimingTask


def timing(item_bytes: int = 4, **params: Any) -> TimingTask:
    return TimingTask(TimingTask.Params(**params), item_bytes)


def test_sizes_are_those_of_the_scenario() -> None:
    task = timing(clients=3, parameters=10, names={"a": 4, "b": 6}, samples=7)
    assert (task.layout.names, task.layout.offsets) == (("a", "b"), (0, 4, 10))
    assert task.samples.tolist() == [7, 7, 7]
    assert task.steps_per_epoch(Training(batch_size=2)).tolist() == [4, 4, 4]
    assert timing(8, clients=1, size="800").layout.size == 100
    assert timing(clients=1).parameters == 1_000_000
    with pytest.raises(ValidationError, match="less than or equal to 10000000"):
        timing(clients=10**9)


def test_local_steps_follow_steps_epochs_or_the_default() -> None:
    task = timing(clients=2, samples=10)
    assert task.local_steps(Training()).tolist() == [10, 10]
    assert task.local_steps(Training(local_steps=3)).tolist() == [3, 3]
    # 4 batches of 3 per epoch: half an epoch is 2 steps, a tenth of one is at least 1.
    assert task.local_steps(Training(local_epochs=0.5, batch_size=3)).tolist() == [2, 2]
    assert task.local_steps(Training(local_epochs=0.1, batch_size=3)).tolist() == [1, 1]
    # 1.1 x 50 is 55.00000000000001 in float64; exactly 55 steps are meant.
    training = Training(local_epochs=1.1, batch_size=1)
    assert timing(clients=1, samples=50).local_steps(training).tolist() == [55]


def test_memory_counts_model_gradient_optimizer_and_activations() -> None:
    task = timing(clients=1, parameters=100, samples=5, activations=10)
    momentum = {"name": "sgd", "momentum": 0.9}
    assert task.memory_bytes(Training(batch_size=8), 0).tolist() == [4 * (200 + 50)]
    assert task.memory_bytes(Training(batch_size=2), 30).tolist() == [4 * (200 + 30 + 20)]
    with_momentum = Training.model_validate({"batch_size": 2, "optimizer": momentum})
    assert task.memory_bytes(with_momentum, 0).tolist() == [4 * (300 + 20)]
    adam = Training.model_validate(
        {"batch_size": 2, "optimizer": {"name": "adam"}, "dtype": "float64"}
    )
    assert task.memory_bytes(adam, 0).tolist() == [8 * (400 + 20)]


def test_it_learns_nothing() -> None:
    task = timing(clients=1, flops_per_sample=5.0)
    assert not task.learns
    assert task.flops_per_sample() == 5.0
    assert timing(clients=1).flops_per_sample() is None
    assert task.evaluation_passes(per_client=True, objective=True) == 0
    assert task.partition_rows() is None
    task.check(
        Training.model_validate({"augmentation": {"crop_padding": 2}}), Evaluation(per_client=True)
    )
    with pytest.raises(TypeError, match="has no model"):
        task.initial(Stream(0, Purpose.INITIAL_MODEL), None)  # type: ignore[arg-type]
