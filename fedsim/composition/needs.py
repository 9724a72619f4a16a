"""The needs that the parts of a scenario have of each other.

Parts declare their needs: methods, schedules and selections as class attributes, parts that read a trace bundle in
:meth:`~fedsim.traces.parameters.TraceParameters.needs_tables`. Contradictions within one part are refused by its
``Params`` or its constructor; demands that the clients cannot meet by
:func:`fedsim.composition.world.impossible`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedsim.errors import UserError, nearest_or_all
from fedsim.learning.optimizers.sgd import Sgd
from fedsim.methods.base import Method
from fedsim.methods.mixins import STATE
from fedsim.parts.component import Component, is_bundled
from fedsim.parts.functions import called
from fedsim.scenario.model import Scenario, Server
from fedsim.scheduling.schedules.sync import Sync
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.parameters import TraceParameters
from fedsim.vocabulary.metrics import METRICS, MetricDefinition


def unmet_requirements(
    method: Method,
    server: Server,
    *,
    learns: bool = True,
    client_accuracies: bool = True,
    pauses: bool = False,
) -> list[UserError]:
    """The declared needs of method, schedule and selection that the scenario does not meet.

    Args:
        method: the method.
        server: the scenario's section.
        learns: whether the run trains, instead of simulating time alone.
        client_accuracies: whether accuracies on clients' own test samples can be measured.
        pauses: whether clients that go offline in the middle of their work pause.
    """
    title, optimizer = method.title or method.name, method.context.optimizer
    schedule, selection = server.schedule.type, server.selection.type
    timing, choosing = called(schedule), called(selection)
    plain_momentum = isinstance(optimizer, Sgd) and not optimizer.params.momentum
    reason = method.only_synchronous
    synchronous = "use the sync schedule"
    if not is_bundled(schedule):
        synchronous += ", or declare synchronous = True in yours if all work of a round starts from one version"
    needs = (
        (
            bool(reason) and not schedule.synchronous,
            f"{title} cannot run under the {timing} schedule"
            + (f": {reason}" if isinstance(reason, str) else ""),
            "server.schedule",
            synchronous,
        ),
        (
            method.prologue() is not None and not schedule.begins_with_prologue,
            f"{title} begins with a round of all clients, which the {timing} schedule does not dispatch",
            "server.schedule",
            "use the sync schedule",
        ),
        (
            method.needs_adapters and not method.context.layout.adapters,
            f"{title} trains low-rank adapters, but the model has none",
            "task.model",
            "return a model with adapters, such as peft's get_peft_model(model, LoraConfig(r=8)); see 'fedsim init "
            "--template lora'",
        ),
        (
            bool(method.needs_plain_sgd) and not optimizer.is_plain,
            f"{title} needs plain SGD: {method.needs_plain_sgd}",
            "training.optimizer",
            "use sgd without momentum and weight_decay",
        ),
        (
            bool(method.needs_no_momentum) and not plain_momentum,
            f"{title} needs SGD without momentum: {method.needs_no_momentum}",
            "training.optimizer",
            "use sgd without momentum; weight_decay is allowed",
        ),
        (
            bool(method.needs_sgd) and not isinstance(optimizer, Sgd),
            f"{title} does not work with {optimizer.name}: {method.needs_sgd}",
            "training.optimizer",
            "use sgd, with or without momentum",
        ),
        (
            method.steps_ahead() > 0 and any(vector.name == STATE for vector in method.download()),
            f"{title} does local steps before the server's model and optimizer state have arrived",
            "training.optimizer_state",
            "use kept or reset, or no steps ahead of the download",
        ),
        (
            method.steps_ahead() > 0 and pauses,
            f"clients of {title} do local steps during transfers, so that work and pauses cannot be told apart",
            "devices.availability.on_disconnect",
            "use drop, finish or send_partial, or no steps ahead of the download",
        ),
        (
            schedule.needs_choice and not selection.chooses,
            f"the {choosing} selection fixes the clients of each round, and so does the {timing} schedule",
            "server.selection",
            "use another selection, or another schedule",
        ),
        (
            bool(schedule.patience)
            and not server.exchange.type.among_clients
            and server.failure_detection == "never"
            and schedule.demands(server.schedule.params).limit_s is None,
            f"the {timing} schedule waits forever for a client that has gone offline",
            "server.schedule",
            f"give a {schedule.patience}, or a server.failure_detection other than never",
        ),
        (
            selection.needs_training and not learns,
            f"the {choosing} selection follows training losses or accuracies, but this run only simulates time",
            "server.selection",
            "choose another selection, or run without --timing-only on a task that learns",
        ),
        (
            selection.needs_client_tests and learns and not client_accuracies,
            f"the {choosing} selection needs accuracies on clients' own test samples, which this task lacks",
            "server.selection",
            "choose another selection, or a task with classes and task.partition.test: split (or same_distribution)",
        ),
    )
    return [
        UserError(message, where=where, hint=hint) for unmet, message, where, hint in needs if unmet
    ]


def unmet_exchange(scenario: Scenario, method: Method) -> list[UserError]:
    """The errors of a scenario whose clients cannot compute the mean of their updates among themselves."""
    server = scenario.server
    exchange, schedule = server.exchange.type, server.schedule
    if not exchange.among_clients:
        return []
    title, kind = method.title or method.name, exchange.name or exchange.__name__
    params = schedule.params
    waits_for_all = (
        isinstance(params, Sync.Params)
        and schedule.type.limit_s is Sync.limit_s
        and (params.deadline, params.quorum, params.over_selection) == (None, None, 1.0)
    )
    up, down = server.compression.up, server.compression.down.create(method.context.layout)
    rules = (
        (server.edges is not None, "of edge servers", "server.edges", "remove the edge servers"),
        (
            not waits_for_all,
            "without all clients of the round",
            "server.schedule",
            "use the sync schedule without deadline, quorum and over_selection",
        ),
        (
            server.failure_detection == "never",
            "after a client has left without being noticed",
            "server.failure_detection",
            "give the time after which the other clients notice it",
        ),
        (
            not method.averages or method.prologue() is not None,
            f"for {title}, which needs more than the mean of the updates",
            "server.method",
            "use a method such as fedavg, diloco or fedadam",
        ),
        (
            not up.type.sums,
            f"of updates compressed by {up.type.name}, which cannot be added",
            "server.compression.up",
            "use none, cast or factor",
        ),
        (
            not down.changes_nothing,
            "with a compressed model, because clients compute it themselves",
            "server.compression.down",
            "use none",
        ),
        (
            server.submodels.type.name != "whole",
            "of different parts of the model",
            "server.submodels",
            "use whole",
        ),
        (
            scenario.devices.failures.upload_loss > 0,
            "that loses the update of one client",
            "devices.failures.upload_loss",
            "use crash_rate or availability for clients that leave",
        ),
    )
    return [
        UserError(
            f"there is no {kind} {what}", where=where, hint=f"{fix}, or use server.exchange: server"
        )
        for unmet, what, where, fix in rules
        if unmet
    ]


_DECLARED = {
    "only_synchronous": "a synchronous schedule",
    "needs_plain_sgd": "sgd without momentum and weight_decay",
    "needs_no_momentum": "sgd without momentum",
    "needs_sgd": "sgd",
    "needs_all_clients": "all clients all the time (no selection)",
    "needs_choice": "a selection that chooses among the available clients",
    "needs_training": "a run that trains",
    "needs_client_tests": "clients' own test samples (task.partition.test)",
    "needs_classes": "a data set with classes",
}


def declared_needs(component: type[Component]) -> list[str]:
    """The needs that a part's class declares, in words, with the reason if it gives one.

    Needs that depend on parameters are those with the defaults, if every parameter has one.
    """
    needs = [
        f"{words}: {reason}" if isinstance(reason, str) else words
        for attribute, words in _DECLARED.items()
        if (reason := getattr(component, attribute, None))
    ]
    params = component.Params
    required = any(field.is_required() for field in params.model_fields.values())
    if issubclass(params, TraceParameters) and not required:
        needs += [
            f"a trace bundle with the table {table} (devices.trace), or {instead}"
            for table, instead in params().needs_tables().items()
        ]
    return needs


def unmet_target(
    target: Mapping[str, float], measured: Mapping[str, MetricDefinition], ways: Mapping[str, str]
) -> Iterator[UserError]:
    """The errors of the metrics and values at which a run stops.

    Args:
        target: the values, by metric.
        measured: the metrics that the run measures; empty if it has no test samples.
        ways: the setting that adds a metric to them, by metric.
    """
    for name, value in target.items():
        metric, where = measured.get(name), f"stop.target.{name}"
        if metric is None:
            every = f"this task measures: {', '.join(sorted(measured))}"
            is_known = name in ways or name in METRICS
            hint = ways.get(name, every) if is_known else nearest_or_all(name, measured, every)
            yield UserError(
                f"this run does not measure '{name}'"
                if is_known
                else f"there is no metric '{name}' to stop at",
                where=where,
                hint=hint if measured else "the data set has no test samples; give it some",
            )
        elif error := metric.unreachable(value, where):
            yield error


def missing_tables(params: Any, bundle: TraceBundle | None, where: str) -> Iterator[UserError]:
    """One error for each table that a part of a section of devices needs and the bundle, if there is one, lacks."""
    section = where.rpartition(".")[0]
    needed = params.needs_tables() if isinstance(params, TraceParameters) else {}
    for table, instead in needed.items():
        if bundle is None or table not in bundle.tables:
            hint = f"name a trace bundle that has one (devices.trace), or {instead}"
            yield UserError(
                f"there is no {table} table to read"
                + (f" in the trace bundle {bundle.manifest.name}" if bundle else ""),
                where=where,
                hint=hint.replace("devices.", f"{section}."),
            )
