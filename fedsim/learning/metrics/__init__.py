"""Metrics of models on test samples, one file each; :mod:`fedsim.learning.metrics.base` is the interface.

Nothing here imports torch, so that metrics can be checked and described before any tensor exists.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedsim.components import discover
from fedsim.learning.metrics.base import Metric, Predictions
from fedsim.metrics import MetricDefinition

__all__ = [
    "CLIENT_METRICS",
    "OBJECTIVE_METRICS",
    "QUADRATIC_METRICS",
    "Metric",
    "Predictions",
    "default_metrics",
    "registry",
]

_DEFAULT = ("accuracy", "loss", "macro_f1", "balanced_accuracy")

QUADRATIC_METRICS = (
    MetricDefinition("loss", False, "number", "Loss"),
    MetricDefinition("gradient_norm", False, "number", "Gradient norm"),
    MetricDefinition("distance", False, "number", "Distance from the minimizer"),
)
"""Exact metrics of the quadratic task; see :class:`fedsim.learning.evaluation.QuadraticEvaluator`."""

CLIENT_METRICS = (
    MetricDefinition("client_accuracy", True, "share", "Client accuracy"),
    MetricDefinition("client_accuracy_weighted", True, "share", "Client accuracy by samples"),
    MetricDefinition("client_accuracy_worst", True, "share", "Accuracy of the worst clients"),
    MetricDefinition("client_loss", False, "number", "Client loss"),
)
"""Metrics on the clients' own test samples; see :class:`fedsim.learning.evaluation.ClientMetrics`."""

OBJECTIVE_METRICS = (
    MetricDefinition("objective_loss", False, "number", "Objective"),
    MetricDefinition("gradient_norm_squared", False, "number", "Squared gradient norm"),
    MetricDefinition(
        "personal_gradient_norm_squared", False, "number", "Squared personal gradient norm"
    ),
)
"""What training minimizes; see :class:`fedsim.learning.objective.Objective`."""


def registry() -> dict[str, type[Metric]]:
    """The metrics that ship with fedsim, by name."""
    return discover("fedsim.learning.metrics", Metric)


def default_metrics(next_character: bool, others: Iterable[Metric] = ()) -> list[Metric]:
    """The metrics that every run with test samples measures, then the others; each once.

    Args:
        next_character: whether the task is to predict the next character.
        others: metrics that a scenario asks for.
    """
    names = (*_DEFAULT, "perplexity") if next_character else _DEFAULT
    parts = registry()
    defaults: list[Metric] = [parts[name](parts[name].Params()) for name in names]
    by_column: dict[str, Metric] = {}
    for metric in (*defaults, *others):
        by_column.setdefault(metric.column, metric)
    return list(by_column.values())
