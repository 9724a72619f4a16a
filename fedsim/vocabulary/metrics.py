"""Definitions of metrics: which direction is better, the unit, and the name in a sentence.

A run keeps those of the user's own metrics in ``run.json``, such as
``{"metric_definitions": {"auroc": {"higher_is_better": true, "unit": "share"}}}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError, nearest_or_all
from fedsim.vocabulary.arrays import Bools
from fedsim.vocabulary.formatting import Kind, format_level, format_value

DispatchLoss = Literal["mean", "root_mean_square"]
"""The loss that a dispatch reports: the mean over its steps; or the root mean square over the samples that it visited,
each loss at the model before its step and without a penalty."""

OF_CLASS = "class_accuracy_"
"""Begins the names of the accuracies of single classes, which have a chart of their own."""
DEFINITIONS_KEY = "metric_definitions"
"""Entry of ``run.json`` with the definitions of the user's metrics."""


@dataclass(frozen=True)
class MetricDefinition:
    """One metric.

    Attributes:
        name: column of the table of metrics.
        higher_is_better: whether a larger value is better.
        unit: how values are written; ``share`` in percent.
        label: the name in a sentence; ``name`` with spaces when empty.
        low, high: smallest and largest possible value; 0 and 1 for shares.
    """

    name: str
    higher_is_better: bool = True
    unit: Kind = "number"
    label: str = ""
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name.replace("_", " "))
        if self.unit == "share":
            object.__setattr__(self, "low", 0.0)
            object.__setattr__(self, "high", 1.0)

    def unreachable(self, value: float, where: str) -> UserError | None:
        """The error for a target that the metric cannot reach; None if it can."""
        if self.low <= value <= self.high:
            return None
        percent = self.high == 1 and 2 <= value <= 100
        limits = f"lie between {self.low:g} and {self.high:g}"
        if math.isinf(self.low):
            limits = f"are at most {self.high:g}"
        elif math.isinf(self.high):
            limits = f"are at least {self.low:g}"
        return UserError(
            f"{self.name} never reaches {value:g}; its values {limits}",
            where=where,
            hint=f"write {value / 100:g} for {value:g}%" if percent else None,
        )

    def reached(self, values: npt.ArrayLike, target: float) -> Bools:
        """Whether each value equals the target or is better; False for NaN."""
        array = np.asarray(values, dtype=np.float64)
        return np.asarray(array >= target if self.higher_is_better else array <= target)

    def best(self, values: npt.ArrayLike) -> float:
        """The best of the finite values; NaN if there is none."""
        array = np.asarray(values, dtype=np.float64)
        finite = array[np.isfinite(array)]
        if not len(finite):
            return float("nan")
        return float(finite.max() if self.higher_is_better else finite.min())

    def format(self, value: float) -> str:
        """A measured value: ``93.0%`` or ``0.2487``."""
        return format_value(value, self.unit)

    def format_target(self, value: float) -> str:
        """A target in a heading: ``90% accuracy``, ``loss of 0.4``."""
        return self._named(format_level(value, self.unit))

    def format_named(self, value: float) -> str:
        """A measured value in a heading: ``93.0% accuracy``, ``loss of 0.2487``."""
        return self._named(self.format(value))

    def with_article(self, named: str) -> str:
        """A named value after a verb: ``90% accuracy``, ``a loss of 0.4``, ``an MSE of 0.1``."""
        if self._follows:
            return named
        word = self.label.strip().partition(" ")[0]
        # The letters of an abbreviation are spoken one by one.
        vowels = "AEFHILMNORSX" if word.upper() == word else "AEIOaeio"
        return f"{'an' if word[:1] in vowels else 'a'} {named}"

    @property
    def _follows(self) -> bool:
        """Whether the name follows a value, as for every kind of accuracy; that of any other metric precedes it."""
        return self.unit == "share" and "accuracy" in self.label

    def _named(self, value: str) -> str:
        return f"{value} {self.label}" if self._follows else f"{self.label} of {value}"


