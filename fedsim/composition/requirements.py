"""All checks of the needs that the parts of a scenario have of each other.

Parts declare their needs: methods, schedules and selections as class attributes, parts that read a trace bundle in
:meth:`~fedsim.traces.parameters.TraceParameters.needs_tables`. Contradictions within one part are refused by its
``Params`` or its constructor; demands that the clients cannot meet are refused by
:mod:`fedsim.composition.feasibility`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError, nearest_or_all
from fedsim.learning.metrics.base import Metric, declares_direction, how_to_declare_direction
from fedsim.learning.optimizers.sgd import Sgd
from fedsim.methods.base import Method
from fedsim.parts.component import Component, is_bundled, place
from fedsim.parts.functions import called, returned
from fedsim.scenario.model import Evaluation, Server, Stop
from fedsim.scenario.parts import Part
from fedsim.scheduling.base import Demands, Schedule, Selection, cohort_of
from fedsim.tasks.base import Task
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.parameters import TraceParameters
from fedsim.units import NS_PER_S, to_ns
from fedsim.vocabulary.formatting import format_count, format_counted, format_duration, format_share
from fedsim.vocabulary.metrics import METRICS, MetricDefinition

_FEW_ONLINE = 0.5
_OFTEN_RECHARGING = 0.1
"""Share of the clients' idle time from which recharging batteries are named as a cause of small rounds."""


_Need = tuple[bool, str, str, str]
"""A need: whether it is unmet, what is wrong, where, and what to do."""


def unmet_requirements(
    method: Method,
    server: Server,
    clients: int,
    *,
    learns: bool = True,
    client_accuracies: bool = True,
) -> list[UserError]:
    """The declared needs of method, schedule and selection that the scenario does not meet.

    Args:
        method: the method.
        server: the scenario's section.
        clients: number of clients.
        learns: whether the run trains, instead of simulating time alone.
        client_accuracies: whether accuracies on clients' own test samples can be measured.
    """
    needs = (
        *_needs_of_method(method, server.schedule.type),
        *_needs_of_schedule(server, clients),
        *_needs_of_selection(server, learns=learns, client_accuracies=client_accuracies),
    )
    return [
        UserError(message, where=where, hint=hint) for unmet, message, where, hint in needs if unmet
    ]


