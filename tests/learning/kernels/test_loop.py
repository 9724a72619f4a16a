"""The kernel that takes clients one by one: dropout, modules with branches, random numbers that are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim.learning.device import Execution
from fedsim.learning.kernels.loop import BoundModule
from fedsim.tasks.modules.dropout import KeyedDropout, seed_dropout
from tests.learning.kernels.building import build, models_of, run_gradients
from tests.learning.problems import MODELS, SHAPE, make_training, supervised_task


def test_dropout_masks_follow_client_sequence_and_step() -> None:
    task = supervised_task("dropout", sizes=(50,) * 4)
    kernel = build("loop", task)
    weights = models_of(task, 4, torch.float32)
    clients, steps = np.arange(4), np.full(4, 2)
    first = run_gradients(kernel, weights, clients, steps)
    again = run_gradients(kernel.replica(), weights[2:], clients[2:], steps[2:])
    assert torch.equal(first[3], again[1])
    same_batch = supervised_task("conv", sizes=(50,) * 4)
    plain = run_gradients(build("loop", same_batch), weights, clients, steps)
    assert not torch.allclose(first[3], plain[3])


class Hidden(torch.nn.Module):
    """Drops inputs by a function of torch."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function
        self.layer = torch.nn.Linear(int(np.prod(SHAPE)), 5)

    def forward(self, inputs: Tensor) -> Tensor:
        function = getattr(torch.nn.functional, self.function)
        dropped: Tensor = function(inputs.flatten(1), 0.5, self.training)
        return self.layer(dropped)  # type: ignore[no-any-return]


def test_functional_dropout_is_a_function_of_the_seed() -> None:
    """As a dropout layer in the same place draws, bit for bit."""
    task = supervised_task("linear")
    task.module = Hidden("dropout").train()
    execution = Execution.of(make_training())
    bound = BoundModule(task, execution)
    bound.module.train()
    inputs = torch.rand(4, *SHAPE, dtype=execution.dtype)
    before = torch.get_rng_state()
    bound.seed_dropout(7)
    outputs = bound.forward(inputs)
    bound.seed_dropout(7)
    assert torch.equal(bound.forward(inputs), outputs)
    assert not torch.equal(bound.forward(inputs), outputs)
    assert torch.equal(before, torch.get_rng_state())
    layer = KeyedDropout(0.5)
    seed_dropout(layer, 7)
    assert torch.equal(bound.module.layer(layer(inputs.flatten(1))), outputs)
    bound.module.eval()
    assert torch.equal(bound.forward(inputs), bound.module.layer(inputs.flatten(1)))


class Branching(nn.Module):
    """Batches whose sum is negative do not use the second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 5), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.first(x) if x.sum() < 0 else self.first(x) + self.second(x)


def test_parameters_that_a_batch_does_not_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "branching", (Branching, "module"))  # type: ignore[arg-type]
    task = supervised_task("branching")
    task.train_x[:] = -task.train_x.abs()
    kernel = build("loop", task)
    weights = models_of(task, 2, torch.float32)
    before = weights.clone()
    with torch.no_grad():
        session = kernel.session(np.arange(2), np.zeros(2, int), np.array([2, 2]), 0)
        session.descend(weights, torch.full((2,), 0.1), np.array([2, 2]))
    first, second = slice(0, 325), slice(325, 650)
    assert not torch.equal(weights[:, first], before[:, first])
    assert torch.equal(weights[:, second], before[:, second])
