"""A classifier whose hidden layer is changed by an adapter, for the safety net."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class _Layer(nn.Module):
    scaling = 2.0

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5, requires_grad=False)
        self.lora_A = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.lora_B = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight + self.scaling * self.lora_B @ self.lora_A).T


class Adapted(nn.Module):
    """A frozen layer with an adapter, and a trained one."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.hidden = _Layer(input_shape[0], 12, 2)
        self.last = nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        logits: Tensor = self.last(torch.relu(self.hidden(x)))
        return logits
