"""A small convolutional network in the style of LeNet."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt
from torch import Generator, nn

from fedsim.components import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent, initialise_for_relu


class CnnParameters(Parameters):
    """Parameters of the small convolutional network."""

    channels: tuple[PositiveInt, PositiveInt] = (6, 16)
    """Output channels of the two convolutions."""
    kernel: Literal[1, 3, 5, 7] = 5
    """Height and width of the convolutions; padded so that they keep the size of the image."""
    hidden: list[PositiveInt] = [120, 84]
    """Widths of the linear layers before the last one."""


class Cnn(ModelComponent):
    """LeNet-style network: two padded convolutions, each with ReLU and 2 x 2 max-pooling, then linear layers
    with ReLU.

    The defaults have LeNet-5's widths (LeCun et al. 1998). Works on images of any size from 4 x 4 pixels.
    """

    name: ClassVar[str] = "cnn"
    Params = CnnParameters
    params: CnnParameters

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, height, width = self.image_shape(dataset, 4)
        first, second = self.params.channels
        kernel = self.params.kernel
        layers: list[nn.Module] = [
            nn.Conv2d(depth, first, kernel, padding=kernel // 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, kernel, padding=kernel // 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        ]
        features = second * (height // 4) * (width // 4)
        for hidden in self.params.hidden:
            layers += [nn.Linear(features, hidden), nn.ReLU()]
            features = hidden
        return nn.Sequential(*layers, nn.Linear(features, dataset.classes))

    def initialise(self, module: nn.Module, generator: Generator) -> None:
        """Kaiming normal weights and zero biases before ReLU; torch's standard rule in the last layer."""
        initialise_for_relu(module, generator)
