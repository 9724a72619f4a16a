"""Views of linear layers in the flat vector of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fedsim.tasks.layout import Layout


class LinearLayer(NamedTuple):
    """Position of a linear layer in the flat vector.

    Attributes:
        start: offset of the weights.
        outputs, inputs: their shape.
        bias: offset of the biases; -1 without.
    """

    start: int
    outputs: int
    inputs: int
    bias: int

    def weights(self, flat: Tensor) -> Tensor:
        """(..., out, in) view of ``flat`` (..., P)."""
        end = self.start + self.outputs * self.inputs
        return flat[..., self.start : end].view(*flat.shape[:-1], self.outputs, self.inputs)

    def biases(self, flat: Tensor) -> Tensor | None:
        """(..., out) view of ``flat`` (..., P)."""
        return None if self.bias < 0 else flat[..., self.bias : self.bias + self.outputs]


def layers_of(layout: Layout) -> list[LinearLayer]:
    """The linear layers of a layout of alternating weights and biases."""
    layers: list[LinearLayer] = []
    entries = list(zip(layout.shapes, layout.offsets, strict=False))
    for index, (shape, start) in enumerate(entries):
        if len(shape) != 2:
            continue
        follows = entries[index + 1] if index + 1 < len(entries) else None
        biased = follows is not None and len(follows[0]) == 1
        bias = follows[1] if follows is not None and biased else -1
        layers.append(LinearLayer(start, shape[0], shape[1], bias))
    return layers


def views(layers: Sequence[LinearLayer], flat: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
    """Weights and biases of all layers, as views of ``flat`` (..., P)."""
    return [layer.weights(flat) for layer in layers], [layer.biases(flat) for layer in layers]
