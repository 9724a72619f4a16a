"""The binary linear model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import functional_call

from fedsim.tasks.modules.split_linear import SplitLinear
from tests.tasks.toys import task, toy_dataset


def test_the_split_linear_model_is_the_papers_objective() -> None:
    dataset = toy_dataset(samples=30, shape=(6,))
    problem = task(dataset, "linear", positive=[1, 3, 5, 7, 9], personal_features=2, penalty=0.1)
    assert problem.layout.names == ("shared", "personal")
    flat = torch.linspace(-1, 1, 6)
    u, v = flat[:4], flat[4:]
    x = problem.inputs(problem.train_x)
    outputs = functional_call(problem.module, problem.layout.views(flat), (x,))
    sign = torch.where(problem.train_y % 2 == 1, 1.0, -1.0)
    by_hand = torch.log1p(torch.exp(-sign * (x[:, :4] @ u + x[:, 4:] @ v)))
    assert torch.allclose(problem.loss.per_sample(outputs, problem.train_y), by_hand, atol=1e-6)
    penalty = problem.loss.penalties(problem.layout.views(flat).values())
    expected = 0.1 * (u @ u / (1 + u @ u) + v @ v / (1 + v @ v))
    assert float(penalty) == pytest.approx(float(expected))
    assert (
        problem.loss.predictions(outputs) == problem.loss.targets(problem.train_y)
    ).float().mean() == (torch.sign(outputs.squeeze(1)) == sign).float().mean()


def test_features_can_be_dealt_at_random_and_scaled_to_unit_norm() -> None:
    def module(**params: Any) -> SplitLinear:
        built = task(toy_dataset(shape=(50,)), "linear", **params).module
        assert isinstance(built, SplitLinear)
        return built

    shuffled = module(shuffle_features=True, personal_features=20)
    assert sorted(shuffled.order.tolist()) == list(range(50))
    assert shuffled.order.tolist() != list(range(50))
    assert torch.equal(module(shuffle_features=True).order, shuffled.order)
    scaled = module(unit_norm=True)
    torch.nn.init.ones_(scaled.shared)
    inputs = torch.rand(3, 50, generator=torch.Generator().manual_seed(0))
    expected = inputs.sum(1) / inputs.norm(dim=1)
    assert torch.allclose(scaled(inputs).squeeze(1), expected)
