"""Metrics of models on test samples; :mod:`fedsim.learning.metrics.base` is the interface.

Nothing here imports torch, so that metrics can be checked and described before any tensor exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from fedsim.errors import UserError
from fedsim.learning.metrics.base import Metric as Metric
from fedsim.learning.metrics.base import Predictions as Predictions
from fedsim.learning.metrics.base import check_declared
from fedsim.learning.metrics.measures import ClassAccuracy
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.model import Evaluation
from fedsim.tasks.base import AnalyticTask, Task
from fedsim.tasks.dataset import Kind, TargetKind
from fedsim.vocabulary.metrics import METRICS, MetricDefinition

_OF_CLASSES = ("accuracy", "loss", "macro_f1", "balanced_accuracy")
_DEFAULT: Mapping[Kind, tuple[str, ...]] = {
    "classification": _OF_CLASSES,
    "binary": _OF_CLASSES,
    "next_character": (*_OF_CLASSES, "perplexity"),
    "regression": ("loss", "mae", "r2"),
}


def _of_clients(score: str) -> tuple[MetricDefinition, ...]:
    names = (score, f"{score}_weighted", f"{score}_worst", "loss")
    return tuple(METRICS[f"client_{name}"] for name in names)


CLIENT_METRICS: Mapping[TargetKind, tuple[MetricDefinition, ...]] = {
    "class": _of_clients("accuracy"),
    "quantity": _of_clients("mae"),
}
"""Metrics on the clients' own test samples; see :class:`fedsim.learning.evaluation.ClientMetrics`."""

OBJECTIVE_METRICS = tuple(
    METRICS[name]
    for name in ("objective_loss", "gradient_norm_squared", "personal_gradient_norm_squared")
)
"""Metrics of the training objective; see :class:`fedsim.learning.evaluation.Objective`."""


def default_metrics(kind: Kind, others: Iterable[Metric] = ()) -> list[Metric]:
    """The metrics of every run with test samples of this kind, then the others; a named default is measured once."""
    parts = CATALOG.parts("metric")
    defaults: list[Metric] = [parts[name](parts[name].Params()) for name in _DEFAULT[kind]]
    others = list(others)
    wrong = "class" if kind == "regression" else "quantity"
    listed: set[str] = set()
    for number, metric in enumerate(others):
        check_declared(metric, where := f"evaluation.metrics.{number}")
        if metric.column in listed:
            raise UserError(
                f"two metrics have the name '{metric.column}', so one column cannot hold both",
                where=where,
                hint="list it once; for other parameters, write a second function or class with another name",
            )
        listed.add(metric.column)
        if metric.target_kind == wrong:
            raise UserError(
                f"metric {metric.column} needs targets of kind {wrong}, which this task does not predict",
                where=where,
                hint=f"remove it; this task measures {', '.join(_DEFAULT[kind])} anyway",
            )
    by_column: dict[str, Metric] = {}
    for metric in (*defaults, *others):
        by_column.setdefault(metric.column, metric)
    return list(by_column.values())


def chosen_metrics(evaluation: Evaluation, task: Task) -> tuple[Metric, ...]:
    """The metrics that the section adds, ``by_class`` with the classes that occur among the test samples."""
    chosen = [part.create() for part in evaluation.metrics]
    if task.dataset is None:
        return tuple(chosen)
    for number, metric in enumerate(chosen):
        if isinstance(metric, ClassAccuracy) and metric.params.label >= task.dataset.classes > 1:
            raise UserError(
                f"there is no class {metric.params.label}",
                where=f"evaluation.metrics.{number}.label",
                hint=f"the classes are 0 to {task.dataset.classes - 1}",
            )
    if evaluation.by_class:
        labels = np.unique(np.asarray(task.dataset.test_y)).astype(int).tolist()
        chosen += [ClassAccuracy(ClassAccuracy.Params(label=label)) for label in labels]
    return tuple(chosen)


def known_columns(evaluation: Evaluation) -> set[str]:
    """The metrics that some task measures, or that the section adds, except those by class."""
    parts = CATALOG.parts("metric").values()
    added = [part.create().column for part in evaluation.metrics]
    return {*METRICS, *(part(part.Params()).column for part in parts), *added}


def ways_to_measure(task: Task) -> dict[str, str]:
    """The metrics that a run of the task can measure besides the usual ones, each with the setting that adds it."""
    dataset = task.dataset
    if dataset is None:
        return {}
    target_kind: TargetKind = "quantity" if dataset.kind == "regression" else "class"
    ways = {}
    for name, part in CATALOG.parts("metric").items() if len(dataset.test_y) else ():
        if part.target_kind in (None, target_kind):
            ways[part(part.Params()).column] = f"add {name} to evaluation.metrics"
    ways |= {each.name: "set evaluation.per_client: true" for each in CLIENT_METRICS[target_kind]}
    return ways | {each.name: "set evaluation.objective: true" for each in OBJECTIVE_METRICS}


def definitions(
    task: Task, evaluation: Evaluation, metrics: Iterable[Metric], personal: bool
) -> dict[str, MetricDefinition]:
    """The metrics that a run may measure, by name: those of every run, and ``metrics``, on test samples; of clients."""
    if isinstance(task, AnalyticTask):
        return {definition.name: definition for definition in task.exact_metrics}
    dataset = task.dataset
    assert dataset is not None
    of_all = default_metrics(dataset.kind, metrics)
    of_clients = CLIENT_METRICS["quantity" if dataset.kind == "regression" else "class"]
    measured = (
        *((metric.definition for metric in of_all) if len(dataset.test_y) else ()),
        *(of_clients if evaluation.per_client or personal else ()),
        *(OBJECTIVE_METRICS if evaluation.objective else ()),
    )
    return {definition.name: definition for definition in measured}
