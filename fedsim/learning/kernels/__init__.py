"""Interchangeable gradient kernels, and the rule that chooses one."""

from __future__ import annotations

from fedsim.errors import UserError
from fedsim.learning.batches import Augmenter, BatchOrder
from fedsim.learning.device import Execution
from fedsim.learning.kernels.base import Kernel as Kernel
from fedsim.learning.kernels.linear_stack import LinearStackKernel
from fedsim.learning.kernels.loop import LoopKernel
from fedsim.learning.kernels.nested import NestedKernel as NestedKernel
from fedsim.learning.kernels.quadratic import QuadraticKernel
from fedsim.learning.kernels.split_linear import SplitLinearKernel
from fedsim.learning.kernels.supervised import SupervisedKernel
from fedsim.learning.kernels.vmap import VmapKernel
from fedsim.learning.samples import Samples
from fedsim.scenario.training import Training
from fedsim.tasks.base import AnalyticTask, Task
from fedsim.vocabulary.metrics import DispatchLoss


def choose(
    task: Task,
    training: Training,
    execution: Execution,
    samples: Samples | None,
    seed: int,
    *,
    dispatch_loss: DispatchLoss = "mean",
) -> Kernel:
    """The kernel for a task, by this rule.

    A task that knows its gradients in closed form takes ``quadratic``. Stacks of linear layers with cross-entropy take
    ``linear_stack``, and the binary linear model takes ``split_linear``, both only without autocast. Other modules take
    ``loop``, spread over worker threads, on CPU and ``vmap`` on CUDA. Modules with batch statistics, those with
    dropout, whose steps cannot be recorded, and those that cannot be vectorized take ``loop`` everywhere.
    ``training.executor`` overrides this: ``stacked`` takes ``linear_stack``, ``split_linear`` or ``vmap``, also with
    dropout; ``parallel`` and ``plain`` take ``loop``.
    """
    if isinstance(task, AnalyticTask):
        return QuadraticKernel(task, seed, dispatch_loss=dispatch_loss)
    if samples is None:
        raise TypeError(f"no kernel for {type(task).__name__}")
    task, executor, device = samples.task, training.executor, execution.device
    augmentation = training.augmentation
    augment = None if augmentation is None else Augmenter(augmentation, seed, device)
    given = seed, task.offsets, task.rows, training.batch_size, device, augment
    with_replacement = training.batches == "with_replacement"
    drops_last = training.last_batch == "drop"
    order = BatchOrder(*given, with_replacement=with_replacement, drops_last=drops_last)
    by_hand = executor in ("auto", "stacked") and task.by_hand
    exact = execution.autocast is None
    vectorized = executor == "stacked" or (
        executor == "auto" and device.type == "cuda" and not task.drops
    )
    kind: type[SupervisedKernel] = LoopKernel
    if by_hand and exact and LinearStackKernel.fits(task):
        kind = LinearStackKernel
    elif by_hand and exact and SplitLinearKernel.fits(task):
        kind = SplitLinearKernel
    elif vectorized and (misfit := VmapKernel.misfit(task)) is None:
        kind = VmapKernel
    elif executor == "stacked":
        raise UserError(
            f"model {task.model.name} cannot train several clients in one tensor program: {misfit}",
            where="training.executor",
            hint="use auto or parallel, which train the clients on worker threads",
        )
    return kind(samples, order, dispatch_loss=dispatch_loss)
