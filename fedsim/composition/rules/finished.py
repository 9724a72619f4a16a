"""The rules on a finished run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedsim.composition.rules import RuleTable, planned
from fedsim.errors import UserError, raise_all, unknown
from fedsim.parts.component import is_bundled, is_user_reference, place
from fedsim.runs.run import Run, has_diverged, lost_metrics, own_metrics
from fedsim.simulation.level import fixes
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_names,
    format_share,
)
from fedsim.vocabulary.outcomes import Outcome

if TYPE_CHECKING:
    from fedsim.composition.world import World

_FEW = 0.5
_FAR_ABOVE = 10.0
_GUESSED = 1.25
"""Multiple of the accuracy of a guess below which a model counts as guessing."""
_FIRST_EVALUATIONS = 20


@dataclass(frozen=True)
class FinishedRun:
    """A run whose tables are written.

    Attributes:
        run: the run.
        world: what was run; None for a Flower app, which selects and trains by itself.
        ran_out: whether the run ended before its limits, because no work was left.
        drew_nobody: whether a user's selection has drawn nobody although clients were available.
        nodes_online: most nodes online at once, if a Flower app has waited until the end for more of them.
    """

    run: Run
    world: World | None = None
    ran_out: bool = False
    drew_nobody: bool = False
    nodes_online: int | None = None

    def in_schedule(self, fix: str, otherwise: str) -> tuple[str | None, str]:
        """Where a rule applies and how to fix it: in the process of the user's schedule, or in its settings."""
        if self.world is None:
            return None, otherwise
        schedule = self.world.server.schedule.type
        if is_bundled(schedule):
            return f"{self.world.server.section_of_devices}.schedule", otherwise
        return place(schedule, "run"), fix

    @property
    def targets_met_at_start(self) -> list[str]:
        """The targets that the initial model meets, if the run made no version."""
        run = self.run
        if len(run.aggregations):
            return []
        target = run.scenario["stop"].get("target") or {}
        # A Flower app may never have reported the metric.
        measured = [name for name in target if name in run.metrics.columns]
        return [name for name in measured if run.time_to(name, target[name]) == 0]


FINISHED: RuleTable[FinishedRun] = RuleTable()
"""The rules on a finished run."""

SHOWN_BY_REPORT = ("diverged-model", "target-met-at-start")
"""Rules whose warnings the report page gives in its own words."""


@FINISHED
def nothing_dispatched(finished: FinishedRun) -> Iterator[UserError]:
    """The run has dispatched no work, so that its tables are empty and its model is the initial one."""
    if len(finished.run.dispatches) or finished.world is None or finished.targets_met_at_start:
        return
    message = "no work was dispatched, so the tables are empty and the model is the initial one"
    if finished.drew_nobody:
        selection = finished.world.server.selection.type
        yield UserError(
            f"draws nobody although clients are available; {message}",
            where=place(selection, "draw"),
            hint="return up to count clients of self.available(), such as self.available()[:count].tolist()",
        )
        return
    where, hint = finished.in_schedule(
        "call self.server.dispatch(client) for the clients of self.selection.cohort(); if there are none, wait for "
        "one with `yield self.client_available()`",
        "check when the devices are online, the selection, its cohort, and stop",
    )
    yield UserError(message, where=where, hint=hint)


@FINISHED
def nothing_aggregated(finished: FinishedRun) -> Iterator[UserError]:
    """No update of a client was aggregated, so that the model is the initial one."""
    outcomes = finished.run.dispatches["outcome"]
    if outcomes.empty or (outcomes == "aggregated").any() or finished.targets_met_at_start:
        return
    arrived = int(finished.run.dispatches["arrived_s"].notna().sum())
    happened = f"{format_counted(arrived, 'update')} arrived"
    fix = "let the run last longer (stop), or lower the number of updates that a version needs"
    if finished.world is None:
        errors = finished.run.info.get("client_errors")
        fix = "compare the timeouts of the app and stop with the duration of a dispatch"
        if errors:
            failed = format_counted(errors, "message")
            fix = f"the ClientApp failed on {failed}; the first tracebacks are in the log above"
        elif arrived and not finished.run.dispatches["steps_done"].any():
            fix = (
                "the ClientApp took no step of a PyTorch optimizer; give seconds per example with "
                "-s devices.compute.unit=example, or declare devices.compute.work"
            )
    elif finished.ran_out and not arrived:
        fix = "no event was left: check the rates of the links, and when the devices are online"
    elif not arrived:
        fix = "let the run last longer (stop); if work was lost, the report shows why"
    elif arrived == (outcomes == "late").sum():
        happened = "every update that arrived was late"
        schedule = finished.world.server.schedule
        fix = f"{fixes(Outcome.LATE, schedule.params)}, or give the clients less work"
    aggregate = (
        "call self.server.aggregate(dispatches) with the updates that have arrived; if it has begun other processes, "
        "process_of(dispatch) says which of them receives a dispatch"
    )
    where, hint = finished.in_schedule(aggregate, fix)
    message = f"no update was aggregated, so the model is the initial one; {happened}"
    yield UserError(message, where=where, hint=hint)


