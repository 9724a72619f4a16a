"""Gradients of any module, client by client, on views of the flat vectors or on copies in channels-last order."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from fedsim.learning.device import Execution
from fedsim.learning.kernels.base import Correction
from fedsim.learning.kernels.supervised import SupervisedKernel, SupervisedSession
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.modules.checks import Constants, channels_last
from fedsim.tasks.modules.dropout import KeyedDropout
from fedsim.vocabulary.arrays import Ints


class BoundModule:
    """A copy of a task's module whose parameters and buffers can be views of a row of a weight matrix."""

    def __init__(self, task: SupervisedTask, execution: Execution) -> None:
        self.module = copy.deepcopy(task.module).to(execution.device, execution.dtype)
        self.drops = task.drops
        self._generator = torch.Generator(execution.device) if self.drops else None
        self.dropout = KeyedDropout(self._generator) if self._generator else nullcontext()
        self.channels_last = execution.device.type == "cpu" and task.takes_channels_last
        parameters = dict(self.module.named_parameters())
        buffers = dict(self.module.named_buffers())
        layout = task.layout
        self._tensors = [parameters.get(name, buffers.get(name)) for name in layout.names]
        self._layout = layout
        sent = [parameters[name] for name in layout.names if name in parameters]
        self.parameters = [value for value in sent if value.requires_grad]
        self._constants = Constants(self.module, layout.names, task.model.name)

    def views(self, row: Tensor) -> list[Tensor]:
        """The parts of ``row`` (P,) in the order of the layout; buffers last."""
        return list(self._layout.views(row).values())

    def bind(self, views: list[Tensor]) -> None:
        """Use these views as parameters and buffers."""
        for tensor, view in zip(self._tensors, views, strict=True):
            assert tensor is not None
            tensor.data = view

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs of the module for these inputs.

        Raises:
            UserError: the module has changed a buffer that is not part of the model's vector.
        """
        if self.channels_last:
            inputs = channels_last(inputs)
        result: Tensor = self.module(inputs)
        self._constants.check()
        return result

    def seed_dropout(self, seed: int) -> None:
        """Make the masks of the next forward pass a function of ``seed`` alone."""
        assert self._generator is not None
        self._generator.manual_seed(seed)


class BoundModules:
    """Copies of a task's module for evaluation; each is used by one thread at a time."""

    def __init__(self, task: SupervisedTask, execution: Execution) -> None:
        self._task = task
        self._execution = execution
        self._idle: list[BoundModule] = []

    @contextmanager
    def at(self, model: Tensor) -> Iterator[BoundModule]:
        """A copy whose parameters are views of ``model`` (P,)."""
        bound = self._idle.pop() if self._idle else BoundModule(self._task, self._execution)
        bound.module.eval()
        bound.bind(bound.views(model.contiguous()))
        yield bound
        self._idle.append(bound)


