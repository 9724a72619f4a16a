"""Hand-derived gradients of linear layers with ReLU between them, for all clients of a group at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.device import multiplies_by_onednn
from fedsim.learning.kernels.base import ClientCorrection, Correction, IntArray
from fedsim.learning.kernels.linear_steps import ONEDNN_FROM, PYTHON_STEPS, compiled, reduced
from fedsim.learning.kernels.supervised import StackedKernel, StackedSession
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.layout import Layout

# On CPU, larger models take plain steps client by client; for smaller ones the calls would dominate.
_SINGLE_BYTES = 384 << 10
# Groups for such models: an order of data is drawn for each, and a method's vectors should fit into the caches.
_SINGLE_GROUP_BYTES = 16 << 20
_SINGLE_GROUPS = (4, 32)
# Bytes of one client's samples that are gathered at once; they share the cache with the model.
_PIECE_BYTES = 1 << 20


class LinearLayer(NamedTuple):
    """A linear layer in the flat vector: where its weights (outputs, inputs) and its biases start, -1 without any."""

    start: int
    outputs: int
    inputs: int
    bias: int


def layers_of(layout: Layout) -> list[LinearLayer]:
    """The linear layers of a layout of alternating weights and biases."""
    entries = list(zip(layout.shapes, layout.offsets, strict=False))
    layers: list[LinearLayer] = []
    for (shape, start), (following, bias) in zip(entries, [*entries[1:], ((), -1)], strict=True):
        if len(shape) == 2:
            layers.append(LinearLayer(start, *shape, bias if len(following) == 1 else -1))
    return layers


def views(layers: Sequence[LinearLayer], flat: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
    """Weights (..., out, in) and biases (..., out) of all layers, as views of ``flat`` (..., P)."""
    weights: list[Tensor] = []
    biases: list[Tensor | None] = []
    for start, outputs, inputs, bias in layers:
        part = flat[..., start : start + outputs * inputs]
        weights.append(part.view(*flat.shape[:-1], outputs, inputs))
        biases.append(None if bias < 0 else flat[..., bias : bias + outputs])
    return weights, biases


class _LinearStackSession(StackedSession["LinearStackKernel"]):
    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        kernel = self._kernel
        batches = kernel.arranged(*self.padded(step, len(weights), kernel.scratch))
        return kernel.replay(kernel.differentiate, (weights, out), batches)

    def descend(
        self, weights: Tensor, rates: Tensor, active: IntArray, correction: Correction | None = None
    ) -> Tensor:
        if self._kernel.client_by_client:
            return self._descend_singly(weights, rates, correction)
        kernel = self._kernel
        if correction is None and kernel.execution.device.type == "cuda":
            return super().descend(weights, rates, active)
        losses = weights.new_zeros(len(weights))
        factors = rates.neg().unsqueeze(1)
        for step, rows in enumerate(active.tolist()):
            batches = self.padded(step, rows, kernel.scratch)
            losses[:rows] += kernel.take_step(weights[:rows], factors[:rows], *batches, correction)
        return losses

    def _descend_singly(
        self, weights: Tensor, rates: Tensor, correction: Correction | None
    ) -> Tensor:
        # Summed one by one, because the number of steps in a piece depends on the group.
        losses = [0.0] * len(weights)
        correction = correction or Correction(weights, weights)
        corrections = [correction.of_client(row, rate) for row, rate in enumerate(rates.tolist())]
        itemsize = self._kernel.execution.dtype.itemsize
        batch_bytes = self.width * self._kernel.layers[0].inputs * itemsize
        piece = max(1, _PIECE_BYTES // batch_bytes)
        begin, most = 0, int(self._steps[0])
        while begin < most:
            rows, _ = self.draw(begin, int((self._steps > begin).sum()))
            end = min(begin + piece, self._first + len(self._labels), most)
            ends = np.minimum(self._steps[: len(rows)], end).tolist()
            numbers = self._descend_piece(weights, begin, ends, rates, corrections)
            for row, until in enumerate(ends):
                for step_losses in numbers[: until - begin]:
                    losses[row] += step_losses[row]
            begin = end
        return weights.new_tensor(losses)

    # A step has two dozen small operations, which start sooner without the bookkeeping of autograd. Tensors made here
    # cannot be used elsewhere.
    @torch.inference_mode()
    def _descend_piece(
        self,
        weights: Tensor,
        begin: int,
        ends: list[int],
        rates: Tensor,
        corrections: list[ClientCorrection],
    ) -> list[list[float]]:
        """The steps from ``begin`` on, up to ``ends`` of each of the first dispatches, drawn together.

        Returns:
            Losses before each step, as :meth:`gradients`, by step and dispatch; meaningless from ``ends`` on.
        """
        kernel, rows = self._kernel, len(ends)
        at = slice(begin - self._first, ends[0] - self._first)
        assert self._drawn is not None
        drawn, labels = self._drawn.rows[at, :rows], self._labels[at, :rows].unsqueeze(3)
        mean_weights = self._mean_weights[at, :rows]
        dtype = mean_weights.dtype
        targets = (labels == kernel.classes.view(-1)).to(dtype)
        factors = (mean_weights * rates[:rows].neg().unsqueeze(1)).unsqueeze(3)
        outputs = torch.zeros_like(targets)
        # Activations and deltas.
        sizes = [layer.outputs for layer in kernel.layers[:-1]]
        hidden = [[torch.empty(self.width, size, dtype=dtype) for size in sizes] for _ in range(2)]
        ones = torch.ones(self.width, dtype=dtype)
        for row, end in enumerate(ends):
            samples = drawn[: end - begin, row]
            inputs = self.inputs(
                begin, samples, first=row, ahead=True, scratch=kernel.piece_scratch
            )
            kernel.steps.descend_singly(
                kernel.layers,
                inputs.view(*samples.shape, -1),
                targets[:, row],
                factors[:, row],
                outputs[:, row],
                *hidden,
                ones,
                kernel.onednn_from,
                weights[row],
                *corrections[row],
            )
        log_shares = torch.log_softmax(outputs, 3)
        losses = -log_shares.gather(3, labels).flatten(0, 1)
        sums = reduced(losses, mean_weights.flatten(0, 1).unsqueeze(2), kernel.squared_losses)
        numbers: list[list[float]] = sums.view(-1, rows).tolist()
        return numbers


class LinearStackKernel(StackedKernel):
    """Batched matrix products with hand-derived gradients, for logistic regression and multi-layer perceptrons.

    For tasks of the families ``linear`` and ``mlp`` with cross-entropy.
    """

    name = "linear_stack"
    revision = 4
    group_invariant = True
    fused = True
    recorded = True
    session_class = _LinearStackSession

    def prepare(self) -> None:
        """Locate the layers, and compile the steps."""
        device = self.execution.device
        self.layers = layers_of(self.task.layout)
        self.classes = torch.arange(self.layers[-1].outputs, device=device).unsqueeze(1)
        self.onednn_from = ONEDNN_FROM if multiplies_by_onednn(self.execution) else sys.maxsize
        self.scratch: dict[str, Tensor] = {}
        # Made in inference mode, and so not usable elsewhere.
        self.piece_scratch: dict[str, Tensor] = {}
        # On CUDA TorchScript would fuse operations after a few calls, and change the last bit.
        self.steps = PYTHON_STEPS if device.type == "cuda" else compiled()

    @staticmethod
    def fits(task: SupervisedTask) -> bool:
        """Whether the kernel supports the task's model and loss."""
        loss = task.loss
        return (
            task.model_family in ("linear", "mlp")
            and loss.kind == "cross_entropy"
            and not loss.penalty
        )

    def differentiate(self, weights: Tensor, out: Tensor, *mini_batches: Tensor) -> Tensor:
        """:func:`linear_steps.gradients_together` on local models and gradients (b, P)."""
        return self.steps.gradients_together(
            *views(self.layers, weights),
            *mini_batches,
            *views(self.layers, out),
            self.squared_losses,
        )

    def take_step(
        self,
        weights: Tensor,
        factors: Tensor,
        inputs: Tensor,
        labels: Tensor,
        mean_weights: Tensor,
        correction: Correction | None = None,
    ) -> Tensor:
        """By :func:`linear_steps.descend_together`, with the correction of the first b clients."""
        correction = correction or Correction(weights, weights)
        target, constant, rows = correction.target, correction.constant, slice(0, len(weights))
        layer_views = moved = views(self.layers, weights)
        if constant is not None:
            moved = views(self.layers, correction.change[rows])
        return self.steps.descend_together(
            *layer_views,
            *self.arranged(inputs, labels, mean_weights),
            factors.unsqueeze(2),
            weights,
            *moved,
            None if target is None else target[rows],
            correction.strength,
            None if constant is None else constant[rows],
            correction.start[rows],
            correction.change[rows],
            self.squared_losses,
        )

    def arranged(
        self, inputs: Tensor, labels: Tensor, mean_weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mini-batches and classes as :func:`linear_steps.forward` takes them."""
        inputs = inputs.view(*labels.shape, -1)
        return inputs, labels.unsqueeze(1), mean_weights.unsqueeze(1), self.classes

    def largest_group(self) -> int:
        """Depends on whether the products of each client are computed separately."""
        if not self.client_by_client:
            return super().largest_group()
        return int(np.clip(_SINGLE_GROUP_BYTES // self.model_bytes, *_SINGLE_GROUPS))

    @property
    def corrects(self) -> bool:
        """Whether it computes on a CPU; on CUDA, recorded steps take no correction."""
        return self.execution.device.type == "cpu"

    @property
    def client_by_client(self) -> bool:
        """Whether plain steps are taken client by client."""
        on_cpu = self.execution.device.type == "cpu"
        return on_cpu and self.model_bytes > _SINGLE_BYTES
