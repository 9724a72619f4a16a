"""A tiny module with batch normalization, which can be divided."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Normed(nn.Module):
    """Two layers with batch normalization between them."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, model_rate: float = 1.0) -> None:
        super().__init__()
        width = math.ceil(4 * model_rate)
        self.first = nn.Linear(math.prod(input_shape), width)
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        logits: Tensor = self.last(torch.relu(self.norm(self.first(x.flatten(1)))))
        return logits
