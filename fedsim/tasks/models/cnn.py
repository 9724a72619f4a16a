"""Convolutional networks that are a plain sequence of layers: one in the style of LeNet, and those of papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveInt

from fedsim.parts.component import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import MOST_LAYERS, ModelComponent

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
        from torch import nn

        return nn.Sequential(*(_module(layer, inputs) for layer, inputs in self._sized(dataset)))

    def layout(self, dataset: Dataset) -> Layout:
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
        for layer in self.layers():
            inputs, height, width = size
            match layer:
                case Conv(channels, kernel, padding):
                    layer = Conv(self.scaled(channels), kernel, padding)
                    grown = 2 * padding - kernel + 1
                    size = (layer.channels, height + grown, width + grown)
                case Linear(units):
                    layer = Linear(self.scaled(units))
                    size = (layer.units, 1, 1)
                case "pool":
                    size = (inputs, height // 2, width // 2)
                case "flatten":
                    size = (math.prod(size), 1, 1)
            result.append((layer, inputs))
        return [*result, (Linear(dataset.classes), size[0])]


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


class Cnn(SequentialModel):
    """LeNet-style network: two padded convolutions, each with ReLU and 2 x 2 max-pooling, then linear layers with ReLU.

    The defaults have LeNet-5's widths (LeCun et al. 1998). Works on images of any size from 4 x 4 pixels.
    """

    name = "cnn"
    for_relu = True

    class Params(Parameters):
        channels: tuple[PositiveInt, PositiveInt] = (6, 16)
        """Output channels of the two convolutions."""
        kernel: Literal[1, 3, 5, 7] = 5
        """Height and width of the convolutions, which are padded to keep the size of the image."""
        hidden: list[PositiveInt] = Field(default=[120, 84], max_length=MOST_LAYERS)
        """Widths of the linear layers before the last one."""

    params: Params

    def layers(self) -> list[Layer]:
        kernel, result = self.params.kernel, list[Layer]()
        for channels in self.params.channels:
            result += [Conv(channels, kernel, kernel // 2), "pool", "relu"]
        result.append("flatten")
        for width in self.params.hidden:
            result += [Linear(width), "relu"]
        return result


class FedCompassCnn(SequentialModel):
    """FedCompass's network for MNIST (Li et al., ICLR 2024, table 8).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU - linear; no padding.
    582,026 parameters on MNIST.
    """

    name = "fedcompass_cnn"
    least = 16
    hidden_layers = (
        *(Conv(32, 5), "pool", "relu"),
        *(Conv(64, 5), "pool", "relu"),
        *("flatten", Linear(512), "relu"),
    )


class FedSumMnistCnn(SequentialModel):
    """FedSUM's network for MNIST (main set-up, table of models).

    conv 3x3 (10) - ReLU - pool 2 - conv 3x3 (20) - dropout 0.2 - ReLU - pool 2 - linear 50 - ReLU - dropout
    0.2 - linear; padding 1. 51,480 parameters on MNIST.
    """

    name = "fedsum_mnist_cnn"
    hidden_layers = (
        *(Conv(10, 3, padding=1), "pool", "relu"),
        *(Conv(20, 3, padding=1), Dropout(0.2), "pool", "relu"),
        *("flatten", Linear(50), "relu", Dropout(0.2)),
    )


class FedSumSvhnCnn(SequentialModel):
    """FedSUM's network for SVHN (main set-up, table of models).

    conv 3x3 (32) - ReLU - pool 2 - conv 3x3 (32) - ReLU - pool 2 - linear 128 - ReLU - linear; padding 1.
    273,706 parameters on SVHN.
    """

    name = "fedsum_svhn_cnn"
    hidden_layers = (
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *("flatten", Linear(128), "relu"),
    )


class FedSumCifarCnn(SequentialModel):
    """FedSUM's network for CIFAR-10 (main set-up, table of models).

    conv 3x3 (32) - ReLU - pool 2 - conv 3x3 (32) - ReLU - pool 2 - linear 256 - ReLU - linear 64 - ReLU -
    linear; padding 1. 551,786 parameters on CIFAR-10.
    """

    name = "fedsum_cifar_cnn"
    hidden_layers = (
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *("flatten", Linear(256), "relu", Linear(64), "relu"),
    )


class WangJiFashionCnn(SequentialModel):
    """Wang and Ji's network for Fashion-MNIST (A Unified Analysis of Federated Learning ..., 2022, table D.2).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (32) - ReLU - pool 2 - linear 128 - ReLU - linear; padding 2.
    228,586 parameters on Fashion-MNIST.
    """

    name = "wangji_fashion_cnn"
    for_relu = True
    hidden_layers = (
        *(Conv(32, 5, padding=2), "pool", "relu"),
        *(Conv(32, 5, padding=2), "pool", "relu"),
        *("flatten", Linear(128), "relu"),
    )


class WangJiCifarCnn(SequentialModel):
    """Wang and Ji's network for CIFAR-10 (A Unified Analysis of Federated Learning ..., 2022, table D.2).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU - linear 128 - ReLU -
    linear; padding 2. 2,218,314 parameters on CIFAR-10.
    """

    name = "wangji_cifar_cnn"
    for_relu = True
    hidden_layers = (
        *(Conv(32, 5, padding=2), "pool", "relu"),
        *(Conv(64, 5, padding=2), "pool", "relu"),
        *("flatten", Linear(512), "relu", Linear(128), "relu"),
    )
