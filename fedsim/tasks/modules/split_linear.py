"""The module of the binary linear model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Generator, Tensor, nn

from fedsim.randomness import Purpose, Stream

if TYPE_CHECKING:
    from fedsim.tasks.models.linear import LinearParameters

_FEATURE_ORDER = 2


class SplitLinear(nn.Module):
    """z = a . shared + b . personal (+ bias), where a and b are parts of a sample's features.

    Attributes:
        shared: (features - personal_features,).
        personal: (personal_features,), where there are any.
        bias: (1,), where there is one.
    """

    order: Tensor

    def __init__(self, features: int, params: LinearParameters) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.zeros(features - params.personal_features))
        if params.personal_features:
            self.personal = nn.Parameter(torch.zeros(params.personal_features))
        if params.bias:
            self.bias = nn.Parameter(torch.zeros(1))
        order = np.arange(features)
        if params.shuffle_features:
            order = np.argsort(Stream(0, Purpose.DATASET, _FEATURE_ORDER).hashes(order))
        self.register_buffer("order", torch.from_numpy(order), persistent=False)
        self.unit_norm = params.unit_norm
        self._shuffles = params.shuffle_features

    def arranged(self, inputs: Tensor) -> Tensor:
        """The weighed values: inputs as rows (n, features), shared ones first, of norm 1 if ``unit_norm`` is set."""
        values = inputs.flatten(1)
        if self._shuffles:
            values = values[:, self.order]
        if self.unit_norm:
            values = values / values.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return values

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs z (n, 1) of inputs (n, *input_shape)."""
        values = self.arranged(inputs)
        parts = [getattr(self, name) for name in ("shared", "personal") if hasattr(self, name)]
        outputs = values @ torch.cat(parts).unsqueeze(1)
        if hasattr(self, "bias"):
            outputs = outputs + self.bias
        return outputs

    def draw(self, generator: Generator) -> None:
        """All parameters start at zero, whatever the generator."""
        for parameter in self.parameters(recurse=False):
            nn.init.zeros_(parameter)
