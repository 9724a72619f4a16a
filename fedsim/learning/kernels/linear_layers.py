"""Views of linear layers in the flat vector of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedsim.tasks.layout import Layout


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """Position of a linear layer in the flat vector."""

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


def views(layers: Sequence[LinearLayer], flat: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
    """Weights and biases of all layers, as views of ``flat`` (..., P)."""
    return [layer.weights(flat) for layer in layers], [layer.biases(flat) for layer in layers]
