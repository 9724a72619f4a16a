"""Stacks of linear layers: linear and logistic regression and the multi-layer perceptron."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveInt

from fedsim.parts.component import Parameters
from fedsim.tasks.dataset import Dataset, TargetKind
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import ModelComponent

if TYPE_CHECKING:
    from torch import Generator, nn


class _LinearStack(ModelComponent):
    """Linear layers with ReLU between them."""

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset."""
        from fedsim.tasks.modules.networks import LinearStack

        return LinearStack(self._widths(dataset))

    def layout(self, dataset: Dataset) -> Layout:
        """Weights and biases of the layers."""
        layers = enumerate(pairwise(self._widths(dataset)))
        return Layout.of_layers((f"layers.{i}", (out, width)) for i, (width, out) in layers)

    def _widths(self, dataset: Dataset) -> list[int]:
        return [self.feature_count(dataset), *self._hidden(), dataset.classes]

    def _hidden(self) -> list[int]:
        """Widths of the hidden layers."""
        return []


class LogisticRegression(_LinearStack):
    """Multinomial logistic (softmax) regression: one linear layer with bias, trained with cross-entropy."""

    name = "logistic_regression"
    family = "linear"
    predicts: ClassVar[TargetKind] = "class"

    class Params(Parameters):
        start: Literal["random", "zero"] = "random"
        """Initial parameters: torch's standard rule, or all zero."""

    params: Params

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Random or zero, according to ``start``."""
        super().initialize(module, generator)
        if self.params.start == "zero":
            for parameter in module.parameters():
                parameter.zero_()


class LinearRegression(LogisticRegression):
    """Linear regression: one linear layer with bias and one output, trained with the squared error."""

    name = "linear_regression"
    predicts = "quantity"


class Mlp(_LinearStack):
    """Multi-layer perceptron: linear layers with ReLU between them, on flattened inputs."""

    name = "mlp"
    family = "mlp"
    takes_rate = True

    class Params(Parameters):
        hidden: list[PositiveInt] = Field(default=[200], min_length=1)
        """Widths of the hidden layers."""

    params: Params

    def _hidden(self) -> list[int]:
        return [self.scaled(width) for width in self.params.hidden]