_DECLARED = {
    "only_synchronous": "a synchronous schedule",
    "needs_plain_sgd": "sgd without momentum and weight_decay",
    "needs_no_momentum": "sgd without momentum",
    "needs_sgd": "sgd",
    "needs_all_clients": "all clients in every round (no cohort)",
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


def doubts(method: Method, server: Server) -> Iterator[UserError]:
    """A warning if the method's paper does not use the scenario's schedule."""
    schedule, named = server.schedule.type.name, method.paper_schedules
    if not named or not schedule or schedule in named or server.schedule.user is not None:
        return  # no paper uses a user's own schedule, and its author knows
    if server.method.user is not None and "paper_schedules" not in vars(type(method)):
        return  # inherited from a built-in method, whose paper describes a different one
    title = method.title or method.name
    yield UserError(
        f"{title} was not designed for the {schedule} schedule; its paper uses {' or '.join(named)}",
        where="server.schedule",
        hint=f"results are not those of {title} as published",
    )


def nothing_measured(learns: bool, measured: Mapping[str, MetricDefinition]) -> Iterator[UserError]:
    """A warning if the run trains a model without measuring it."""
    if measured or not learns:
        return
    yield UserError(
        "the data set has no test samples, so the run measures no metric",
        where="task.dataset",
        hint="give it test samples, or give clients their own: task.partition.test: split with "
        "evaluation.per_client: true",
    )


def personal_models_unmeasured(
    method: Method, task: Task, evaluation: Evaluation
) -> Iterator[UserError]:
    """A warning if clients have personal models, and only the shared one is measured on test samples."""
    of_all = task.evaluation_passes(per_client=False, objective=False)
    of_clients = task.evaluation_passes(per_client=True, objective=False) - of_all
    if not method.personal or evaluation.objective or not of_all or of_clients:
        return
    yield UserError(
        f"{method.title or method.name} trains a personal model for each client, but only the shared model will be "
        "measured, because the clients have no test samples",
        where="task.partition.test",
        hint="give them test samples: split, or same_distribution",
    )


def seldom_evaluated(evaluation: Evaluation, stop: Stop) -> Iterator[UserError]:
    """A warning if the run ends before its first periodic evaluation."""
    by_time = evaluation.every is not None and evaluation.every > (stop.simulated_time or math.inf)
    by_rounds = evaluation.every_rounds is not None and evaluation.every_rounds > (
        stop.rounds or math.inf
    )
    if not by_time and not by_rounds:
        return
    models = "the initial and the final model" if evaluation.at_start else "the final model"
    yield UserError(
        f"only {models} will be evaluated, because the run ends before the first interval does",
        where=f"evaluation.{'every' if by_time else 'every_rounds'}",
        hint="evaluate more often, or leave the setting out",
    )


def population_doubts(method: Method, availability: AvailabilityIndex) -> Iterator[UserError]:
    """A warning if clients that are offline keep a weight in the model, and few are online."""
    if not method.weight_of_absent:
        return
    end_ns = min(to_ns(method.context.availability_cycle_s), availability.horizon_ns)
    share = float(availability.online_between_ns(0, end_ns).mean()) / max(1, end_ns)
    if share >= _FEW_ONLINE:
        return
    yield UserError(
        f"{method.title} {method.weight_of_absent}, but on average only {format_share(share)} of the clients are "
        "online, so each version moves the model little",
        where="server.method",
        hint="use a method that averages over the received updates, such as fedavg, fedbuff (scale: mean) or fedat "
        "(silent_tiers: skip), or a trace with more clients online",
    )


def nothing_dispatched(
    schedule: type[Schedule], selection: type[Selection] | None = None
) -> UserError:
    """The warning about a run that has dispatched nothing.

    Args:
        schedule: the schedule.
        selection: a user's selection that has drawn nobody although clients were available.
    """
    message = "no work was dispatched, so the tables are empty and the model is the initial one"
    if selection is not None:
        return UserError(
            f"draws nobody although clients are available; {message}",
            where=place(selection, "draw"),
            hint="return up to count clients of self.available(), such as self.available()[:count].tolist()",
        )
    if is_bundled(schedule):
        hint = "check when the devices are online, the selection, its cohort, and stop"
        return UserError(message, where="server.schedule", hint=hint)
    return UserError(
        message,
        where=place(schedule, "start"),
        hint="call self.server.dispatch(client) for the clients of self.selection.cohort(); if there are none, try "
        "again with self.server.call_when_available",
    )


def nothing_aggregated(schedule: type[Schedule], arrived: int, late: int) -> UserError:
    """The warning about a run whose updates have never been aggregated.

    Args:
        schedule: the schedule.
        arrived: number of updates that arrived.
        late: number of those that arrived too late.
    """
    happened = f"{format_counted(arrived, 'update')} arrived"
    where = "server.schedule"
    hint = "let the run last longer (stop), or lower the number of updates that a version needs"
    if not is_bundled(schedule):
        where = place(schedule, "on_arrival")
        hint = "call self.server.aggregate(dispatches) with the updates that have arrived"
    elif not arrived:
        hint = "let the run last longer (stop); if work was lost, the report shows why"
    elif late == arrived:
        happened = "every update that arrived was late"
        hint = "give the clients more time (server.schedule.deadline) or less work"
    return UserError(
        f"no update was aggregated, so the model is the initial one; {happened}",
        where=where,
        hint=hint,
    )


def nothing_left(schedule: type[Schedule], version: int, end_ns: int) -> UserError:
    """The warning about a run that met none of its limits, because no work was left.

    Args:
        schedule: the schedule.
        version: the newest server version.
        end_ns: the end of the run.
    """
    where, hint = (
        "server.schedule",
        "check when the devices are online, or give stop.simulated_time",
    )
    if not is_bundled(schedule):
        where = place(schedule, "on_arrival")
        hint = "dispatch new work with self.server.dispatch, also in on_failure, or call again later with call_at"
    return UserError(
        f"no work was left after {format_duration(end_ns / NS_PER_S)}, so the run ended at version {version}, before "
        "any limit of stop was reached",
        where=where,
        hint=hint,
    )


def demands_of(schedule: Part[Schedule]) -> Demands:
    """The demands of the scenario's schedule.

    Raises:
        UserError: a user's class returns something else, or names a parameter that there is not.
    """
    demands: Demands = schedule.type.demands(schedule.params)
    return returned(schedule.type, "demands", demands, Demands)


def small_rounds(
    server: Server, round_of_dispatch: npt.NDArray[np.int64], recharging: float
) -> Iterator[UserError]:
    """A warning if most rounds began with less than half of a cohort, and the schedule could have waited for more.

    Args:
        server: the scenario's section.
        round_of_dispatch: the round of each dispatch, (n,).
        recharging: share of the clients' idle time in which their batteries were below the floor.
    """
    cohort = cohort_of(server.selection.params)
    demands = demands_of(server.schedule)
    sizes = np.bincount(round_of_dispatch)
    sizes = sizes[sizes > 0]
    if not cohort or demands.cohort != 1:
        return
    small = int(np.count_nonzero(sizes < _FEW_ONLINE * cohort))
    if small <= _FEW_ONLINE * len(sizes):
        return
    reason, fix = "", ""
    if recharging >= _OFTEN_RECHARGING:
        reason = f"; for {format_share(recharging)} of their idle time, clients recharged their batteries"
        fix = "; or give the devices more energy (devices.energy: battery_j, recharge_w)"
    waiting = "raise it" if demands.updates else "raise it, with a min_updates of at least 1"
    yield UserError(
        f"{format_count(small)} of {format_counted(len(sizes), 'round')} began with less than half of the cohort of "
        f"{cohort}, because few clients were available{reason}",
        where="server.schedule.min_cohort",
        hint=f"{waiting}, so that rounds wait for more clients, or give a smaller cohort than {cohort}{fix}",
    )


def _needs_of_method(method: Method, schedule: Any) -> tuple[_Need, ...]:
    title, optimizer = method.title or method.name, method.context.optimizer
    name = called(schedule)
    return (
        (
            bool(method.only_synchronous) and not schedule.synchronous,
            f"{title} cannot run under the {name} schedule"
            + (f": {reason}" if isinstance(reason := method.only_synchronous, str) else ""),
            "server.schedule",
            "use the sync schedule",
        ),
        (
            method.prologue() is not None and not schedule.begins_with_prologue,
            f"{title} begins with a round of all clients, which the {name} schedule does not dispatch",
            "server.schedule",
            "use the sync schedule",
        ),
        (
            bool(method.needs_plain_sgd) and not optimizer.is_plain,
            f"{title} needs plain SGD: {method.needs_plain_sgd}",
            "training.optimizer",
            "use sgd without momentum and weight_decay",
        ),
        (
            bool(method.needs_no_momentum)
            and not (isinstance(optimizer, Sgd) and not optimizer.params.momentum),
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
    )


def _needs_of_schedule(server: Server, clients: int) -> Iterator[_Need]:
    schedule, selection = server.schedule.type, server.selection
    name = called(schedule)
    cohort = cohort_of(selection.params)
    yield (
        schedule.needs_all_clients and cohort is not None and cohort < clients,
        f"under the {name} schedule all clients participate all the time",
        "server.selection",
        "leave out the cohort",
    )
    yield (
        schedule.needs_choice and not selection.type.chooses,
        f"the {called(selection.type)} selection fixes the clients of each round, and so does the {name} schedule",
        "server.selection",
        "use another selection, or another schedule",
    )
    yield (
        bool(schedule.patience)
        and server.failure_detection == "never"
        and demands_of(server.schedule).limit_s is None,
        f"the {name} schedule waits forever for a client that has gone offline",
        "server.schedule",
        f"give a {schedule.patience}, or a server.failure_detection other than never",
    )


def _needs_of_selection(
    server: Server, *, learns: bool, client_accuracies: bool
) -> Iterator[_Need]:
    selection = server.selection.type
    yield (
        selection.needs_training and not learns,
        f"the {called(selection)} selection follows training losses or accuracies, but this run only simulates time",
        "server.selection",
        "choose another selection, or run without --timing-only on a task that learns",
    )
    yield (
        selection.needs_client_tests and learns and not client_accuracies,
        f"the {called(selection)} selection needs accuracies on clients' own test samples, which this task lacks",
        "server.selection",
        "choose another selection, or a task with classes and task.partition.test: split (or same_distribution)",
    )


def unmet_target(
    target: Mapping[str, float],
    measured: Mapping[str, MetricDefinition],
    ways_to_measure: Mapping[str, str],
) -> Iterator[UserError]:
    """The errors of the target at which a run stops.

    Args:
        target: metrics and the values that they must reach.
        measured: the metrics that the run measures; empty if it has no test samples.
        ways_to_measure: the setting that adds a metric to them, by metric.
    """
    for name, value in target.items():
        metric, where = measured.get(name), f"stop.target.{name}"
        if metric is None:
            message, hint = f"there is no metric '{name}' to stop at", ways_to_measure.get(name)
            every = f"this task measures: {', '.join(sorted(measured))}"
            if hint or name in METRICS:
                message, hint = f"this run does not measure '{name}'", hint or every
            if not measured:
                hint = "the data set has no test samples; give it some"
            yield UserError(
                message, where=where, hint=hint or nearest_or_all(name, measured, every)
            )
        elif error := metric.unreachable(value, where):
            yield error


def undeclared_directions(
    target: Mapping[str, float], metrics: Iterable[Metric]
) -> Iterator[UserError]:
    """Warnings about targets of users' metrics for which nothing says whether higher values are better."""
    for metric in metrics:
        if metric.column in target and not declares_direction(metric):
            yield UserError(
                f"the metric {metric.column} does not declare whether higher values are better, which is assumed: the "
                f"target is met at {target[metric.column]:g} and above",
                where=f"stop.target.{metric.column}",
                hint=how_to_declare_direction(metric),
            )


def missing_tables(params: Any, bundle: TraceBundle | None, where: str) -> Iterator[UserError]:
    """One error for each table that a part of the devices needs and the bundle, if there is one, lacks."""
    if not isinstance(params, TraceParameters):
        return
    for table, instead in params.needs_tables().items():
        if bundle is None or table not in bundle.tables:
            yield UserError(
                f"there is no {table} table to read"
                + (f" in the trace bundle {bundle.manifest.name}" if bundle else ""),
                where=where,
                hint=f"name a trace bundle that has one (devices.trace), or {instead}",
            )
