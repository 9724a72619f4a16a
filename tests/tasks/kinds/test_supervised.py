"""The supervised task."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim.errors import UserError
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
        assert problem.client_test[0] is getattr(problem, source)
        assert problem.client_test_offsets is not None
        assert problem.client_test_offsets[-1] == len(problem.client_test_rows) > 0
    plain = task(dataset, "mlp")
    assert plain.client_test_rows is None


class Typed(nn.Module):
    """Two layers, the last of another type, which ``forward`` follows or fixes."""

    def __init__(self, kind: torch.dtype, fixed: torch.dtype | None = None) -> None:
        super().__init__()
        self.first = nn.Linear(64, 3)
        self.last = nn.Linear(3, 10).to(kind)
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        inputs = self.first(x.flatten(1))
        result: Tensor = self.last(inputs.to(self.fixed or self.last.weight.dtype))
        return result


class AsBuilt(Built):
    def initialize(self, module: nn.Module, generator: torch.Generator) -> None:
        """Like a user's module, it has its values since its constructor."""


def test_parameters_of_other_types_are_converted_and_named() -> None:
    dataset = toy_dataset(samples=12)
    partition = split(dataset, "iid", clients=2)
    for kind, dtype, doubted in (
        (torch.bfloat16, "float32", True),
        (torch.float8_e4m3fn, "float32", True),
        (torch.float64, "float64", False),
    ):
        model = AsBuilt(lambda kind=kind: Typed(kind), "module")
        problem = SupervisedTask(dataset, partition, model, dtype=dtype)
        name = str(kind).removeprefix("torch.")
        assert [name in doubt.message for doubt in problem.doubts()] == [True] * doubted
        if doubted:
            fixed = AsBuilt(lambda kind=kind: Typed(kind, torch.bfloat16), "module")
            with pytest.raises(UserError, match="cannot process") as refusal:
                SupervisedTask(dataset, partition, fixed, dtype=dtype)
            assert f"of type {name} are converted to float32" in str(refusal.value.hint)
