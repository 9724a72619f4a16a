"""Stacks of linear layers: logistic regression and the multi-layer perceptron."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Generator, Tensor, nn

from fedsim.components import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import Family, ModelComponent


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


class LogisticRegressionParameters(Parameters):
    """Parameters of logistic regression."""

    start: Literal["random", "zero"] = "random"
    """Initial parameters: torch's standard rule, or all zero."""


class LogisticRegression(ModelComponent):
    """Multinomial logistic (softmax) regression: one linear layer with bias, trained with cross-entropy."""

    name: ClassVar[str] = "logistic_regression"
    family: ClassVar[Family] = "linear"
    Params = LogisticRegressionParameters
    params: LogisticRegressionParameters

    def build(self, dataset: Dataset) -> nn.Module:
        """One layer from all features to the classes."""
        return LinearStack([self.feature_count(dataset), dataset.classes])

    def initialise(self, module: nn.Module, generator: Generator) -> None:
        """Random or zero, as asked for."""
        super().initialise(module, generator)
        if self.params.start == "zero":
            for parameter in module.parameters():
                parameter.zero_()


class MlpParameters(Parameters):
    """Parameters of the multi-layer perceptron."""

    hidden: list[PositiveInt] = Field(default=[200], min_length=1)
    """Widths of the hidden layers."""


class Mlp(ModelComponent):
    """Multi-layer perceptron: linear layers with ReLU between them, on flattened inputs."""

    name: ClassVar[str] = "mlp"
    family: ClassVar[Family] = "mlp"
    Params = MlpParameters
    params: MlpParameters

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset."""
        return LinearStack([self.feature_count(dataset), *self.params.hidden, dataset.classes])
