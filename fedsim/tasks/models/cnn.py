"""A small convolutional network in the style of LeNet."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from fedsim.parts.component import Parameters
from fedsim.tasks.sequential import Conv, Layer, Linear, SequentialModel


class CnnParameters(Parameters):
    """Parameters of the small convolutional network."""

    channels: tuple[PositiveInt, PositiveInt] = (6, 16)
    """Output channels of the two convolutions."""
    kernel: Literal[1, 3, 5, 7] = 5
    """Height and width of the convolutions, which are padded to keep the size of the image."""
    hidden: list[PositiveInt] = [120, 84]
    """Widths of the linear layers before the last one."""


class Cnn(SequentialModel):
    """LeNet-style network: two padded convolutions, each with ReLU and 2 x 2 max-pooling, then linear layers with ReLU.

    The defaults have LeNet-5's widths (LeCun et al. 1998). Works on images of any size from 4 x 4 pixels.
    """

    name = "cnn"
    for_relu = True
    Params = CnnParameters
    params: CnnParameters

    def layers(self) -> list[Layer]:
        """Convolutions that keep the size of the image, then the hidden layers."""
        kernel, result = self.params.kernel, list[Layer]()
        for channels in self.params.channels:
            result += [Conv(channels, kernel, kernel // 2), "pool", "relu"]
        result.append("flatten")
        for width in self.params.hidden:
            result += [Linear(width), "relu"]
        return result
