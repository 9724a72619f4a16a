"""Optimizers and clipping against torch.optim."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsim.parts.catalog import CATALOG
from tests.learning.problems import descended, make_training, supervised_task, train

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
    expected, losses = descended(task, 3, 7, theirs)
    torch.testing.assert_close(trained.model[0], expected, atol=1e-11, rtol=1e-11)
    mean = np.mean([each.mean().item() for each in losses])
    assert trained.loss[0].item() == pytest.approx(mean, rel=1e-12)


def test_clipping_is_that_of_torch() -> None:
    task = supervised_task("mlp")
    training = make_training(dtype="float64", clip_norm=0.05)
    _, trained = train(task, training, [3], [7])
    expected, _ = descended(task, 3, 7, OPTIMIZERS["sgd"][1], clip=0.05)
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
