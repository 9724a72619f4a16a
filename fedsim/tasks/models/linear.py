"""Binary logistic model with a shared and a personal part."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from fedsim.components import Parameters
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.losses import Loss
from fedsim.tasks.model import ModelComponent

_FEATURE_ORDER = 2


class LinearParameters(Parameters):
    """Parameters of the binary linear model."""

    positive: list[int] = Field(default=[1], min_length=1)
    """Labels that count as +1; all others count as -1. [1, 3, 5, 7, 9] tells odd from even digits."""
    personal_features: int = Field(default=0, ge=0)
    """Number of features that the tensor 'personal' weighs; the others are weighed by 'shared'."""
    shuffle_features: bool = False
    """Deal the features to shared and personal part in a fixed random order; otherwise the last ones are personal."""
    unit_norm: bool = False
    """Scale every sample to Euclidean norm 1."""
    bias: bool = False
    """Add a trainable constant 'bias'."""
    penalty: float = Field(default=0.0, ge=0)
    """Weight rho of the non-convex penalty ||w||^2 / (1 + ||w||^2), one term a tensor."""


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
        """What is weighed: inputs as rows (n, features), the shared features first, scaled where that is asked for."""
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


class Linear(ModelComponent):
    """Binary logistic regression, linear in a shared and a personal block, with an optional non-convex penalty.

    The study of Chen et al., Sharper Convergence Guarantees for Federated Learning with Partial Model
    Personalization, section 5: f_i = mean of log(1 + exp(-c (a . u + b . v_i))) + rho (||u||^2 / (1 +
        ||u||^2) + ||v_i||^2 / (1 + ||v_i||^2)).
    """

    name: ClassVar[str] = "linear"
    Params = LinearParameters
    params: LinearParameters

    def build(self, dataset: Dataset) -> nn.Module:
        """The module for this dataset's features."""
        features = self.feature_count(dataset)
        if self.params.personal_features >= features:
            raise self.misfit(
                f"{self.params.personal_features} personal features leave none of {features} to share",
                dataset,
            )
        wrong = [label for label in self.params.positive if not 0 <= label < dataset.classes]
        if wrong or len(set(self.params.positive)) >= dataset.classes:
            raise self.misfit(
                f"positive labels {self.params.positive} do not split its {dataset.classes} classes in two",
                dataset,
            )
        return SplitLinear(features, self.params)

    def loss(self, dataset: Dataset) -> Loss:
        """Logistic loss with the penalty."""
        return Loss("logistic", tuple(self.params.positive), self.params.penalty)
