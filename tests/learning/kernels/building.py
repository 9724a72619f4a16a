"""Kernels of small tasks, models near the initial one, and their gradients over several steps."""

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.batches import BatchOrder
from fedsim.learning.device import Execution
from fedsim.learning.kernels import (
    Kernel,
    LinearStackKernel,
    LoopKernel,
    SplitLinearKernel,
    VmapKernel,
)
from fedsim.learning.samples import Samples
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.datasets.generated import ShiftedLogistic
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.models.mlp import Linear
from fedsim.tasks.partition import Partition
from fedsim.vocabulary.metrics import DispatchLoss
from tests.learning.problems import SEED, module_at

BATCH = 16


def build(
    kind: str,
    task: SupervisedTask,
    dtype: torch.dtype = torch.float32,
    *,
    dispatch_loss: DispatchLoss = "mean",
    autocast: torch.dtype | None = None,
) -> Kernel:
    execution = Execution(torch.device("cpu"), dtype, autocast, 1)
    samples = Samples(task, task.train_x, task.train_y, execution)
    order = BatchOrder(SEED, task.offsets, task.rows, BATCH, execution.device)
    kinds = {
        "linear_stack": LinearStackKernel,
        "split_linear": SplitLinearKernel,
        "vmap": VmapKernel,
        "loop": LoopKernel,
    }
    return kinds[kind](samples, order, dispatch_loss=dispatch_loss)


def models_of(task: SupervisedTask, count: int, dtype: torch.dtype) -> Tensor:
    stream = Stream(SEED, Purpose.INITIAL_MODEL)
    rows = torch.stack([task.initial(stream, dtype)] * count)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    rows[:, : task.layout.trainable] += 0.1 * noise[:, : task.layout.trainable]
    return rows


def oracle(task: SupervisedTask, model: Tensor, rows: list[int]) -> tuple[Tensor, Tensor]:
    """Loss and gradient of one mini-batch by an ordinary module and automatic differentiation."""
    module = module_at(task, model)
    inputs = task.inputs(task.train_x[rows], model.dtype)
    loss = task.loss.per_sample(module(inputs), task.train_y[rows]).mean()
    if task.loss.penalty:
        loss = loss + task.loss.penalties(module.parameters())
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    return loss.detach(), torch.cat([gradient.reshape(-1) for gradient in gradients])


def squares_of(task: SupervisedTask, model: Tensor, rows: list[int]) -> Tensor:
    """Sum of squared losses of samples, without the penalty."""
    module = module_at(task, model)
    with torch.no_grad():
        inputs = task.inputs(task.train_x[rows], model.dtype)
        return task.loss.per_sample(module(inputs), task.train_y[rows]).square().sum()


def run_gradients(
    kernel: Kernel, weights: Tensor, clients: np.ndarray, steps: np.ndarray
) -> list[Tensor]:
    """Every client's gradients over all its steps at a fixed model."""
    session = kernel.session(clients, np.full(len(clients), 2), steps, 0)
    collected: list[list[Tensor]] = [[] for _ in clients]
    for step in range(int(steps[0])):
        active = int((steps > step).sum())
        out = torch.zeros_like(weights[:active])
        with torch.no_grad():
            session.gradients(step, weights[:active], out)
        for row in range(active):
            collected[row].append(out[row])
    return [torch.stack(gradients) for gradients in collected]


def binary_task(**params: object) -> SupervisedTask:
    """Five clients, of which two have less than a batch, with a model that has every option."""
    dataset = ShiftedLogistic(ShiftedLogistic.Params(groups=5, samples=37, features=11)).load()
    owned = np.array([0, 9, 46, 83, 97, 185])
    partition = Partition(owned, np.random.default_rng(2).permutation(185))
    return SupervisedTask(dataset, partition, Linear(Linear.Params(**params)))