METRICS: Mapping[str, MetricDefinition] = {
    metric.name: metric
    for metric in (
        MetricDefinition("accuracy", unit="share"),
        MetricDefinition("loss", higher_is_better=False),
        MetricDefinition("macro_f1", unit="share", label="macro F1"),
        MetricDefinition("balanced_accuracy", unit="share"),
        MetricDefinition("perplexity", higher_is_better=False, low=1.0),
        MetricDefinition("mse", higher_is_better=False, label="MSE", low=0.0),
        MetricDefinition("mae", higher_is_better=False, label="MAE", low=0.0),
        MetricDefinition("r2", label="R²", high=1.0),
        MetricDefinition("client_accuracy", unit="share"),
        MetricDefinition("client_accuracy_weighted", unit="share"),
        MetricDefinition("client_accuracy_worst", unit="share"),
        MetricDefinition("client_mae", higher_is_better=False, label="client MAE", low=0.0),
        MetricDefinition(
            "client_mae_weighted", higher_is_better=False, label="client MAE weighted", low=0.0
        ),
        MetricDefinition(
            "client_mae_worst", higher_is_better=False, label="client MAE worst", low=0.0
        ),
        MetricDefinition("client_loss", higher_is_better=False),
        MetricDefinition("objective_loss", higher_is_better=False),
        MetricDefinition("gradient_norm_squared", higher_is_better=False, low=0.0),
        MetricDefinition("personal_gradient_norm_squared", higher_is_better=False, low=0.0),
        MetricDefinition("gradient_norm", higher_is_better=False, low=0.0),
        MetricDefinition("distance", higher_is_better=False, low=0.0),
    )
}
"""The metrics that fedsim's tasks measure, by name; see :mod:`fedsim.learning.evaluation`."""


def definition(name: str, custom: Mapping[str, MetricDefinition] | None = None) -> MetricDefinition:
    """The definition of a metric: the user's in ``custom``, else fedsim's, else a number for which higher is better."""
    return (custom or {}).get(name) or METRICS.get(name) or MetricDefinition(name)


def require_measured(metric: str, measured: Collection[str], where: str) -> None:
    """Refuse a metric that no run measured."""
    if metric not in measured:
        every = f"measured: {', '.join(measured) or 'nothing (timing-only runs)'}"
        hint = nearest_or_all(metric, measured, every)
        raise UserError(f"no run measured '{metric}'", where=where, hint=hint)


def require_target(
    metric: MetricDefinition, value: float, measured: Collection[str], where: str
) -> None:
    """Refuse a target of a metric that no run measured, or that it cannot reach."""
    require_measured(metric.name, measured, where)
    if error := metric.unreachable(value, where):
        raise error


def meets(
    target: Mapping[str, float],
    metrics: Mapping[str, float],
    definition_of: Callable[[str], MetricDefinition] = definition,
) -> bool:
    """Whether every metric of a target has reached its value; one that was not measured has not."""
    return all(
        name in metrics and bool(definition_of(name).reached(metrics[name], value))
        for name, value in target.items()
    )


def to_document(definitions: Iterable[MetricDefinition]) -> dict[str, dict[str, Any]]:
    """The entry :data:`DEFINITIONS_KEY` of ``run.json``."""
    return {
        item.name: {"higher_is_better": item.higher_is_better, "unit": item.unit}
        for item in definitions
    }


def from_document(document: Mapping[str, Mapping[str, Any]]) -> dict[str, MetricDefinition]:
    """Definitions by name from the entry :data:`DEFINITIONS_KEY`; a unit that is not known becomes ``number``."""
    units = set(get_args(Kind)) - {"mean", "text"}
    return {
        name: MetricDefinition(
            name,
            bool(entry.get("higher_is_better", True)),
            entry["unit"] if entry.get("unit") in units else "number",
            METRICS[name].label if name in METRICS else "",
        )
        for name, entry in document.items()
    }
