"""Optimizers and clipping against torch.optim."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.learning.batches import BatchOrder
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.kinds.supervised import SupervisedTask
from tests.learning.problems import F64, SEED, make_training, supervised_task, train


def reference(
    task: SupervisedTask, client: int, steps: int, make_optimizer: Any, clip: float | None = None
) -> tuple[Tensor, float]:
    """The same training by a module, an optimizer and backward()."""
    module = copy.deepcopy(task.module).double().train()
    start = task.initial(Stream(SEED, Purpose.INITIAL_MODEL), F64)
    with torch.no_grad():
        for name, value in task.layout.views(start).items():
            module.state_dict()[name].copy_(value)
    optimizer = make_optimizer(module.parameters())
    order = BatchOrder(SEED, task.offsets, task.rows, 16, torch.device("cpu"))
    batches = order.batches(np.array([client]), np.array([0]), first=0, last=steps)
    losses = []
    for step in range(steps):
        rows = batches.rows[step, 0, : int(batches.counts[step, 0])]
        optimizer.zero_grad()
        loss = task.loss.per_sample(
            module(task.inputs(task.train_x[rows], F64)), task.train_y[rows]
        ).mean()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return task.layout.flatten(module), float(np.mean(losses))


OPTIMIZERS = {
    "sgd": ({"name": "sgd", "lr": 0.1}, lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (
        {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ),
    "nesterov": (
        {"name": "sgd", "lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
    ),
    "decay": (
        {"name": "sgd", "lr": 0.1, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    ),
    "adam": (
        {"name": "adam", "lr": 0.1, "beta1": 0.8, "weight_decay": 0.01},
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.999), weight_decay=0.01),
    ),
    "adamw": (
        {"name": "adamw", "lr": 0.1, "weight_decay": 0.1},
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("model", ["mlp", "batch_norm"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_those_of_torch(name: str, model: str) -> None:
    task = supervised_task(model)
    ours, theirs = OPTIMIZERS[name]
    training = make_training(optimizer=ours, dtype="float64")
    _, trained = train(task, training, [3], [7])
    expected, loss = reference(task, 3, 7, theirs)
    torch.testing.assert_close(trained.model[0], expected, atol=1e-11, rtol=1e-11)
    assert trained.loss[0].item() == pytest.approx(loss, rel=1e-12)


def test_clipping_is_that_of_torch() -> None:
    task = supervised_task("mlp")
    training = make_training(dtype="float64", clip_norm=0.05)
    _, trained = train(task, training, [3], [7])
    expected, _ = reference(task, 3, 7, OPTIMIZERS["sgd"][1], clip=0.05)
    torch.testing.assert_close(trained.model[0], expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(("optimizer", "penalty"), [("sgd", 0.25), ("adam", 0.25), ("adamw", 0.0)])
def test_only_decay_that_enters_the_direction_is_a_penalty(optimizer: str, penalty: float) -> None:
    """From weights (2, -4) without a gradient: the direction becomes penalty x weights."""
    kind = CATALOG.parts("optimizer")[optimizer]
    made = kind(kind.Params(weight_decay=0.25))
    direction = torch.zeros(1, 2)
    made.step(torch.tensor([[2.0, -4.0]]), direction, torch.full((1, 1), 0.1))
    assert made.penalty == penalty
    assert direction.tolist() == [[2.0 * penalty, -4.0 * penalty]]
