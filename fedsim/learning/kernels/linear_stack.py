"""Hand-derived gradients of linear layers with ReLU between them and cross-entropy, alone or for a group of clients.

A step has two dozen small operations, so its time is the number of operations: everything that does not change from
step to step (views, targets, factors) is computed for several steps at once. The outputs of the last layer and all
deltas are transposed, (..., outputs, width): products with few outputs are then twice as fast on CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.device import multiplies_by_onednn
from fedsim.learning.kernels.base import Correction
from fedsim.learning.kernels.supervised import StackedSession, SupervisedKernel
from fedsim.tasks.kinds.supervised import SupervisedTask

# On CPU, larger models take plain steps client by client; for smaller ones the calls would dominate.
_SINGLE_BYTES = 384 << 10
# Groups for such models: an order of data is drawn for each, and a method's vectors should fit into the caches.
_SINGLE_GROUP_BYTES = 16 << 20
_SINGLE_GROUPS = (4, 32)
# Entries of a layer from which oneDNN multiplies one client's matrices (measured on an AMD EPYC).
_ONEDNN_FROM = 1 << 17
# Products of matrices of one client, and of the matrices of several.
_SINGLE = torch.mm, torch.addmm, Tensor.addmm_
_STACKED = torch.bmm, torch.baddbmm, Tensor.baddbmm_


class LinearStackKernel(SupervisedKernel):
    """Matrix products with hand-derived gradients, for logistic regression and multi-layer perceptrons.

    For tasks of the families ``linear`` and ``mlp`` with cross-entropy.
    """

    name = "linear_stack"
    revision = 5
    group_invariant = True
    fused = True
    recorded = True
    session_class = StackedSession

    def prepare(self) -> None:
        """Locate the weights among the tensors of the model, and whether biases follow them."""
        dimensions = [len(shape) for shape in self.task.layout.shapes]
        self._weights = [index for index, n in enumerate(dimensions) if n == 2]
        self._biased = [dimensions[index + 1 : index + 2] == [1] for index in self._weights]
        on_cpu = self.execution.device.type == "cpu"
        self.client_by_client = on_cpu and self.model_bytes > _SINGLE_BYTES
        by_onednn = multiplies_by_onednn(self.execution.device, self.execution.dtype)
        self.onednn_from = _ONEDNN_FROM if by_onednn else sys.maxsize

    @staticmethod
    def fits(task: SupervisedTask) -> bool:
        """Whether the kernel supports the task's model and loss."""
        loss = task.loss
        return (
            task.model_family in ("linear", "mlp")
            and loss.kind == "cross_entropy"
            and not loss.penalty
        )

    def differentiate(self, weights: Tensor, out: Tensor, *batches: Tensor) -> Tensor:
        """Write the gradients at ``weights`` (b, P) into ``out``; returns the losses of the mini-batches, (b,)."""
        factors, correction = torch.ones_like(weights[:, :1]), Correction(weights, out.zero_())
        inputs, *others = (batch.unsqueeze(0) for batch in batches)
        return self._steps(weights, factors, (inputs.flatten(3), *others), correction)[0]

    def take_steps(
        self, models: Tensor, factors: Tensor, *batch: Tensor, correction: Correction | None = None
    ) -> Tensor:
        correction = correction or Correction(models, models)
        batches = [batch[0].flatten(3), *batch[1:]]
        if not self.client_by_client:
            return self._steps(models, factors, batches, correction)
        only = [each[:, 0] for each in batches]
        return self._steps(models[0], factors[0], only, correction.of(0)).unsqueeze(1)

    def _steps(
        self,
        weights: Tensor,
        factors: Tensor,
        batches: Sequence[Tensor],
        correction: Correction,
    ) -> Tensor:
        """S steps: add ``factors`` times the gradients to the correction's ``change``.

        Args:
            weights: models, (b, P), or one, (P,); then nothing below has the axis b.
            factors: minus the learning rates, (b, 1).
            batches: samples (S, b, width, features), their classes (S, b, width), and the weight of each in the mean
                of its mini-batch (S, b, width).
            correction: of the same clients.

        Returns:
            Losses of the mini-batches before each step, (S, b).
        """
        inputs, labels, mean_weights = batches
        product, affine, add = _SINGLE if weights.ndim == 1 else _STACKED
        layers, biases = self._layers(weights)
        moved = list(zip(*self._layers(correction.change), strict=True))
        last, top = len(layers) - 1, biases[-1]
        rows = [None if bias is None else bias.mT for bias in biases]
        large = [weights.ndim == 1 and one.numel() >= self.onednn_from for one in layers]
        ones = torch.ones_like(mean_weights[0]).unsqueeze(-1)
        labels, scales = labels.unsqueeze(-2), (mean_weights * factors).unsqueeze(-2)
        # Gradients are linear in the last layer's deltas: scaled here, products add straight to the weights.
        shape = (*scales.shape[:-2], layers[-1].shape[-2], scales.shape[-1])
        targets = scales.new_zeros(shape).scatter_(-2, labels, -scales)
        all_shares = []
        for values, scale, target in zip(inputs, scales, targets, strict=True):
            activations = [values]
            for layer, bias, by_onednn in zip(layers[:-1], rows, large, strict=False):
                if by_onednn:
                    values = _onednn_product(values, layer, None if bias is None else bias[0])
                elif bias is None:
                    values = product(values, layer.mT)
                else:
                    values = affine(bias, values, layer.mT)
                activations.append(values.relu_())
            values, layer = values.mT, layers[-1]
            logits = product(layer, values) if top is None else affine(top, layer, values)
            shares = logits.log_softmax(-2)
            all_shares.append(shares)
            delta = target.addcmul_(shares.exp(), scale)
            deltas = [delta]
            # The deltas below need the weights before the step.
            for index in range(last, 0, -1):
                if large[index]:
                    below = _onednn_product(delta.mT, layers[index].mT, None)
                else:
                    below = product(delta.mT, layers[index])
                # Torch's derivative of ReLU: the incoming delta if the unit was positive, else zero.
                torch.ops.aten.threshold_backward.grad_input(
                    below, activations[index], 0, grad_input=below
                )
                delta = below.mT
                deltas.append(delta)
            correction.pull(weights, factors)
            for (weight, bias), values in zip(moved, activations, strict=True):
                delta = deltas.pop()
                add(weight, delta, values)
                if bias is not None:
                    add(bias, delta, ones)
            correction.shift(weights, factors)
        losses = torch.stack(all_shares).gather(-2, labels).squeeze(-2).neg_()
        mean = (losses * mean_weights).sum(-1)
        return self.reported(mean, losses, mean_weights)

    def _layers(self, flat: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
        """Weights (..., out, in) and biases (..., out, 1) of all layers, as views of ``flat`` (..., P)."""
        tensors = list(self.task.layout.views(flat).values())
        biases = [
            tensors[index + 1].unsqueeze(-1) if biased else None
            for index, biased in zip(self._weights, self._biased, strict=True)
        ]
        return [tensors[index] for index in self._weights], biases

    def largest_group(self) -> int:
        """Depends on whether the products of each client are computed separately."""
        if not self.client_by_client:
            return super().largest_group()
        return int(np.clip(_SINGLE_GROUP_BYTES // self.model_bytes, *_SINGLE_GROUPS))

    @property
    def corrects(self) -> bool:
        """Whether it computes on a CPU; on CUDA, recorded steps take no correction."""
        return self.execution.device.type == "cpu"


def _onednn_product(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``values @ weight.T + bias`` by oneDNN, in float32."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(values, weight, bias, "none", [], "")
    return product
