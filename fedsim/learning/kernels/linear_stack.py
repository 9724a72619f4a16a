"""Hand-derived gradients of linear layers with ReLU between them, for all clients of a group at once."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsim.learning.batches import Batches
from fedsim.learning.kernels.base import IntArray, Session
from fedsim.learning.kernels.linear_layers import LinearLayer, SingleDescent, layers_of
from fedsim.learning.kernels.supervised import StackedKernel, SupervisedSession, place_weights

# On CPU, larger models take plain steps client by client; for smaller ones the calls would cost more than the work.
_SINGLE_BYTES = 384 << 10
# Samples of one client that are gathered together; they share the cache with the model.
_PIECE_BYTES = 1 << 20


class _LinearStackSession(SupervisedSession):
    """All activations of a group are kept transposed, (b, features, places).

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
        self._kernel = kernel
        self._layers = kernel.layers
        self._features = self._layers[0].shape[1]
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
                torch.sum(delta, 2, out=bias)
            if index:
                delta = self._back(layer, weights, delta, values)
        return loss

    def descend(self, weights: Tensor, rates: Tensor, active: IntArray) -> Tensor:
        if self._kernel.client_by_client:
            return self._descend_singly(weights, rates)
        losses = weights.new_zeros(len(weights))
        for step, rows in enumerate(active.tolist()):
            losses[:rows] += self._descend_together(step, weights[:rows], rates[:rows])
        return losses

    def _descend_together(self, step: int, weights: Tensor, rates: Tensor) -> Tensor:
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
                bias.add_(delta.sum(2))
            delta = below
        return loss

    def _descend_singly(self, weights: Tensor, rates: Tensor) -> Tensor:
        # Summed one after the other: how many steps are drawn at once depends on the group.
        losses = [0.0] * len(weights)
        descent = SingleDescent(self._layers, self.width, self._dtype)
        batch_bytes = self.width * self._features * self._dtype.itemsize
        piece = max(1, _PIECE_BYTES // batch_bytes)
        begin, most = 0, int(self._steps[0])
        while begin < most:
            self.draw(begin, int((self._steps > begin).sum()))
            assert self._drawn is not None
            rows = self._drawn.rows
            drawn_to = begin + len(rows)
            for row, rate in enumerate(rates[: rows.shape[1]].tolist()):
                until = min(drawn_to, int(self._steps[row]))
                for first in range(begin, until, piece):
                    at = slice(first - begin, min(first + piece, until) - begin)
                    inputs = self.inputs_ahead(
                        first, rows[at, row], dispatch=row, scratch=self._scratch
                    )
                    for loss in descent.run(
                        weights[row],
                        inputs.view(-1, self.width, self._features),
                        self._labels[at, row, 0],
                        self._place_weights[at, row, 0],
                        rate,
                    ).tolist():
                        losses[row] += loss
            begin = drawn_to
        return weights.new_tensor(losses)

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
                values = torch.baddbmm(bias.unsqueeze(2), layer.weights(weights), values)
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
    def _back(layer: LinearLayer, weights: Tensor, delta: Tensor, values: Tensor) -> Tensor:
        """Deltas of the layer's inputs, which left a ReLU as ``values``."""
        below = torch.bmm(layer.weights(weights).transpose(1, 2), delta)
        return below.mul_(values > 0)


class LinearStackKernel(StackedKernel):
    """Batched matrix products with gradients written out, for logistic regression and multi-layer perceptrons.

    For tasks of the families ``linear`` and ``mlp`` with cross-entropy.
    """

    name = "linear_stack"
    revision = 2
    group_invariant = True
    fused = True

    @property
    def layers(self) -> list[LinearLayer]:
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

    @property
    def client_by_client(self) -> bool:
        """Whether plain steps are taken for one client after the other."""
        on_cpu = self.execution.device.type == "cpu"
        return on_cpu and self.model_bytes > _SINGLE_BYTES
