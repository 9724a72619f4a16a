"""The supervised task."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.parts.catalog import CATALOG
from fedsim.scenario.training import Training
from fedsim.tasks.kinds.supervised import SupervisedTask
from tests.learning.problems import Built
from tests.tasks.toys import characters, split, task, toy_dataset


def test_a_task_knows_its_clients() -> None:
    dataset = toy_dataset(samples=103)
    problem = task(dataset, "mlp", clients=10)
    assert problem.clients == 10
    assert problem.samples.sum() == 103
    assert problem.steps_per_epoch(Training(batch_size=4)).tolist() == [
        -(-size // 4) for size in problem.samples
    ]
    assert problem.steps_per_epoch(Training(batch_size=1000)).tolist() == [1] * 10
    assert problem.train_x.data_ptr() == torch.from_numpy(dataset.train_x).data_ptr(), "no copy"


def test_inputs_are_scaled_in_the_asked_precision() -> None:
    problem = task(toy_dataset(), "mlp")
    raw = problem.train_x[:3]
    assert raw.dtype == torch.uint8
    assert torch.equal(problem.inputs(raw), raw.float() * np.float32(1 / 255))
    assert problem.inputs(raw, torch.float64).dtype == torch.float64
    codes = task(characters(), "char_lstm", hidden=4)
    assert codes.inputs(codes.train_x[:2]).dtype == torch.int64


def test_clients_may_have_test_samples_of_their_own() -> None:
    dataset = toy_dataset()
    component = CATALOG.parts("model")["logistic_regression"]
    for test, source in (("split", "train_x"), ("same_distribution", "test_x")):
        partition = split(dataset, "iid", clients=5, test=test)
        problem = SupervisedTask(dataset, partition, component(component.Params()))
        assert problem.client_test_x is getattr(problem, source)
        assert problem.client_test_offsets is not None
        assert problem.client_test_offsets[-1] == len(problem.client_test_rows) > 0
    plain = task(dataset, "mlp")
    assert plain.client_test_rows is None


def test_parameters_of_other_types_are_a_doubt() -> None:
    """They are converted to the type of the run, so a forward pass that fixes theirs would fail."""

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 3)
            self.last = nn.Linear(3, 10, dtype=torch.bfloat16)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.last(self.first(x.flatten(1)).to(self.last.weight.dtype))
            return result

    dataset = toy_dataset(samples=12)
    doubts = SupervisedTask(
        dataset, split(dataset, "iid", clients=2), Built(Half, "module")
    ).doubts()
    messages = [doubt.message for doubt in doubts if "types other than" in doubt.message]
    assert len(messages) == 1
    assert "(bfloat16: last.weight and last.bias)" in messages[0]
