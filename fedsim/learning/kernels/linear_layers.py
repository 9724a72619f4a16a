"""Linear layers with ReLU between them, as they lie in the flat vector, and their local steps for one client."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from fedsim.tasks.layout import Layout


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

    # Each step is two dozen small operations; without the bookkeeping of autograd they start sooner.
    @torch.inference_mode()
    def run(
        self, model: Tensor, inputs: Tensor, labels: Tensor, places: Tensor, rate: float
    ) -> Tensor:
        """Take S steps in place.

        Args:
            model: local model, (P,).
            inputs: samples of the steps, (S, width, features).
            labels: (S, width).
            places: weight of each place in its batch's mean, (S, width).
            rate: learning rate.

        Returns:
            Mini-batch losses at the models before the steps, (S,).
        """
        outputs = inputs.new_empty(len(labels), self._width, len(self._classes))
        labels, places = labels.unsqueeze(2), places.unsqueeze(2)
        _without_interpreter()(
            [layer.weights(model) for layer in self._layers],
            [layer.biases(model) for layer in self._layers],
            inputs,
            (labels == self._classes).to(self._dtype),
            # Gradients are linear in the last layer's deltas: scaled once here, products add straight to the weights.
            places * -rate,
            outputs,
            self._outputs,
            self._deltas,
            self._ones,
        )
        log_shares = torch.log_softmax(outputs, 2)
        return -(log_shares.gather(2, labels) * places).sum((1, 2))


@cache
def _without_interpreter() -> Callable[..., None]:
    """:func:`_descend` as TorchScript, which does not hold Python's lock: threads then work at the same time.

    As Python, with the same results, where torch has TorchScript no more.
    """
    if not hasattr(torch.jit, "script"):
        return _descend
    with warnings.catch_warnings():
        # torch.compile, which it points to, needs a compiler on the user's machine.
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted: Callable[..., None] = torch.jit.script(_descend)
    return scripted


def _descend(
    weights: list[Tensor],
    biases: list[Tensor | None],
    inputs: Tensor,
    targets: Tensor,
    factors: Tensor,
    outputs: Tensor,
    activations: list[Tensor],
    deltas: list[Tensor],
    ones: Tensor,
) -> None:
    """Steps of plain SGD on weights (out, in) and biases (out,) of linear layers with ReLU between them.

    Args:
        weights, biases: of the layers; changed in place.
        inputs: (S, width, features).
        targets: 1 for the label's class, else 0, (S, width, classes).
        factors: weight of each place in the mean times minus the learning rate, (S, width, 1).
        outputs: receives the logits before each step, (S, width, classes).
        activations, deltas: work space for each layer but the last, (width, out).
        ones: (width,).
    """
    last = len(weights) - 1
    for step in range(len(inputs)):
        values = inputs[step]
        for index in range(last + 1):
            out = activations[index] if index < last else outputs[step]
            bias = biases[index]
            if bias is None:
                torch.mm(values, weights[index].t(), out=out)
            else:
                torch.addmm(bias, values, weights[index].t(), out=out)
            if index < last:
                values = out.relu_()
        delta = torch.softmax(outputs[step], 1).sub_(targets[step]).mul_(factors[step])
        for index in range(last, -1, -1):
            upward = delta.t()
            values = activations[index - 1] if index > 0 else inputs[step]
            if index > 0:
                # The deltas below need the weights before the step.
                delta = torch.mm(delta, weights[index], out=deltas[index - 1])
                # Torch's own derivative of ReLU: what comes from above where the unit was on, else zero.
                torch.ops.aten.threshold_backward(delta, values, 0, grad_input=delta)
            weights[index].addmm_(upward, values)
            bias = biases[index]
            if bias is not None:
                bias.addmv_(upward, ones)