@FINISHED
def no_work_left(finished: FinishedRun) -> Iterator[UserError]:
    """The run met none of its limits, because the schedule dispatched nothing more."""
    run = finished.run
    if not finished.ran_out or not len(run.aggregations):
        return
    where, hint = finished.in_schedule(
        "dispatch new work with self.server.dispatch, also after a failure, or wait with `yield self.after(seconds)`",
        "check when the devices are online, or give stop.simulated_time",
    )
    yield UserError(
        f"no work was left after {format_duration(run.simulated_s)}, so the run ended at version "
        f"{len(run.aggregations)}, before any limit of stop was reached",
        where=where,
        hint=hint,
    )


@FINISHED
def waited_for_nodes(finished: FinishedRun) -> Iterator[UserError]:
    """A Flower app waited until the end of the run for more nodes than there will ever be."""
    if finished.nodes_online is not None:
        yield UserError(
            "the ServerApp waited until the end of the run for more nodes than there were: of "
            f"{format_counted(len(finished.run.clients), 'node')}, at most {finished.nodes_online} were online at once",
            where="task.clients",
            hint="lower min_available_nodes and the like in the app, or simulate more nodes",
        )


@FINISHED
def small_rounds(finished: FinishedRun) -> Iterator[UserError]:
    """Most rounds began with less than half of the cohort, although the schedule could have waited for more clients."""
    if finished.world is None or finished.run.has_edges:
        return
    run, cohort = finished.run, finished.world.cohort
    demands = finished.world.prospects.demands
    sizes = np.bincount(run.dispatches["round"].to_numpy())
    sizes = sizes[sizes > 0]
    if not cohort or demands.cohort != 1:
        return
    small = int(np.count_nonzero(sizes < _FEW * cohort))
    if small <= _FEW * len(sizes):
        return
    yield UserError(
        f"{format_count(small)} of {format_counted(len(sizes), 'round')} began with less than half of the cohort of "
        f"{cohort}, because few clients were available",
        where=f"{finished.world.server.section_of_devices}.schedule.min_cohort",
        hint=f"raise it, so that rounds wait for more clients, or give a smaller cohort than {cohort}",
    )


def _at_end(name: str, finished: FinishedRun) -> Iterator[UserError]:
    """The warnings of a rule on a scenario that needs the length of the run, if the scenario does not give it."""
    world = finished.world
    if world is not None and world.scenario.stop.simulated_time is None:
        yield from planned.PLANNED.checks[name](world, finished.run.simulated_s)


for _name in ("drifting-hours", "unobserved-time"):
    FINISHED.checks[_name] = partial(_at_end, _name)


@FINISHED
def high_loss(finished: FinishedRun) -> Iterator[UserError]:
    """The loss of the last model is finite, but more than ten times that of the initial model."""
    first, last = _losses(finished.run)
    if 0 < first * _FAR_ABOVE < last < math.inf:
        yield _diverged(finished.run, _loss_grew(finished.run))


@FINISHED
def learned_nothing(finished: FinishedRun) -> Iterator[UserError]:
    """The last model is about as accurate as a guess among the classes, or its loss is above that of the initial model.

    The loss counts if no accuracy is known.
    """
    run, world = finished.run, finished.world
    dataset = None if world is None else world.task.dataset
    first, last = _losses(run)
    if not len(run.aggregations) or has_diverged(run) or 0 < first * _FAR_ABOVE < last:
        return
    fix, problems = "try another learning rate, or let it run longer", []
    if last > first:
        problems, fix = [_loss_grew(run)], "try a smaller learning rate, or training.clip_norm"
    if "accuracy" in run.metrics.columns:
        accuracies = run.metrics["accuracy"].dropna()
        classes = 0 if dataset is None else dataset.classes or 0
        if accuracies.empty or classes < 2:
            return
        guessed = 1 / classes
        if accuracies.iloc[-1] >= guessed + (_GUESSED - 1) * min(guessed, (1 - guessed) / 5):
            return
        guess = f"a guess among {classes} classes reaches {format_share(guessed)}"
        problems.insert(0, f"its accuracy is {format_share(accuracies.iloc[-1])}, and {guess}")
    if problems:
        message = f"the model seems to have learned nothing: {'; '.join(problems)}"
        yield UserError(message, hint=fix)


