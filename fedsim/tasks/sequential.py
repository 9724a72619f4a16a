"""Convolutional networks that are a plain sequence of layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import ModelComponent

if TYPE_CHECKING:
    from torch import Generator, nn


@dataclass(frozen=True, slots=True)
class Conv:
    """A square convolution with bias and stride 1."""

    channels: int
    kernel: int
    padding: int = 0


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer with bias."""

    units: int


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout of single values."""

    probability: float


Layer = Conv | Linear | Dropout | Literal["relu", "pool", "flatten"]
"""``pool`` is 2 x 2 max-pooling; before ``relu`` it gives the same bits as after it, and a quarter of the work."""


class SequentialModel(ModelComponent):
    """A sequence of layers, followed by a linear layer with one output per class.

    Attributes:
        hidden_layers: all layers but the last, unless they depend on parameters (see :meth:`layers`).
        least: minimum height and width of images.
        for_relu: whether layers before ReLU start with He's initialization instead of torch's standard rule.
    """

    hidden_layers: ClassVar[tuple[Layer, ...]] = ()
    least: ClassVar[int] = 4
    for_relu: ClassVar[bool] = False
    takes_rate = True

    def layers(self) -> Sequence[Layer]:
        """All layers but the last."""
        return self.hidden_layers

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this data set's images."""
        from torch import nn

        return nn.Sequential(*(_module(layer, inputs) for layer, inputs in self._sized(dataset)))

    def layout(self, dataset: Dataset) -> Layout:
        """Weights and biases of the layers that have any."""
        weights = list[tuple[str, tuple[int, ...]]]()
        for i, (layer, inputs) in enumerate(self._sized(dataset)):
            match layer:
                case Conv(channels, kernel):
                    weights.append((str(i), (channels, inputs, kernel, kernel)))
                case Linear(units):
                    weights.append((str(i), (units, inputs)))
        return Layout.of_layers(weights)

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Torch's standard rule; or Kaiming normal weights and zero biases before ReLU."""
        from fedsim.tasks.modules.networks import initialize, initialize_for_relu

        (initialize_for_relu if self.for_relu else initialize)(module, generator)

    def _sized(self, dataset: Dataset) -> list[tuple[Layer, int]]:
        """Each layer with its number of input channels, or of input values once they are flattened."""
        size = self.image_shape(dataset, self.least)
        result: list[tuple[Layer, int]] = []
        hidden = (_scaled(layer, self.scaled) for layer in self.layers())
        for layer in (*hidden, Linear(dataset.classes)):
            result.append((layer, size[0]))
            if isinstance(layer, Conv):
                grown = 2 * layer.padding - layer.kernel + 1
                size = (layer.channels, size[1] + grown, size[2] + grown)
            elif isinstance(layer, Linear):
                size = (layer.units, 1, 1)
            elif layer == "pool":
                size = (size[0], size[1] // 2, size[2] // 2)
            elif layer == "flatten":
                size = (math.prod(size), 1, 1)
        return result


def _scaled(layer: Layer, scaled: Callable[[int], int]) -> Layer:
    """The layer with another width."""
    match layer:
        case Conv():
            return replace(layer, channels=scaled(layer.channels))
        case Linear():
            return replace(layer, units=scaled(layer.units))
    return layer


def _module(layer: Layer, inputs: int) -> nn.Module:
    from torch import nn

    match layer:
        case Conv(channels, kernel, padding):
            return nn.Conv2d(inputs, channels, kernel, padding=padding)
        case Linear(units):
            return nn.Linear(inputs, units)
        case Dropout(probability):
            return nn.Dropout(probability)
        case "relu":
            return nn.ReLU()
        case "pool":
            return nn.MaxPool2d(2)
        case "flatten":
            return nn.Flatten()
