"""The interface of a metric: a number computed from a model's predictions of the test samples.

Reading a metric's parameters does not import torch.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.parts.component import Component, defined_at, is_bundled
from fedsim.parts.functions import parameters_of, shown
from fedsim.tasks.dataset import TargetKind
from fedsim.vocabulary.formatting import Kind
from fedsim.vocabulary.metrics import METRICS, MetricDefinition

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of a model for all test samples.

    Attributes:
        loss: mean loss per sample, without penalty.
        confusion: samples by label (row) and predicted label (column), (classes, classes) float64;
            empty for a regression.
        outputs: outputs of the model (logits for classifiers), (n, width) on the CPU; None unless a metric
            :attr:`Metric.needs_outputs`.
        labels: labels of the samples, (n,) int64 (float32 for a regression) on the CPU; None in the same case.
    """

    loss: float
    confusion: npt.NDArray[np.float64]
    outputs: Tensor | None = None
    labels: Tensor | None = None

    def quantities(self) -> tuple[Tensor, Tensor]:
        """Predicted and actual quantities of a regression, (n,) float64 each."""
        assert self.outputs is not None
        assert self.labels is not None
        return self.outputs.reshape(self.labels.shape).double(), self.labels.double()


class Metric(Component, ABC):
    """A metric of a model on the shared test samples.

    Direction and unit of the metrics in :data:`fedsim.vocabulary.metrics.METRICS` are defined only there; others
    declare them.

    Attributes:
        higher_is_better: whether larger values are better.
        unit: ``share`` for values from 0 to 1, ``number`` for all others.
        target_kind: the labels that it can be computed from: classes, quantities, or either if None.
        needs_outputs: whether :meth:`compute` reads the outputs of every sample, beyond loss and confusion matrix;
            they are then kept in memory during an evaluation.
    """

    higher_is_better: ClassVar[bool] = True
    unit: ClassVar[Kind] = "number"
    target_kind: ClassVar[TargetKind | None] = None
    needs_outputs: ClassVar[bool] = True

    @property
    def column(self) -> str:
        """Column of the ``metrics`` table; the name of the metric unless overridden."""
        return self.name or type(self).__name__

    @property
    def definition(self) -> MetricDefinition:
        """Direction and unit, for ``run.json``."""
        built_in = METRICS.get(self.column)
        return built_in or MetricDefinition(self.column, self.higher_is_better, self.unit)

    @abstractmethod
    def compute(self, predictions: Predictions) -> float:
        """The metric's value; a pure function of the predictions. May run on several threads at once."""


_OF_FUNCTIONS = ("higher_is_better", "unit", "target_kind")
TABLE_COLUMNS = ("time_s", "version", "round")
"""Columns of the ``metrics`` table that are not metrics."""


def check_column(metric: Metric, where: str) -> None:
    """Refuse a user's metric whose column has a meaning already; ``where`` is its key in the scenario.

    Raises:
        UserError: it is that of a metric of fedsim, or one of every run.
    """
    column = metric.column
    if not is_bundled(type(metric)) and (column in METRICS or column in TABLE_COLUMNS):
        raise UserError(
            f"the metric {type(metric).__name__} ({defined_at(type(metric).compute)}) has the name '{column}', which "
            "has a meaning already",
            where=where,
            hint=f"choose another one, such as my_{column}: rename the function, or set `name` in the class",
        )


def declares_direction(metric: Metric) -> bool:
    """Whether it is known if higher values of a metric are better, rather than assumed."""
    return metric.column in METRICS or any(
        "higher_is_better" in vars(base) for base in type(metric).__mro__ if base is not Metric
    )


def measured(metric: Metric, predictions: Predictions) -> float:
    """The value of a metric; NaN or infinite if a user's metric returns that.

    Raises:
        UserError: it did not return a number.
    """
    value: Any = metric.compute(predictions)
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        compute = inspect.unwrap(type(metric).compute)
        raise UserError(
            f"the metric {compute.__qualname__} returned {shown(value)}, not a number",
            where=defined_at(compute),
            hint="return a number, or a tensor with one element",
        ) from error


def of_function(function: Callable[..., float]) -> type[Metric]:
    """A metric from a function of outputs and labels.

    It is called with :attr:`Predictions.outputs`, :attr:`Predictions.labels` and the parameters of the scenario. Its
    attributes ``higher_is_better``, ``unit`` and ``target_kind``, if it has them, are those of the metric.

    Raises:
        UserError: it cannot be called with these arguments.
    """

    @functools.wraps(function)
    def compute(metric: Metric, predictions: Predictions) -> float:
        return function(predictions.outputs, predictions.labels, **metric.params.arguments())

    namespace = {
        "__doc__": function.__doc__ or "",  # None would inherit that of the base.
        "__module__": function.__module__,
        "name": function.__name__,
        "Params": parameters_of(function, "outputs", "labels"),
        "compute": compute,
        **{name: getattr(function, name) for name in _OF_FUNCTIONS if hasattr(function, name)},
    }
    return type(function.__name__, (Metric,), namespace)
