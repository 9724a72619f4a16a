"""Gradients of any module for all clients of a group at once, by ``torch.func``."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fedsim.learning.batches import BatchOrder
from fedsim.learning.device import Execution
from fedsim.learning.kernels.base import Correction
from fedsim.learning.kernels.convolutions import BatchedConvolutions
from fedsim.learning.kernels.replay import Replay
from fedsim.learning.kernels.supervised import StackedSession, SupervisedKernel
from fedsim.learning.samples import Samples
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.modules.checks import Constants
from fedsim.tasks.modules.dropout import KeyedDropout, StackedGenerators

_CPU_GROUP = 8
# On CUDA, the clients of models with so much work per local step are differentiated one by one, on several streams at
# once: one client then occupies a good part of the GPU, and stacked operations would only move more memory (measured on
# an H200 between a CNN of 0.5 and a ResNet of 67 GFLOP per step).
_SEPARATE_FLOPS = 10_000_000_000
_STREAMS = 8


class _VmapSession(StackedSession["VmapKernel"]):
    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        kernel, active = self._kernel, len(weights)
        if kernel.drops:
            seeds = [self.dropout_seed(step, row) for row in range(active)]
            sizes = self.draw(step, active)[1].clamp(min=1).tolist()
            kernel.generators.seed(seeds, sizes, self.width)
        return super().gradients(step, weights, out)


class VmapKernel(SupervisedKernel):
    """Automatic differentiation of all clients in one program, for CUDA.

    Clients of small models are vectorized, because a step of one does not fill the device, with convolutions as batched
    matrix products; see :mod:`fedsim.learning.kernels.convolutions`. Those of large models are differentiated one by
    one, on several streams.

    Padding participates in the forward pass with weight zero, so modules must treat samples independently (no batch
    normalization). Dropout masks are those of the kernel ``loop``; a step that draws them cannot be recorded.
    """

    name = "vmap"
    revision = 2
    # The algorithm of convolutions depends on the number of clients.
    group_invariant = False
    recorded = True
    session_class = _VmapSession

    def prepare(self) -> None:
        """Make a function of the module, and the generators of its dropout masks."""
        self.drops = self.task.drops
        if self.drops:
            self.recorded = False
            self.replay = Replay(self.execution.device, records=False)
        execution = self.execution
        module = copy.deepcopy(self.task.module).to(execution.device, execution.dtype).train()
        loss = self.task.loss
        self.generators = generators = StackedGenerators(execution.device)
        keyed_dropout = KeyedDropout(generators) if self.drops else nullcontext()
        self._constants = Constants(module, self.task.layout.names, self.task.model.name)

        def mean_loss(
            parameters: dict[str, Tensor], inputs: Tensor, labels: Tensor, mean_weights: Tensor
        ) -> tuple[Tensor, Tensor]:
            generators.anchor = mean_weights
            with keyed_dropout:
                outputs = functional_call(module, parameters, (inputs,))
            losses = loss.per_sample(outputs, labels)
            total = (losses * mean_weights).sum()
            if loss.penalty:
                total = total + loss.penalties(parameters.values())
            return total, self.reported(total, losses, mean_weights)

        self._single = grad_and_value(mean_loss, has_aux=True)
        self.function = vmap(self._single)
        self.separate = False
        if execution.device.type == "cuda" and not self.drops:
            work = int(self.task.flops_per_sample() or 0) * self.order.batch_size
            self.separate = work >= _SEPARATE_FLOPS
        self._streams: list[torch.cuda.Stream] = []
        self.fused = execution.device.type == "cuda" and not self.drops

    def differentiate(
        self, weights: Tensor, out: Tensor, inputs: Tensor, labels: Tensor, mean_weights: Tensor
    ) -> Tensor:
        """Write the gradients at ``weights`` (b, P) into ``out``; returns losses as :meth:`Session.gradients`."""
        autocast, device = self.execution.autocast, weights.device.type
        # A recording must not depend on casts of another step.
        reduced = (
            torch.autocast(device, autocast, cache_enabled=False) if autocast else nullcontext()
        )
        with reduced:
            losses = weights.new_empty(len(weights))
            if self.separate:
                for row in self._spread(len(weights)):
                    self._differentiate(
                        self._single,
                        *(weights[row], out[row], losses[row]),
                        *(inputs[row], labels[row], mean_weights[row]),
                    )
            else:
                with BatchedConvolutions():
                    self._differentiate(
                        self.function, weights, out, losses, inputs, labels, mean_weights
                    )
        self._constants.check()
        return losses

    def take_steps(
        self, models: Tensor, factors: Tensor, *batch: Tensor, correction: Correction | None = None
    ) -> Tensor:
        losses = []
        for of_step in zip(*batch, strict=True):
            gradients = torch.zeros_like(models)
            losses.append(self.differentiate(models, gradients, *of_step))
            models.addcmul_(gradients, factors)
        return torch.stack(losses)

    def _differentiate(
        self, function: Any, weights: Tensor, out: Tensor, losses: Tensor, *mini_batches: Tensor
    ) -> None:
        layout = self.task.layout
        gradients, (_, values) = function(layout.views(weights), *mini_batches)
        targets = layout.views(out)
        for name, gradient in gradients.items():
            targets[name].copy_(gradient)
        losses.copy_(values)

    def _spread(self, rows: int) -> Iterator[int]:
        """The numbers of the rows, each inside the context of one of several streams."""
        while len(self._streams) < _STREAMS:
            self._streams.append(torch.cuda.Stream(self.execution.device))  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(self.execution.device)
        for stream in self._streams:
            stream.wait_stream(current)
        for first, stream in enumerate(self._streams):
            with torch.cuda.stream(stream):
                yield from range(first, rows, _STREAMS)
        for stream in self._streams:
            current.wait_stream(stream)

    @staticmethod
    def misfit(task: SupervisedTask) -> str | None:
        """Why the clients of a task cannot be trained together; None if they can."""
        if task.class_masks is not None:
            return "the masked loss of server.submodels differs between them"
        if task.layout.buffers:
            return (
                f"training changes its buffers ({task.layout.buffers[0]}), such as the statistics of batch "
                "normalization, client by client; use group normalization"
            )
        execution = Execution(torch.device("cpu"), torch.float32, None, 1)
        samples = Samples(task, task.train_x[:1], task.train_y[:1], execution)
        order = BatchOrder(0, task.offsets[:2], task.rows[:1], 1, execution.device)
        kernel = VmapKernel(samples, order)
        kernel.generators.seed([0, 0], [2, 2], 2)
        inputs = samples.x.expand(2, 2, *samples.x.shape[1:])
        labels, mean_weights = samples.y.expand(2, 2), torch.ones(2, 2)
        try:
            kernel.function(
                task.layout.views(torch.zeros(2, task.layout.size)), inputs, labels, mean_weights
            )
        # A module that works elsewhere may raise any exception here.
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            return f"torch.func.vmap cannot run it ({type(error).__name__}: {text})"
        return None

    def largest_group(self) -> int:
        """A part of the GPU's memory; a few clients on CPU."""
        if self.execution.device.type == "cuda":
            return self.cuda_group(self.task.activations_per_sample())
        return _CPU_GROUP
