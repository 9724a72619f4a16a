"""Stacks of linear layers."""

from __future__ import annotations

import torch
from torch.func import functional_call

from tests.tasks.models.shapes import START
from tests.tasks.toys import task, toy_dataset


def test_linear_stacks_promise_weight_and_bias_in_order() -> None:
    problem = task(toy_dataset(), "mlp", hidden=[7, 5])
    assert problem.model_family == "mlp"
    assert [
        (name, shape)
        for name, shape in zip(problem.layout.names, problem.layout.shapes, strict=True)
    ] == [
        ("layers.0.weight", (7, 64)),
        ("layers.0.bias", (7,)),
        ("layers.1.weight", (5, 7)),
        ("layers.1.bias", (5,)),
        ("layers.2.weight", (10, 5)),
        ("layers.2.bias", (10,)),
    ]
    values = problem.layout.views(problem.initial(START))
    inputs = problem.inputs(problem.train_x[:3])
    hidden = inputs.flatten(1)
    for layer in range(2):
        hidden = torch.relu(
            hidden @ values[f"layers.{layer}.weight"].T + values[f"layers.{layer}.bias"]
        )
    expected = hidden @ values["layers.2.weight"].T + values["layers.2.bias"]
    assert torch.allclose(functional_call(problem.module, values, (inputs,)), expected)
    assert task(toy_dataset(), "logistic_regression").model_family == "linear"
