"""The module of logistic regression and of the multi-layer perceptron."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


class LinearStack(nn.Module):
    """Linear layers on flattened inputs with ReLU between them.

    Attributes:
        layers: the linear layers, in order.
    """

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise(widths))

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (n, classes) of inputs (n, *input_shape)."""
        values = inputs.flatten(1)
        for layer in self.layers[:-1]:
            values = torch.relu(layer(values))
        result: Tensor = self.layers[-1](values)
        return result
