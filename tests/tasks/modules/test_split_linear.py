"""The linear model whose features several parts hold."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call

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
