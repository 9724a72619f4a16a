"""The interface of a metric: a number computed from a model's predictions of the test samples.

Reading a metric's parameters does not import torch.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt

from fedsim.errors import FedsimError, UserError
from fedsim.parts.component import Component, defined_at, is_bundled, users_line
from fedsim.parts.functions import parameters_of
from fedsim.parts.parameters import fields_by_key
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


# Values that attributes of a user's metric may have, of these types.
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "higher_is_better": (True, False),
    "unit": tuple(unit for unit in get_args(Kind) if unit not in ("mean", "text")),
    "target_kind": (None, *get_args(TargetKind)),
    "needs_outputs": (True, False),
}
_OF_FUNCTIONS = ("higher_is_better", "unit", "target_kind")
# Attributes of a class that a function cannot have, and what to do instead.
_OF_CLASSES: Mapping[str, str] = {
    "needs_outputs": "a function always receives the outputs; leave it out, or write a class that derives from "
    "fedsim.learning.metrics.Metric",
    "name": "rename the function: its name is the column",
    "column": "rename the function: its name is the column",
    "Params": "its parameters are the further arguments of the function, with their defaults",
}
TABLE_COLUMNS = ("time_s", "version", "round")
"""Columns of the ``metrics`` table that are not metrics."""


def check_declared(metric: Metric, where: str) -> None:
    """Check the attributes and the column of a user's metric; ``where`` is its key in the scenario.

    Raises:
        UserError: one has a value that it cannot have, or the column already has a meaning.
    """
    if is_bundled(type(metric)):
        return
    cls = type(metric)
    title = f"the metric {cls.__name__} ({defined_at(cls.compute)})"
    for message, hint in _without_effect(metric):
        raise UserError(f"{title} {message}", where=where, hint=hint)
    for name in _attributes(metric):
        if meant := _meant(name, _OF_FUNCTIONS if _is_function(metric) else tuple(_CHOICES)):
            raise UserError(
                f"{title} has the attribute '{name}', which has no meaning",
                where=where,
                hint=f"did you mean '{meant}'? Otherwise give it another name, or one that begins with _",
            )
    for name, choices in _CHOICES.items():
        value = getattr(metric, name)
        if all((type(value), value) != (type(choice), choice) for choice in choices):
            raise UserError(
                f"{name} of {title} is {value!r}",
                where=where,
                hint=f"set it to one of: {', '.join(map(repr, choices))}",
            )
    column: Any = metric.column
    rename = "rename the function" if _is_function(metric) else "set `name` in the class"
    if not isinstance(column, str) or not column:
        raise UserError(f"the name of {title} is {column!r}, not text", where=where, hint=rename)
    if column in METRICS or column in TABLE_COLUMNS:
        raise UserError(
            f"{title} has the name '{column}', which "
            + ("is a metric of fedsim" if column in METRICS else "is a column of every run"),
            where=where,
            hint=f"choose another name, such as my_{column}: {rename}",
        )


def _without_effect(metric: Metric) -> Iterator[tuple[str, str]]:
    """What is wrong, and how to fix it, for attributes of a metric that are set where they have no effect."""
    cls = type(metric)
    function = inspect.unwrap(cls.compute)
    if _is_function(metric):
        for name, hint in _OF_CLASSES.items():
            if name in vars(function):
                yield f"has the attribute '{name}', which a function cannot have", hint
    owner = f"below the function: {cls.__name__}." if _is_function(metric) else "in the class: "
    # As variables, these names mean nothing else; `unit` may.
    declared = {name for base in cls.__mro__ if not is_bundled(base) for name in vars(base)}
    names = [name for name in _CHOICES if name != "unit" and name not in declared]
    code = getattr(function, "__code__", None)
    variables = (
        () if code is None else code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
    )
    module = {} if cls.__module__ == "__main__" else vars(sys.modules[cls.__module__])
    for name in names:
        if _is_function(metric) and name in _OF_CLASSES:
            continue
        if name in variables:
            yield f"sets {name} as a variable of the function", f"write it {owner}{name} = ..."
        elif name in fields_by_key(cls.Params):
            yield (
                f"has the parameter '{name}', which has no effect",
                f"write it {owner}{name} = ...",
            )
        elif name in module:
            yield f"does not use the variable {name} of its file", f"write it {owner}{name} = ..."


def declares_direction(metric: Metric) -> bool:
    """Whether it is known if higher values of a metric are better, rather than assumed."""
    return metric.column in METRICS or any(
        "higher_is_better" in vars(base) for base in type(metric).__mro__ if base is not Metric
    )


def how_to_declare_direction(metric: Metric) -> str:
    """A hint that says how a user's metric declares its direction."""
    name = type(metric).__name__
    if _is_function(metric):
        return f"write {name}.higher_is_better = True, or False, below the function"
    return f"write higher_is_better = True, or False, in the class {name}"


def measured(metric: Metric, predictions: Predictions) -> float:
    """The value of a metric; NaN or infinite if a user's metric returns that.

    Raises:
        UserError: a user's metric failed, or did not return a number.
    """
    if is_bundled(type(metric)):
        return float(metric.compute(predictions))
    compute = inspect.unwrap(type(metric).compute)
    try:
        value: Any = metric.compute(predictions)
    except (FedsimError, MemoryError):
        raise
    # A user's metric may raise any exception; all are reported as the user's errors.
    except Exception as error:
        raise UserError(
            f"the metric {compute.__qualname__} failed: {type(error).__name__}: {error}",
            where=users_line(error) or defined_at(compute),
            hint=f"it received outputs {_shape(predictions.outputs)} and labels {_shape(predictions.labels)}",
        ) from error
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        returned = repr(value) if value is None or isinstance(value, str) else _shape(value)
        raise UserError(
            f"the metric {compute.__qualname__} returned {returned}, not a number",
            where=defined_at(compute),
            hint="return a number, or a tensor with one element",
        ) from error


def _attributes(metric: Metric) -> list[str]:
    """Names of the public data attributes that a user's function or class defines."""
    if _is_function(metric):
        return [name for name in vars(inspect.unwrap(type(metric).compute)) if name[0] != "_"]
    users = [base for base in type(metric).__mro__ if base is not object and not is_bundled(base)]
    return [
        name
        for base in users
        for name, value in vars(base).items()
        if not (name.startswith("_") or inspect.isroutine(value) or hasattr(Metric, name))
    ]


def _meant(name: str, known: tuple[str, ...]) -> str | None:
    """The attribute of a metric that a misspelled one stands for; None if it resembles none."""
    if name in known:
        return None
    if name.lower().endswith("better"):  # as lower_is_better and greater_is_better
        return "higher_is_better"
    return next(iter(difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)), None)


def _is_function(metric: Metric) -> bool:
    return hasattr(type(metric).compute, "__wrapped__")


def _shape(value: Any) -> str:
    """Shape and type of a tensor or array, such as ``(360, 10) float32``; the type of anything else."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"


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
