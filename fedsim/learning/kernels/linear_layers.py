"""Linear layers with ReLU between them, as they lie in the flat vector, and their local steps for one client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsim.tasks.layout import Layout

# Torch's own derivative of ReLU: what comes from above where the unit was on, else zero.
_relu_backward = torch.ops.aten.threshold_backward.grad_input


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """Where a linear layer lies in the flat vector."""

    weight: slice
    bias: slice | None
    shape: tuple[int, int]

    def weights(self, flat: Tensor) -> Tensor:
        """(..., out, in) view of ``flat`` (..., P)."""
        return flat[..., self.weight].view(*flat.shape[:-1], *self.shape)

    def biases(self, flat: Tensor) -> Tensor | None:
        """(..., out) view of ``flat`` (..., P)."""
        return None if self.bias is None else flat[..., self.bias]


def layers_of(layout: Layout) -> list[LinearLayer]:
    """The linear layers of a layout of alternating weights and biases."""
    layers: list[LinearLayer] = []
    entries = list(zip(layout.shapes, layout.offsets, layout.offsets[1:], strict=False))
    for index, (shape, start, end) in enumerate(entries):
        if len(shape) != 2:
            continue
        follows = entries[index + 1] if index + 1 < len(entries) else None
        biased = follows is not None and len(follows[0]) == 1
        bias = slice(follows[1], follows[2]) if follows is not None and biased else None
        layers.append(LinearLayer(slice(start, end), bias, (shape[0], shape[1])))
    return layers


class SingleDescent:
    """Local steps of plain SGD for one client at a time.

    A model of some size then stays in the cache of a core from one step to the next, and products of two matrices are
    faster than those of stacks of them.

    Args:
        layers: first to last.
        width: places of a batch.
        dtype: of the models.
    """

    def __init__(self, layers: Sequence[LinearLayer], width: int, dtype: torch.dtype) -> None:
        self._layers = layers
        self._width = width
        self._dtype = dtype
        hidden = [layer.shape[0] for layer in layers[:-1]]
        self._outputs = [torch.empty(width, size, dtype=dtype) for size in hidden]
        self._deltas = [torch.empty(width, size, dtype=dtype) for size in hidden]
        self._classes = torch.arange(layers[-1].shape[0])
        self._ones = torch.ones(width, dtype=dtype)

    def run(
        self,
        model: Tensor,
        inputs: Callable[[int], Tensor],
        labels: Tensor,
        places: Tensor,
        rate: float,
    ) -> Tensor:
        """Take S steps in place.

        Args:
            model: local model, (P,).
            inputs: samples of step 0 to S - 1, (width, features); used up before the next are asked for.
            labels: (S, width).
            places: weight of each place in its batch's mean, (S, width).
            rate: learning rate.

        Returns:
            Mini-batch losses at the models before the steps, (S,).
        """
        weights = [layer.weights(model) for layer in self._layers]
        transposed = [weight.t() for weight in weights]
        biases = [layer.biases(model) for layer in self._layers]
        last = len(weights) - 1
        outputs = labels.new_empty(len(labels), self._width, len(self._classes), dtype=self._dtype)
        labels, places = labels.unsqueeze(2), places.unsqueeze(2)
        targets = (labels == self._classes).to(self._dtype)
        # Gradients are linear in the last layer's deltas: scaled once here, products add straight to the weights.
        factors = places * -rate
        for step, (logits, target, factor) in enumerate(
            zip(outputs, targets, factors, strict=True)
        ):
            values = inputs(step)
            activations = [values]
            for index in range(last):
                _affine(values, transposed[index], biases[index], self._outputs[index])
                values = self._outputs[index].relu_()
                activations.append(values)
            _affine(values, transposed[last], biases[last], logits)
            delta = torch.softmax(logits, 1).sub_(target).mul_(factor)
            for index in range(last, -1, -1):
                values, upward = activations[index], delta.t()
                if index:
                    # The deltas below need the weights before the step.
                    delta = torch.mm(delta, weights[index], out=self._deltas[index - 1])
                    _relu_backward(delta, values, 0, grad_input=delta)
                weights[index].addmm_(upward, values)
                bias = biases[index]
                if bias is not None:
                    bias.addmv_(upward, self._ones)
        log_shares = torch.log_softmax(outputs, 2)
        return -(log_shares.gather(2, labels) * places).sum((1, 2))


def _affine(values: Tensor, transposed: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """``out = values transposed + bias``."""
    if bias is None:
        torch.mm(values, transposed, out=out)
    else:
        torch.addmm(bias, values, transposed, out=out)
