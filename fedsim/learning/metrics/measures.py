"""The metrics that ship with fedsim."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.learning.metrics.base import Metric, Predictions
from fedsim.parts.component import Parameters
from fedsim.vocabulary.metrics import OF_CLASS
from fedsim.vocabulary.numbers import varies


def _metric(**attributes: Any) -> Callable[[Callable[[Predictions], Any]], type[Metric]]:
    """Makes a metric without parameters, with these attributes, of a function of the predictions."""

    def of(function: Callable[[Predictions], Any]) -> type[Metric]:
        name = function.__name__
        namespace = {"__doc__": function.__doc__, "__module__": __name__, "name": name}
        compute = lambda metric, predictions: float(function(predictions))  # noqa: E731
        return type(name, (Metric,), namespace | {"compute": compute} | attributes)

    return of


@_metric(needs_outputs=False)
def loss(predictions: Predictions) -> float:
    """Mean loss per test sample, without penalty."""
    return predictions.loss


@_metric(needs_outputs=False)
def perplexity(predictions: Predictions) -> Any:
    """exp(mean loss); always measured in next-character tasks."""
    return np.exp(predictions.loss)


@_metric(needs_outputs=False, target_kind="class")
def accuracy(predictions: Predictions) -> Any:
    """Share of the test samples whose label is predicted."""
    return predictions.confusion.diagonal().sum() / predictions.confusion.sum()


@_metric(needs_outputs=False, target_kind="class")
def balanced_accuracy(predictions: Predictions) -> Any:
    """Mean recall over the classes that occur in the test set."""
    actual = predictions.confusion.sum(1)
    occurs = actual > 0
    return (predictions.confusion.diagonal()[occurs] / actual[occurs]).mean()


@_metric(needs_outputs=False, target_kind="class")
def macro_f1(predictions: Predictions) -> Any:
    """Mean over the classes that occur in the test set of 2 TP / (2 TP + FP + FN)."""
    confusion = predictions.confusion
    actual, predicted = confusion.sum(1), confusion.sum(0)
    occurs = actual > 0
    return (2 * confusion.diagonal()[occurs] / (actual + predicted)[occurs]).mean()


@_metric(target_kind="quantity")
def mae(predictions: Predictions) -> Any:
    """Mean over the test samples of |prediction - target|; always measured in regressions."""
    predicted, target = predictions.quantities()
    return (predicted - target).abs().mean()


@_metric(needs_outputs=False, target_kind="quantity")
def mse(predictions: Predictions) -> float:
    """Mean over the test samples of (prediction - target)^2, the loss of a regression."""
    return predictions.loss


@_metric(target_kind="quantity")
def r2(predictions: Predictions) -> Any:
    """1 - sum of (prediction - target)^2 / sum of (target - mean target)^2 over the test samples.

    1 is a perfect prediction, and 0 is as good as the mean; always measured in regressions. If all targets are equal,
    it is 1 for a perfect prediction and 0 for any other, as in scikit-learn.
    """
    predicted, target = predictions.quantities()
    residual = float((predicted - target).square().sum())
    total, count = float((target - target.mean()).square().sum()), len(target)
    if varies(math.sqrt(total / count), float(target.mean()), count):
        return 1 - residual / total
    return residual == 0


class ClassAccuracy(Metric):
    """Share of the test samples of one class that the model assigns to it (recall).

    ``evaluation.by_class: true`` measures it for every class.
    """

    name = "class_accuracy"
    target_kind = "class"
    unit = "share"
    needs_outputs = False

    class Params(Parameters):
        label: int = Field(default=0, ge=0)
        """Number of the class."""

    params: Params

    @property
    def column(self) -> str:
        return f"{OF_CLASS}{self.params.label}"

    def compute(self, predictions: Predictions) -> float:
        row = predictions.confusion[self.params.label]
        return float(row[self.params.label] / row.sum()) if row.sum() else float("nan")


class TopKAccuracy(Metric):
    """Share of the test samples whose label is among the k classes with the largest outputs.

    The column is ``top_5_accuracy`` for k = 5. With fewer than k classes every prediction is right.
    """

    name = "top_k_accuracy"
    target_kind = "class"
    unit = "share"

    class Params(Parameters):
        k: int = Field(default=5, ge=1)
        """Number of classes that count as predicted: those with the largest outputs."""

    params: Params

    @property
    def column(self) -> str:
        return f"top_{self.params.k}_accuracy"

    def compute(self, predictions: Predictions) -> float:
        outputs, labels = predictions.outputs, predictions.labels
        assert outputs is not None
        assert labels is not None
        if outputs.shape[1] < 2:
            raise UserError(
                f"{self.column} needs a model with one output per class",
                where="evaluation.metrics",
                hint="leave it out, or use a model for several classes",
            )
        best = outputs.topk(min(self.params.k, outputs.shape[1]), dim=1).indices
        return float((best == labels.unsqueeze(1)).any(1).double().mean())