def _losses(run: Run) -> tuple[float, float]:
    """The loss of the initial and of the last model that was evaluated; NaN if the initial one was not."""
    if "loss" in run.metrics.columns and not has_diverged(run):
        evaluated = run.metrics[["version", "loss"]].dropna()
        if not evaluated.empty and evaluated["version"].iloc[0] == 0:
            return float(evaluated["loss"].iloc[0]), float(evaluated["loss"].iloc[-1])
    return math.nan, math.nan


def _loss_grew(run: Run) -> str:
    first, last = map(run.metric_definition("loss").format, _losses(run))
    return f"its loss is {last}, and that of the initial model was {first}"


@FINISHED
def diverged_model(finished: FinishedRun) -> Iterator[UserError]:
    """Values of the last evaluation are not finite, for a reason other than the definition of your own metric."""
    if has_diverged(finished.run):
        lost = lost_metrics(finished.run)
        verb = "is" if len(lost) == 1 else "are"
        yield _diverged(finished.run, f"{format_names(lost)} {verb} not finite")


@FINISHED
def undefined_metric(finished: FinishedRun) -> Iterator[UserError]:
    """Your own metric is not finite for the last model, although the loss is."""
    run = finished.run
    lost = lost_metrics(run)
    if lost and not has_diverged(run):
        metrics = own_metrics(run.scenario)
        files = [name for name in metrics if name.rpartition(":")[2] in lost] or metrics
        verb = "is" if len(lost) == 1 else "are"
        yield UserError(
            f"undefined for the last model: {format_names(lost)} {verb} not finite, but the loss is",
            where="evaluation.metrics",
            hint=f"see {', '.join(files)}",
        )


@FINISHED
def target_met_at_start(finished: FinishedRun) -> Iterator[UserError]:
    """The initial model meets ``stop.target``, so that the run ends before its first update."""
    if finished.targets_met_at_start:
        yield UserError(
            "the initial model already reaches the target, so the run ended before its first update",
            where=f"stop.target.{finished.targets_met_at_start[0]}",
            hint="choose a different target, or leave it out",
        )


@FINISHED
def target_met_at_first_evaluation(finished: FinishedRun) -> Iterator[UserError]:
    """The first evaluation after the start already meets ``stop.target``, several versions later.

    So the time to the target is known only to lie between the start and that evaluation.
    """
    run = finished.run
    target, metrics = run.scenario["stop"].get("target") or {}, run.metrics
    later = metrics[metrics["version"] > 0] if target else metrics
    if later.empty or any(name not in later for name in target):
        return
    version, time_s = int(later["version"].iloc[0]), float(later["time_s"].iloc[0])
    reached_s = max((run.time_to(name, level) for name, level in target.items()), default=math.inf)
    if version > 1 and reached_s == time_s:
        yield UserError(
            f"the first evaluation after the start, of version {format_count(version)}, met the target, so it may have "
            "been reached long before",
            where=f"stop.target.{next(iter(target))}",
            hint=f"evaluate more often: evaluation.every_rounds: {max(1, version // _FIRST_EVALUATIONS)}",
        )


def _diverged(run: Run, problem: str) -> UserError:
    fix = "try a smaller learning rate"
    method = run.scenario["server"].get("method", {}).get("name")
    if method is not None:  # A Flower app trains by itself.
        fix += ", or training.clip_norm"
        if is_user_reference(method):
            fix = f"check that aggregate of {method} returns finite numbers, or {fix}"
    return UserError(f"the model has diverged: {problem}", where=None, hint=fix)


def documentation() -> dict[str, str]:
    """What every rule warns about, by its name."""
    checks = {**FINISHED.checks, **planned.PLANNED.checks}
    return {name: inspect.getdoc(check) or "" for name, check in sorted(checks.items())}


def check_names(ignored: Collection[str]) -> None:
    """Refuse names of rules that do not exist."""
    rules = documentation() if ignored else {}
    raise_all(
        unknown("rule", name, rules, f"ignore.{index}", "fedsim describe rules lists them")
        for index, name in enumerate(ignored)
        if name not in rules
    )
