"""Convolutional networks: the built-in models, corrections of the steps, and models that the kernel refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsim.catalog import CATALOG
from fedsim.learning.kernels import ConvStackKernel
from fedsim.learning.kernels.base import Correction, Pull, Shift
from fedsim.learning.local_training import active_rows
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.losses import Loss
from fedsim.tasks.partition import Partition
from fedsim.tasks.sequential import Dropout, SequentialModel
from tests.learning.kernels.building import build, models_of, run_gradients
from tests.learning.problems import Layers, supervised_task

CLIENTS, STEPS = np.array([1, 0]), np.array([3, 2])
BUILT_IN = {
    name: part for name, part in CATALOG.parts("model").items() if issubclass(part, SequentialModel)
}


def task_of(name: str, channels: int) -> SupervisedTask:
    """Images with an odd number of rows, so that pooling drops some; a client has less than a batch."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((31, channels, 29, 29), dtype=np.float32)
    y = rng.integers(0, 10, 31)
    dataset = Dataset(name="images", train_x=x, train_y=y, test_x=x, test_y=y, classes=10)
    part = BUILT_IN[name]
    return SupervisedTask(
        dataset,
        Partition(np.array([0, 11, 31]), rng.permutation(31)),
        part(part.Params()),
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_networks_have_the_gradients_of_autograd(name: str, channels: int) -> None:
    task = task_of(name, channels)
    has_dropout = any(isinstance(layer, Dropout) for layer in task.model.layers())
    assert ConvStackKernel.fits(task) is not has_dropout
    if has_dropout:
        return
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-5)):
        weights = models_of(task, 2, dtype)
        found, expected = (
            run_gradients(build(kind, task, dtype), weights, CLIENTS, STEPS)
            for kind in ("conv_stack", "loop")
        )
        for one, other in zip(found, expected, strict=True):
            scale = float(other.abs().max())
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("kind", ["pull", "shift"])
def test_corrected_steps_are_steps_with_corrected_gradients(kind: str) -> None:
    task = supervised_task("layers")
    clients, steps = np.array([5, 3, 2]), np.array([4, 3, 3])
    weights = models_of(task, 3, torch.float64)
    rates = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    other = torch.randn(
        weights.shape, generator=torch.Generator().manual_seed(2), dtype=weights.dtype
    )
    correction: Correction = (
        Pull(other, 0.3)
        if kind == "pull"
        else Shift(other, weights.clone(), torch.zeros_like(weights))
    )
    moved, followed, out = weights.clone(), weights.clone(), torch.zeros_like(weights)
    taken, kernel = build("conv_stack", task, torch.float64), build("loop", task, torch.float64)
    active = active_rows(steps)
    with torch.no_grad():
        taken.session(clients, np.zeros(3, int), steps, 0).descend(moved, rates, active, correction)
    session = kernel.session(clients, np.zeros(3, int), steps, 0)
    for step, rows in enumerate(active.tolist()):
        with torch.no_grad():
            session.gradients(step, followed[:rows], out[:rows])
            added = 0.3 * (followed - other) if kind == "pull" else other
            followed[:rows] -= rates[:rows, None] * (out[:rows] + added[:rows])
    torch.testing.assert_close(moved, followed, atol=1e-13, rtol=1e-12)
    if isinstance(correction, Shift):
        torch.testing.assert_close(weights + correction.change, moved, atol=0, rtol=0)


class OwnModule(Layers):
    """A model of the same layers that builds something else."""

    def build(self, dataset: Dataset) -> torch.nn.Module:
        return torch.nn.Sequential(super().build(dataset), torch.nn.Tanh())


def test_other_models_and_losses_are_not_for_the_kernel() -> None:
    task = supervised_task("layers")
    assert ConvStackKernel.fits(task)
    assert not ConvStackKernel.fits(supervised_task("conv"))
    task.loss = Loss(penalty=0.1)
    assert not ConvStackKernel.fits(task)
    task = supervised_task("layers")
    task.model = OwnModule()
    assert not ConvStackKernel.fits(task)