class _LoopSession(SupervisedSession["LoopKernel"]):
    def __init__(self, kernel: LoopKernel, *dispatches: Any) -> None:
        super().__init__(kernel, *dispatches)
        self._bound, self._loss, self._masks = kernel.bound, kernel.task.loss, kernel.masks
        autocast, device = kernel.execution.autocast, kernel.execution.device.type
        self._reduced = torch.autocast(device, autocast) if autocast else nullcontext()
        self._views: list[list[Tensor]] = []
        self._copies: list[Tensor] = []
        self._gradient_of_mean: dict[int, Tensor] = {}

    def _on_draw(self) -> None:
        # All at once, because it waits for the device.
        self._counts: list[list[int]] = self._sizes.tolist()

    @torch.enable_grad()  # Once for all steps: outside of the module, no tensor requires gradients.
    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        losses = []
        self._views = self._views or [self._bound.views(weight) for weight in weights]
        for row in range(len(weights)):
            numbers, _ = self.draw(step, len(weights))
            inputs = self.inputs(step, numbers[None, row : row + 1], first=row)
            labels = self._labels[step - self._first, row]
            self._bound.bind(self._views[row])
            parts, gradients = self._backward(step, row, inputs, labels)
            targets = self._bound.views(out[row])[: len(gradients)]
            torch._foreach_copy_(targets, gradients)
            losses.append(self._reported(*parts))
        return torch.stack(losses).to(weights.dtype)

    @torch.enable_grad()
    def descend(
        self, weights: Tensor, rates: Tensor, active: Ints, correction: Correction | None = None
    ) -> Tensor:
        losses, factors = weights.new_zeros(len(weights)), rates.neg().unsqueeze(1)
        alphas = rates.neg().tolist()
        for rows, begin, end in self.pieces(active):
            row, alpha = rows.start, alphas[rows.start]
            model, total, of_row = weights[row], losses[row], correction and correction.of(row)
            views = trained = moved = self._bound.views(model)
            if of_row:
                moved = self._bound.views(of_row.change)
            elif self._bound.channels_last:
                # Copies in the order of the images, which every step would otherwise make, and aligned.
                self._copies = self._copies or [channels_last(view.clone()) for view in views]
                trained = moved = self._copies
                torch._foreach_copy_(trained, views)
            self._bound.bind(trained)
            at = slice(begin - self._first, end - self._first)
            inputs = self.inputs(begin, self._rows[at, rows], first=row)
            if self._bound.channels_last:
                inputs = channels_last(inputs)
            batches = zip(
                torch.split(inputs, self.width), self._labels[at, row].unbind(), strict=True
            )
            reports = []
            for step, batch in enumerate(batches, begin):
                parts, gradients = self._backward(step, row, *batch)
                if of_row:
                    of_row.pull(model, factors[row])
                torch._foreach_add_(moved[: len(gradients)], gradients, alpha=alpha)
                if of_row:
                    of_row.shift(model, factors[row])
                reports.append(parts)
                del gradients  # The next step takes the memory, which is in the cache.
            # Together, because the first mean after a backward pass takes ten times as long as the next one.
            for parts in reports:
                total += self._reported(*parts)
            if trained is not views:
                torch._foreach_copy_(views, trained)
        return losses

    def _backward(
        self, step: int, row: int, inputs: Tensor, labels: Tensor
    ) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Losses of a mini-batch (width, ...) without padding, with the penalty if there is one, and gradients."""
        count = self._counts[step - self._first][row]
        if count < self.width:
            # Without padding, which must not enter the statistics of normalization layers.
            inputs, labels = inputs[:count], labels[:count]
        bound = self._bound
        if bound.drops:
            bound.seed_dropout(self.dropout_seed(step, row))
        with self._reduced, bound.dropout:
            outputs = bound.forward(inputs)
            if self._masks is not None:
                outputs = outputs * self._masks[self._clients[row]]
            parts = [self._loss.per_sample(outputs, labels)]
            if self._loss.penalty:
                parts.append(self._loss.penalties(bound.parameters))
        if count not in self._gradient_of_mean:
            self._gradient_of_mean[count] = torch.full_like(parts[0], 1 / count)
        shares = [self._gradient_of_mean[count], None][: len(parts)]
        # Zeros for parameters that this mini-batch does not use.
        gradients = torch.autograd.grad(parts, bound.parameters, shares, materialize_grads=True)
        return [part.detach() for part in parts], gradients

    def _reported(self, losses: Tensor, *penalty: Tensor) -> Tensor:
        return self._kernel.reported(sum(penalty, losses.mean()), losses)


class LoopKernel(SupervisedKernel):
    """Automatic differentiation client by client, for any module."""

    name = "loop"
    revision = 2
    group_invariant = True
    fused = True
    client_by_client = True
    session_class = _LoopSession

    def prepare(self) -> None:
        self.bound = BoundModule(self.task, self.execution)
        self.bound.module.train()
        masks, execution = self.task.class_masks, self.execution
        self.masks = (
            None if masks is None else torch.from_numpy(masks).to(execution.device, execution.dtype)
        )

    @property
    def corrects(self) -> bool:
        """Whether training changes no buffers, which have no gradient to correct."""
        return not self.task.layout.buffers
