"""The modules of networks that are a plain sequence of layers."""

from __future__ import annotations

from torch import nn

from fedsim.tasks.sequential import Conv, Dropout, Layer, Linear


def sequential(layers: list[tuple[Layer, int]]) -> nn.Sequential:
    """The layers, each given with its number of input channels or values."""
    return nn.Sequential(*(_module(layer, inputs) for layer, inputs in layers))


def _module(layer: Layer, inputs: int) -> nn.Module:
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
