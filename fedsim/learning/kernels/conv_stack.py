"""Hand-derived gradients of convolutional networks that are a plain sequence of layers, client by client."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsim.learning.device import multiplies_by_onednn
from fedsim.learning.kernels.base import ClientCorrection, Correction, IntArray, pull, shift
from fedsim.learning.kernels.linear_steps import ONEDNN_FROM, onednn_product
from fedsim.learning.kernels.loop import channels_last
from fedsim.learning.kernels.supervised import SupervisedKernel, UnpaddedSession
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.sequential import Conv, Dropout, Linear, SequentialModel

_aten = torch.ops.aten
# Window of ``pool``, and its padding and dilation.
_WINDOW = [2, 2], [2, 2], [0, 0], [1, 1]
# Input channels from which weight gradients of convolutions without padding are a product with windows (measured on
# CPUs without AVX-512; with it, oneDNN's convolutions are faster than the products of torch's BLAS).
_COLUMNS_FROM = 16


class _ConvStackSession(UnpaddedSession["ConvStackKernel"]):
    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        losses = weights.new_zeros(len(weights))
        # Products are added to a vector whose alignment does not depend on the row, as their last bits do.
        gradient = torch.empty_like(weights[0])
        for row, model in enumerate(weights):
            mini_batch = self.mini_batch(step, row, len(weights))
            uncorrected = ClientCorrection(None, 0.0, None, 1.0, model, gradient.zero_())
            losses[row] = self._take(*mini_batch, model, 1.0, uncorrected)
            out[row] = gradient
        return losses

    def descend(
        self, weights: Tensor, rates: Tensor, active: IntArray, correction: Correction | None = None
    ) -> Tensor:
        losses = weights.new_zeros(len(weights))
        correction = correction or Correction(weights, weights)
        given = [correction.of_client(row, rate) for row, rate in enumerate(rates.tolist())]
        for step, rows in enumerate(active.tolist()):
            for row in range(rows):
                mini_batch, term = self.mini_batch(step, row, rows), given[row]
                losses[row] += self._take(*mini_batch, weights[row], -term.rate, term)
        return losses

    # A step has dozens of operations, which start sooner without the bookkeeping of autograd.
    @torch.inference_mode()
    def _take(
        self,
        inputs: Tensor,
        labels: Tensor,
        model: Tensor,
        factor: float,
        correction: ClientCorrection,
    ) -> Tensor:
        """Add ``factor`` times the gradient of a mini-batch to the correction's change, and correct ``model``.

        Returns:
            The loss before the step, as :meth:`gradients`.
        """
        kernel = self._kernel
        precision = kernel.precision
        tensors = kernel.tensors(model.to(precision))
        values = channels_last(inputs.to(precision))
        outputs, saved = kernel.forward(tensors, values)
        outputs = outputs.to(model.dtype)
        log_shares = torch.log_softmax(outputs, 1)
        losses = log_shares.gather(1, labels.unsqueeze(1))
        # Gradients are linear in the last layer's deltas: scaled here, products add straight to the weights.
        delta = log_shares.exp_().add_(labels.unsqueeze(1) == kernel.classes, alpha=-1)
        delta.mul_(factor / len(labels))
        # The deltas below need the weights before the step.
        deltas = kernel.backward(tensors, saved, delta.to(precision))
        pull(model, correction.target, correction.share)
        moved = kernel.tensors(correction.change)
        kernel.add_gradients(moved, saved, deltas)
        shift(model, *correction[2:])
        return losses.square().sum() if kernel.squared_losses else losses.mean().neg_()


class ConvStackKernel(SupervisedKernel):
    """Explicit forward and backward passes on CPU, for the built-in convolutional networks without dropout."""

    name = "conv_stack"
    revision = 2
    group_invariant = True
    fused = True
    corrects = True
    session_class = _ConvStackSession

    def prepare(self) -> None:
        """Look up the layers and the precision of their products."""
        assert isinstance(self.task.model, SequentialModel)
        self.layers = self.task.model.all_layers(self.task.dataset)
        self.classes = torch.arange(self.task.dataset.classes)
        self.by_onednn = multiplies_by_onednn(self.execution)
        # As in torch's autocast, float64 stays as it is.
        autocast = self.execution.autocast if self.execution.dtype == torch.float32 else None
        self.precision = autocast or self.execution.dtype

    @staticmethod
    def fits(task: SupervisedTask) -> bool:
        """Whether the kernel supports the task's model and loss."""
        model, loss = task.model, task.loss
        return (
            isinstance(model, SequentialModel)
            # A subclass that builds its own module need not build these layers.
            and type(model).build is SequentialModel.build
            and not any(isinstance(layer, Dropout) for layer in model.layers())
            and loss.kind == "cross_entropy"
            and not loss.penalty
        )

    def tensors(self, row: Tensor) -> list[Tensor]:
        """Weight and bias of each layer that has them, as views of ``row`` (P,)."""
        return list(self.task.layout.views(row).values())

    def forward(
        self, tensors: Sequence[Tensor], values: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """Outputs (n, classes) for inputs ``values`` (n, ...), and what each layer's backward pass needs."""
        parameters = iter(tensors)
        saved: list[tuple[Tensor, ...]] = []
        for layer in self.layers:
            match layer:
                case Conv(padding=padding):
                    saved.append((values,))
                    values = torch.conv2d(
                        values, next(parameters), next(parameters), padding=padding
                    )
                case Linear():
                    saved.append((values,))
                    weight, bias = next(parameters), next(parameters)
                    if self.by_onednn and weight.numel() >= ONEDNN_FROM:
                        values = onednn_product(values, weight, bias)
                    else:
                        values = torch.addmm(bias, values, weight.t())
                case "relu":
                    saved.append((values.relu_(),))
                case "pool":
                    pooled, places = _aten.max_pool2d_with_indices.default(values, *_WINDOW)
                    saved.append((values, places))
                    values = pooled
                case "flatten":
                    saved.append((values,))
                    values = values.flatten(1)
        return values, saved

    def backward(
        self, tensors: Sequence[Tensor], saved: Sequence[tuple[Tensor, ...]], delta: Tensor
    ) -> list[Tensor]:
        """Deltas of the outputs of each layer that has parameters, last layer to first.

        ``delta`` (n, classes) are gradients with respect to the last layer's outputs; deltas are linear in them.
        """
        deltas: list[Tensor] = []
        at = len(tensors)
        for layer, (values, *more) in zip(reversed(self.layers), reversed(saved), strict=True):
            match layer:
                case Conv() | Linear():
                    at -= 2
                    deltas.append(delta)
                    if at == 0:
                        # Nothing below has parameters.
                        break
                    weight = tensors[at]
                    if isinstance(layer, Conv):
                        mask = [True, False, False]
                        delta = _convolution_backward(layer, delta, values, weight, mask)[0]
                    elif self.by_onednn and weight.numel() >= ONEDNN_FROM:
                        delta = onednn_product(delta, weight.t(), None)
                    else:
                        delta = torch.mm(delta, weight)
                case "relu":
                    # Torch's derivative of ReLU: the incoming delta if the unit was positive, else zero.
                    _aten.threshold_backward.grad_input(delta, values, 0, grad_input=delta)
                case "pool":
                    delta = _unpooled(delta, values, more[0])
                case "flatten":
                    delta = delta.view(values.shape)
                    if values.ndim == 4:
                        delta = delta.contiguous(memory_format=torch.channels_last)
        return deltas

    def add_gradients(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[tuple[Tensor, ...]],
        deltas: Sequence[Tensor],
    ) -> None:
        """Add the products of inputs and :meth:`backward`'s ``deltas`` to ``tensors``, shaped as weights and biases."""
        at = 0
        remaining = list(deltas)
        for layer, (values, *_) in zip(self.layers, saved, strict=True):
            if not isinstance(layer, Conv | Linear):
                continue
            delta, weight, bias = remaining.pop(), tensors[at], tensors[at + 1]
            at += 2
            autocast = delta.dtype != weight.dtype
            if isinstance(layer, Linear):
                if autocast:
                    weight.add_(torch.mm(delta.t(), values))
                else:
                    weight.addmm_(delta.t(), values)
                bias.add_(delta.sum(0, dtype=bias.dtype))
            else:
                # OneDNN's convolution is faster than the product of columns in float32, slower in bfloat16.
                convolves = self.by_onednn and not autocast
                if weight.shape[1] >= _COLUMNS_FROM and not (layer.padding or convolves):
                    products, sums = _by_columns(layer, delta, values)
                else:
                    _, products, sums = _convolution_backward(
                        layer, delta, values, weight.to(delta.dtype), [False, True, True]
                    )
                weight.add_(products)
                bias.add_(sums)

    def largest_group(self) -> int:
        """One, so that the model stays in the cache until its training ends."""
        return 1


def _unpooled(delta: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """Gradients with respect to the inputs ``values`` of a pooling layer."""
    if delta.dtype == torch.bfloat16:
        # Torch's operation is several times slower with bfloat16. Of the values, only the shape matters.
        wide = torch.empty_like(values, dtype=torch.float32)
        return _unpooled(delta.float(), wide, places).to(delta.dtype)
    result: Tensor = _aten.max_pool2d_with_indices_backward.default(
        delta, values, *_WINDOW, False, places
    )
    return result


def _by_columns(layer: Conv, delta: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients with respect to weight and bias, as one matrix product with the windows of channels-last ``values``."""
    size, rows = layer.kernel, delta.permute(0, 2, 3, 1).reshape(-1, layer.channels)
    windows = values.permute(0, 2, 3, 1).unfold(1, size, 1).unfold(2, size, 1)
    columns = windows.permute(0, 1, 2, 4, 5, 3).reshape(len(rows), -1)
    products = torch.mm(rows.t(), columns).view(layer.channels, size, size, -1)
    return products.permute(0, 3, 1, 2), rows.sum(0)


def _convolution_backward(
    layer: Conv, delta: Tensor, values: Tensor, weight: Tensor, output_mask: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to inputs, weight and bias."""
    # Bias sizes, stride, padding and dilation; not transposed, in one group.
    options = [layer.channels], [1, 1], [layer.padding] * 2, [1, 1], False, [0, 0], 1
    result: tuple[Tensor, Tensor, Tensor] = _aten.convolution_backward.default(
        delta, values, weight, *options, output_mask
    )
    return result
