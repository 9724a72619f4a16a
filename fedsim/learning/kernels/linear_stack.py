"""Hand-derived gradients of linear layers with ReLU between them, for all clients of a group at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsim.learning.batches import Batches
from fedsim.learning.kernels.base import IntArray, Session
from fedsim.learning.kernels.supervised import (
    SupervisedKernel,
    SupervisedSession,
    group_rows,
    place_weights,
)
from fedsim.tasks.layout import Layout

# Group sizes: measured on CPU, where models, inputs and gradients of a group should stay in the cache.
_CPU_GROUP_BYTES = 8 << 20
_CPU_GROUPS = (4, 32)
_CUDA_GROUP_BYTES = 4 << 30
_CUDA_GROUPS = (32, 2048)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Where a linear layer lies in the flat vector."""

    weight: slice
    bias: slice | None
    shape: tuple[int, int]

    def weights(self, flat: Tensor) -> Tensor:
        """(b, out, in) view."""
        return flat[:, self.weight].view(len(flat), *self.shape)

    def biases(self, flat: Tensor) -> Tensor | None:
        """(b, out, 1) view."""
        return None if self.bias is None else flat[:, self.bias].unsqueeze(2)


def layers_of(layout: Layout) -> list[_Layer]:
    """The linear layers of a layout of alternating weights and biases."""
    layers: list[_Layer] = []
    entries = list(zip(layout.shapes, layout.offsets, layout.offsets[1:], strict=False))
    for index, (shape, start, end) in enumerate(entries):
        if len(shape) != 2:
            continue
        follows = entries[index + 1] if index + 1 < len(entries) else None
        biased = follows is not None and len(follows[0]) == 1
        bias = slice(follows[1], follows[2]) if follows is not None and biased else None
        layers.append(_Layer(slice(start, end), bias, (shape[0], shape[1])))
    return layers


class _LinearStackSession(SupervisedSession):
    """All activations are kept transposed, (b, features, places).

    Products with few outputs are then twice as fast on CPU.
    """

    def __init__(
        self,
        kernel: LinearStackKernel,
        clients: IntArray,
        sequences: IntArray,
        steps: IntArray,
        phase: int,
    ) -> None:
        super().__init__(kernel, clients, sequences, steps, phase)
        self._layers = kernel.layers
        self._scratch = kernel.scratch
        self._dtype = kernel.execution.dtype
        self._labels: Tensor
        self._place_weights: Tensor
        classes = torch.arange(self._layers[-1].shape[0], device=kernel.execution.device)
        self._classes = classes.unsqueeze(1)

    def _on_draw(self, drawn: Batches) -> None:
        self._labels = self.samples.y[drawn.rows].unsqueeze(2)
        self._place_weights = place_weights(drawn, self.width, self._dtype).unsqueeze(2)
        self._first = drawn.first

    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        loss, delta, activations = self._forward(step, weights)
        for index in reversed(range(len(self._layers))):
            layer, values = self._layers[index], activations[index]
            torch.bmm(delta, values.transpose(1, 2), out=layer.weights(out))
            bias = layer.biases(out)
            if bias is not None:
                torch.sum(delta, 2, keepdim=True, out=bias)
            if index:
                delta = self._back(layer, weights, delta, values)
        return loss

    def descend(self, step: int, weights: Tensor, rates: Tensor) -> Tensor:
        loss, delta, activations = self._forward(step, weights)
        # Gradients are linear in the last layer's deltas: scaled once here, products add straight to the weights.
        delta.mul_(rates.neg().view(-1, 1, 1))
        for index in reversed(range(len(self._layers))):
            layer, values = self._layers[index], activations[index]
            # The deltas below need the weights before the step.
            below = self._back(layer, weights, delta, values) if index else delta
            layer.weights(weights).baddbmm_(delta, values.transpose(1, 2))
            bias = layer.biases(weights)
            if bias is not None:
                bias.add_(delta.sum(2, keepdim=True))
            delta = below
        return loss

    def _forward(self, step: int, weights: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Losses (b,), gradients of the mean losses by the logits (b, classes, places), and every layer's inputs."""
        active = len(weights)
        rows, _ = self.draw(step, active)
        inputs = self.inputs(step, rows, scratch=self._scratch)
        values = inputs.view(active, self.width, -1).transpose(1, 2)
        activations: list[Tensor] = []
        for index, layer in enumerate(self._layers):
            activations.append(values)
            bias = layer.biases(weights)
            if bias is None:
                values = torch.bmm(layer.weights(weights), values)
            else:
                values = torch.baddbmm(bias, layer.weights(weights), values)
            if index + 1 < len(self._layers):
                values.relu_()
        at = step - self._first
        labels, places = self._labels[at, :active], self._place_weights[at, :active]
        log_shares = torch.log_softmax(values, 1)
        loss = -(log_shares.gather(1, labels) * places).sum((1, 2))
        delta = log_shares.exp_()
        delta.add_(labels == self._classes, alpha=-1)
        return loss, delta.mul_(places), activations

    @staticmethod
    def _back(layer: _Layer, weights: Tensor, delta: Tensor, values: Tensor) -> Tensor:
        """Deltas of the layer's inputs, which left a ReLU as ``values``."""
        below = torch.bmm(layer.weights(weights).transpose(1, 2), delta)
        return below.mul_(values > 0)


class LinearStackKernel(SupervisedKernel):
    """Batched matrix products with gradients written out, for logistic regression and multi-layer perceptrons.

    For tasks of the families ``linear`` and ``mlp`` with cross-entropy.
    """

    name = "linear_stack"
    revision = 1
    group_invariant = True
    fused = True

    @property
    def layers(self) -> list[_Layer]:
        """The linear layers, first to last."""
        return layers_of(self.task.layout)

    @property
    def scratch(self) -> dict[str, Tensor]:
        """Work space of this kernel's thread."""
        if not hasattr(self, "_scratch"):
            self._scratch: dict[str, Tensor] = {}
        return self._scratch

    def session(
        self, clients: IntArray, sequences: IntArray, steps: IntArray, phase: int
    ) -> Session:
        """Batched products over these dispatches."""
        return _LinearStackSession(self, clients, sequences, steps, phase)

    def shape_class(self, clients: IntArray) -> IntArray:
        """The width of a client's batches."""
        return self.order.widths(clients)

    def largest_group(self) -> int:
        """As many as fit the caches of a core, or a part of the GPU's memory."""
        cuda = self.execution.device.type == "cuda"
        fewest, most = _CUDA_GROUPS if cuda else _CPU_GROUPS
        return group_rows(
            self.task.layout.size * self.execution.dtype.itemsize,
            budget_bytes=_CUDA_GROUP_BYTES if cuda else _CPU_GROUP_BYTES,
            fewest=fewest,
            most=most,
        )
