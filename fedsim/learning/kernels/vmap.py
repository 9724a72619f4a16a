"""Gradients of any module for all clients of a group at once, by ``torch.func``."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fedsim.learning.batches import BatchOrder
from fedsim.learning.device import Execution
from fedsim.learning.kernels.supervised import StackedSession, SupervisedKernel
from fedsim.learning.samples import Samples
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.modules.constants import Constants
from fedsim.tasks.modules.dropout import has_dropout

_CPU_GROUP = 8


class _VmapSession(StackedSession["VmapKernel"]):
    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        kernel = self._kernel
        return kernel.replay(kernel.differentiate, (weights, out), self.padded(step, len(weights)))


class VmapKernel(SupervisedKernel):
    """Vectorized automatic differentiation, for CUDA, because a step of one small model does not fill the device.

    Padding participates in the forward pass with weight zero, so modules must treat samples independently (no batch
    normalization) and draw no random numbers.
    """

    name = "vmap"
    revision = 1
    # The algorithm of convolutions depends on the number of clients.
    group_invariant = False
    recorded = True
    session_class = _VmapSession

    def __init__(
        self, samples: Samples, order: BatchOrder, *, squared_losses: bool = False
    ) -> None:
        super().__init__(samples, order, squared_losses=squared_losses)
        execution = self.execution
        module = copy.deepcopy(self.task.module).to(execution.device, execution.dtype).train()
        loss = self.task.loss
        self._constants = Constants(module, self.task.layout.names, self.task.model.name)

        def mean_loss(
            parameters: dict[str, Tensor], inputs: Tensor, labels: Tensor, mean_weights: Tensor
        ) -> tuple[Tensor, Tensor]:
            outputs = functional_call(module, parameters, (inputs,))
            losses = loss.per_sample(outputs, labels)
            total = (losses * mean_weights).sum()
            if loss.penalty:
                total = total + loss.penalties(parameters.values())
            if squared_losses:
                return total, (losses.square() * mean_weights.sign()).sum()
            return total, total

        self.function = vmap(grad_and_value(mean_loss, has_aux=True))

    def differentiate(
        self, weights: Tensor, out: Tensor, inputs: Tensor, labels: Tensor, mean_weights: Tensor
    ) -> Tensor:
        """Write the mini-batch gradients of b clients into ``out``.

        Args:
            weights, out: (b, P).
            inputs, labels: those of the samples, (b, width, ...).
            mean_weights: weight of each position in its batch's mean, (b, width).

        Returns:
            Losses, as :meth:`Session.gradients`, (b,).
        """
        layout, autocast = self.task.layout, self.execution.autocast
        with (
            # A recording must not depend on casts of another step.
            torch.autocast(weights.device.type, autocast, cache_enabled=False)
            if autocast is not None
            else nullcontext()
        ):
            gradients, (_, losses) = self.function(
                layout.views(weights), inputs, labels, mean_weights
            )
        self._constants.check()
        targets = layout.views(out)
        for name, gradient in gradients.items():
            targets[name].copy_(gradient)
        result: Tensor = losses.to(weights.dtype)
        return result

    @staticmethod
    def fits(task: SupervisedTask) -> bool:
        """Whether the module has no dropout and no buffers that training changes, and can be vectorized."""
        if task.layout.buffers or has_dropout(task.module) or task.functional_dropout:
            return False
        execution = Execution(torch.device("cpu"), torch.float32, None, 1)
        samples = Samples(task, task.train_x[:1], task.train_y[:1], execution)
        order = BatchOrder(0, task.offsets[:2], task.rows[:1], 1, execution.device)
        kernel = VmapKernel(samples, order)
        inputs = samples.x.expand(2, 2, *samples.x.shape[1:])
        labels, mean_weights = samples.y.expand(2, 2), torch.ones(2, 2)
        try:
            kernel.function(
                task.layout.views(torch.zeros(2, task.layout.size)), inputs, labels, mean_weights
            )
        # A module that works elsewhere may raise any exception here.
        except Exception:
            return False
        return True

    def largest_group(self) -> int:
        """A part of the GPU's memory; a few clients on CPU."""
        if self.execution.device.type == "cuda":
            return self.cuda_group(self.task.activations_per_sample())
        return _CPU_GROUP
