"""Linear models and the multi-layer perceptron; a binary logistic model with a shared and a personal block."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveInt

from fedsim.parts.component import Parameters
from fedsim.tasks.dataset import Dataset, TargetKind
from fedsim.tasks.layout import Layout
from fedsim.tasks.losses import Loss
from fedsim.tasks.model import MOST_LAYERS, ModelComponent

if TYPE_CHECKING:
    from torch import Generator, nn


class _LinearStack(ModelComponent):
    """Linear layers with ReLU between them."""

    def build(self, dataset: Dataset) -> nn.Module:
        from fedsim.tasks.modules.networks import LinearStack

        return LinearStack(self._widths(dataset))

    def layout(self, dataset: Dataset) -> Layout:
        layers = enumerate(pairwise(self._widths(dataset)))
        return Layout.of_layers((f"layers.{i}", (out, width)) for i, (width, out) in layers)

    def _widths(self, dataset: Dataset) -> list[int]:
        return [self.feature_count(dataset), *self._hidden(), dataset.classes]

    def _hidden(self) -> list[int]:
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
        hidden: list[PositiveInt] = Field(default=[200], min_length=1, max_length=MOST_LAYERS)
        """Widths of the hidden layers."""

    params: Params

    def _hidden(self) -> list[int]:
        return [self.scaled(width) for width in self.params.hidden]


class Linear(ModelComponent):
    """Binary logistic regression, linear in a shared and a personal block, with an optional non-convex penalty.

    From Chen et al., Sharper Convergence Guarantees for Federated Learning with Partial Model
    Personalization, section 5: f_i = mean of log(1 + exp(-c (a . u + b . v_i))) +
    rho (||u||^2 / (1 + ||u||^2) + ||v_i||^2 / (1 + ||v_i||^2)).
    """

    name = "linear"
    predicts = "class"

    class Params(Parameters):
        positive: list[int] = Field(default=[1], min_length=1)
        """Labels that count as +1; all others count as -1. [1, 3, 5, 7, 9] separates odd from even digits."""
        personal_features: int = Field(default=0, ge=0)
        """Number of features with weights in the tensor 'personal'; the others have theirs in 'shared'."""
        shuffle_features: bool = False
        """Divide the features between the blocks in a fixed random order; otherwise the last ones are personal."""
        unit_norm: bool = False
        """Scale every sample to Euclidean norm 1."""
        bias: bool = False
        """Add a trainable constant 'bias'."""
        penalty: float = Field(default=0.0, ge=0)
        """Weight rho of the non-convex penalty ||w||^2 / (1 + ||w||^2), one term per tensor."""

    params: Params

    def build(self, dataset: Dataset) -> nn.Module:
        from fedsim.tasks.modules.networks import SplitLinear

        params, features = self.params, self._features(dataset)
        return SplitLinear(
            features - params.personal_features,
            params.personal_features,
            bias=params.bias,
            shuffle_features=params.shuffle_features,
            unit_norm=params.unit_norm,
        )

    def _features(self, dataset: Dataset) -> int:
        features = self.feature_count(dataset)
        if self.params.personal_features >= features:
            raise self.misfit(
                f"with {self.params.personal_features} personal features, none of its {features} features is shared",
                dataset,
            )
        wrong = [label for label in self.params.positive if not 0 <= label < dataset.classes]
        if wrong or len(set(self.params.positive)) >= dataset.classes:
            raise self.misfit(
                f"positive labels {self.params.positive} do not split its {dataset.classes} classes into two groups",
                dataset,
            )
        return features

    def loss(self, dataset: Dataset) -> Loss:
        super().loss(dataset)
        return Loss("logistic", tuple(self.params.positive), self.params.penalty)
