"""Gradients of any module, client by client, on views of the flat vectors."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from fedsim.learning.device import Execution
from fedsim.learning.kernels.base import Correction, IntArray
from fedsim.learning.kernels.supervised import SupervisedKernel, SupervisedSession
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.modules.checks import Constants
from fedsim.tasks.modules.dropout import KeyedDropout


class BoundModule:
    """A copy of a task's module whose parameters and buffers can be views of a row of a weight matrix."""

    def __init__(self, task: SupervisedTask, execution: Execution) -> None:
        self.module = copy.deepcopy(task.module).to(execution.device, execution.dtype)
        self.drops = task.drops
        self._generator = torch.Generator(execution.device) if self.drops else None
        self._keyed_dropout = KeyedDropout(self._generator) if self._generator else nullcontext()
        self.channels_last = execution.device.type == "cpu" and any(
            isinstance(layer, nn.Conv2d) for layer in self.module.modules()
        )
        parameters = dict(self.module.named_parameters())
        buffers = dict(self.module.named_buffers())
        layout = task.layout
        self._tensors = [parameters.get(name, buffers.get(name)) for name in layout.names]
        self._layout = layout
        self._bound: list[Tensor] | None = None
        sent = [parameters[name] for name in layout.names if name in parameters]
        self.parameters = [value for value in sent if value.requires_grad]
        self._constants = Constants(self.module, layout.names, task.model.name)

    def views(self, row: Tensor) -> list[Tensor]:
        """The parts of ``row`` (P,) in the order of the layout; buffers last."""
        return list(self._layout.views(row).values())

    def bind(self, views: list[Tensor]) -> None:
        """Use these views as parameters and buffers."""
        if views is self._bound:
            return
        self._bound = views
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
        with self._keyed_dropout if self.module.training else nullcontext():
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


def channels_last(images: Tensor) -> Tensor:
    """Images (n, c, h, w) in channels-last order, which is faster for pooling and convolutions on CPU.

    Inputs of other shapes are returned as they are.
    """
    if images.ndim != 4:
        return images
    _, channels, height, width = images.shape
    if channels > 1:
        return images.contiguous(memory_format=torch.channels_last)
    # With one channel both orders store the same; only the strides differ.
    return images.contiguous().as_strided(images.shape, (height * width, 1, width, 1))


class _LoopSession(SupervisedSession["LoopKernel"]):
    def __init__(self, kernel: LoopKernel, *dispatches: Any) -> None:
        super().__init__(kernel, *dispatches)
        self._bound, self._loss, self._masks = kernel.bound, kernel.task.loss, kernel.masks
        self._autocast = kernel.execution.autocast
        self._views: list[list[Tensor]] = []

    def _on_draw(self) -> None:
        # All at once, because it waits for the device.
        self._counts: list[list[int]] = self._sizes.tolist()

    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        losses = []
        self._views = self._views or [self._bound.views(weight) for weight in weights]
        for row in range(len(weights)):
            numbers, _ = self.draw(step, len(weights))
            inputs = self.inputs(step, numbers[None, row : row + 1], first=row)
            loss, gradients = self._backward(step, row, inputs, self._views[row])
            targets = self._bound.views(out[row])[: len(gradients)]
            torch._foreach_copy_(targets, gradients)
            losses.append(loss)
        return torch.stack(losses)

    def descend(
        self, weights: Tensor, rates: Tensor, active: IntArray, correction: Correction | None = None
    ) -> Tensor:
        losses, factors = weights.new_zeros(len(weights)), rates.neg().unsqueeze(1)
        correction = correction or Correction(weights, weights)
        alphas = rates.neg().tolist()
        for rows, begin, end in self.pieces(active):
            row, alpha = rows.start, alphas[rows.start]
            model, total, of_row = weights[row], losses[row], correction.of(row)
            views, moved = self._bound.views(model), self._bound.views(of_row.change)
            samples = self._rows[begin - self._first : end - self._first, rows]
            inputs = self.inputs(begin, samples, first=row)
            for step, images in enumerate(torch.split(inputs, self.width), begin):
                loss, gradients = self._backward(step, row, images, views)
                of_row.pull(model, factors[row])
                torch._foreach_add_(moved[: len(gradients)], gradients, alpha=alpha)
                of_row.shift(model, factors[row])
                total += loss
        return losses

    def _backward(
        self, step: int, row: int, inputs: Tensor, views: list[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Loss, as :meth:`gradients`, and gradients of one client on padded ``inputs`` (width, *shape)."""
        # Without padding, which must not enter the statistics of normalization layers.
        at = step - self._first
        count = self._counts[at][row]
        inputs, labels = inputs[:count], self._labels[at, row, :count]
        bound = self._bound
        bound.bind(views)
        if bound.drops:
            bound.seed_dropout(self.dropout_seed(step, row))
        autocast = self._autocast
        reduced = torch.autocast(inputs.device.type, autocast) if autocast else nullcontext()
        with torch.enable_grad(), reduced:
            outputs = bound.forward(inputs)
            if self._masks is not None:
                outputs = outputs * self._masks[self._clients[row]]
            losses = self._loss.per_sample(outputs, labels)
            loss, parts = losses.detach().mean(), [losses]
            if self._loss.penalty:
                parts.append(self._loss.penalties(bound.parameters))
                loss = loss + parts[1].detach()
        shares = [torch.full_like(part, 1 / part.numel()) for part in parts]
        # Zeros for parameters that this mini-batch does not use.
        gradients = torch.autograd.grad(
            parts, bound.parameters, shares, allow_unused=True, materialize_grads=True
        )
        reported = self._kernel.reported(loss, losses)
        return reported.detach().to(views[0].dtype), gradients


class LoopKernel(SupervisedKernel):
    """Automatic differentiation client by client, without copies of models or gradients; for any module."""

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

    def largest_group(self) -> int:
        """One, so that the model stays in the cache until its training ends."""
        return 1
