"""Optimizers and clipping against torch.optim, and an optimizer from a file."""

from pathlib import Path

import numpy as np
import pytest
import torch

import fedsim
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


OPTIMIZER = '''
"""Sign descent."""
from fedsim.learning.optimizers import Optimizer, OptimizerParams


class SignParams(OptimizerParams):
    scale: float = 1.0
    """Factor on the rate."""


class Sign(Optimizer):
    """Steps of equal length in every coordinate."""

    Params = SignParams

    def step(self, weights, direction, rates, moved=None):
        target = weights if moved is None else moved
        target.sub_(rates * self.params.scale * direction.sign())
'''
RATE = '''
"""Rates that halve with every round."""
from fedsim.learning.rates import RateSchedule


class Halving(RateSchedule):
    """1, 1/2, 1/4, ..."""

    def factor(self, round_number, time_s):
        return 0.5**round_number
'''


def test_an_optimizer_and_a_rate_schedule_from_files(tmp_path: Path) -> None:
    """Two clients at 100 descend |x - 100| from 0 by sign: 3 steps per round of 2 x 1, then of 2 x 1/2."""
    (tmp_path / "my_opt.py").write_text(OPTIMIZER)
    (tmp_path / "my_rate.py").write_text(RATE)
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "task: {name: quadratic, centers: [100, 100]}\n"
        "training:\n  optimizer: {name: 'my_opt.py:Sign', lr: 2, scale: 0.5}\n  lr_schedule: my_rate.py:Halving\n"
        "  local_steps: 3\n  dtype: float64\n"
        "devices: {compute: {name: values, step: 1s}, network: {down: 1Mbps, up: 1Mbps, latency: 0}}\n"
        "stop: {rounds: 2}\n"
    )
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.metrics["loss"].tolist() == [0.5 * (100 - x) ** 2 for x in (0.0, 3.0, 4.5)]
    assert set(run.info["user_code"]) == {
        f"{tmp_path}/my_opt.py:Sign",
        f"{tmp_path}/my_rate.py:Halving",
    }
