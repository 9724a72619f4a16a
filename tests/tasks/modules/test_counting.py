"""Operations counted by running a module."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedsim.tasks.losses import Loss
from fedsim.tasks.modules.counting import count_flops
from tests.tasks.toys import characters, task, toy_dataset


def test_flops_are_those_counted_by_hand() -> None:
    # Linear layers: 2 m n forward, 2 m n for the weights' gradient, 2 m n for the inputs' (not in the first layer).
    assert task(toy_dataset(), "logistic_regression").flops_per_sample() == 4 * 64 * 10
    assert task(toy_dataset(), "mlp", hidden=[20]).flops_per_sample() == 4 * 64 * 20 + 6 * 20 * 10
    # One 3 x 3 convolution, 1 to 2 channels, 8 x 8 positions: forward and weights' gradient.
    convolution = 2 * (2 * 9 * 2 * 64)
    second = 3 * (2 * 2 * 9 * 2 * 16)
    problem = task(toy_dataset(), "cnn", channels=(2, 2), kernel=3, hidden=[])
    assert problem.flops_per_sample() == convolution + second + 6 * 8 * 10


def test_counting_does_not_import_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # importing it fails
    assert task(toy_dataset(), "mlp", hidden=[20]).flops_per_sample() > 0


@pytest.mark.parametrize("model", ["cnn", "char_lstm", "char_transformer", "resnet20"])
def test_flops_are_those_that_torch_counts(model: str) -> None:
    problem = task(characters() if model.startswith("char") else toy_dataset(), model)
    inputs, labels = problem.inputs(problem.train_x[:2]), problem.train_y[:2]
    with FlopCounterMode(display=False) as counter:
        loss = problem.loss.per_sample(problem.module.eval()(inputs), labels).sum()
        torch.autograd.grad(loss, list(problem.module.parameters()), allow_unused=True)
    assert problem.flops_per_sample() == counter.get_total_flops() // 2


def test_fused_attention_is_counted() -> None:
    """softmax(q k') v with q = x w, k = v = x: 4 L^2 d forward, 4 L^2 d backward to q, and 2 L d^2 each for q and w."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.eye(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x @ self.w, x, x)[:, 0]

    length, width = 6, 8
    flops = count_flops(Attention(), Loss(), torch.rand(2, length, width), torch.tensor([0, 1]))
    assert flops == 8 * length**2 * width + 4 * length * width**2
