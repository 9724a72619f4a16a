"""The interface of a metric: a number computed from a model's predictions of the test samples.

Reading a metric's parameters does not import torch.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from fedsim.errors import UserError
from fedsim.parts.component import Component, defined_at, is_bundled
from fedsim.parts.functions import parameters_of, shown
from fedsim.tasks.dataset import TargetKind
from fedsim.vocabulary.arrays import Floats
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
    confusion: Floats
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


TABLE_COLUMNS = ("time_s", "version", "round")
"""Columns of the ``metrics`` table that are not metrics."""


_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "higher_is_better": (True, False),
    "unit": tuple(unit for unit in get_args(Kind) if unit not in ("mean", "text")),
    "target_kind": (None, *get_args(TargetKind)),
}
"""Values of the attributes of a metric."""


def check_declared(metric: Metric, where: str) -> None:
    """Check the attributes and the column of a user's metric; ``where`` is its key in the scenario."""
    cls, column = type(metric), metric.column
    if is_bundled(cls):
        return
    message = hint = ""
    for name in (*vars(cls), *vars(inspect.unwrap(cls.compute))):
        if name.endswith("better") and name not in _CHOICES:
            message, hint = f"has an unknown attribute '{name}'", "use higher_is_better"
    for name, choices in _CHOICES.items():
        if (value := getattr(metric, name)) not in choices:
            message = f"has {name} {value!r}"
            hint = f"set it to one of: {', '.join(map(repr, choices))}"
    if column in METRICS or column in TABLE_COLUMNS:
        message = f"has the name '{column}', which has a meaning already"
        hint = f"choose another one, such as my_{column}: rename the function, or set `name` in the class"
    if message:
        title = f"the metric {cls.__name__} ({defined_at(cls.compute)})"
        raise UserError(f"{title} {message}", where=where, hint=hint)


def declares_direction(metric: Metric) -> bool:
    """Whether it is known if higher values of a metric are better, rather than assumed."""
    return metric.column in METRICS or any(
        "higher_is_better" in vars(base) for base in type(metric).__mro__ if base is not Metric
    )


def measured(metric: Metric, predictions: Predictions) -> float:
    """The value of a metric; NaN or infinite if a user's metric returns that."""
    value: Any = metric.compute(predictions)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
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
        **{name: getattr(function, name) for name in _CHOICES if hasattr(function, name)},
    }
    return type(function.__name__, (Metric,), namespace)
