"""Builds the server of a run from its assembly."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from fedsim.composition.assembly import Assembly
from fedsim.scenario.model import Scenario
from fedsim.simulation.drawn_work import DrawnWork
from fedsim.simulation.evaluations import EvaluationTimes
from fedsim.simulation.facts import Clients, Rules, check_rules
from fedsim.simulation.server import Limits, Server
from fedsim.simulation.updates import Recorder
from fedsim.simulation.workload import Workload, Workloads
from fedsim.tasks.base import FORWARD_PASSES_PER_STEP, IntArray
from fedsim.units import to_ns
from fedsim.vocabulary.timeline import LearningPlane

_EVALUATION_SHARE = 0.1


def build_server(
    assembly: Assembly,
    plane: LearningPlane | None,
    recorder: Recorder,
    on_progress: Callable[[], None] | None = None,
) -> Server:
    """The server of a run.

    Raises:
        UserError: schedule, selection, method and devices are not compatible.
    """
    scenario = assembly.scenario
    stop, evaluation = scenario.stop, scenario.evaluation
    every_versions, every_steps = evaluation.every_rounds, None
    if every_versions is None and evaluation.every is None:
        every_steps = _steps_worth_an_evaluation(assembly)
    return Server(
        _clients(assembly),
        _workloads(assembly),
        _rules(assembly),
        Limits(
            until_ns=None if stop.simulated_time is None else to_ns(stop.simulated_time),
            rounds=stop.rounds,
            dispatches=stop.dispatches,
            arrivals=stop.arrivals,
            stalled_after=stop.stalled_after,
        ),
        EvaluationTimes(
            every_ns=None if evaluation.every is None else to_ns(evaluation.every),
            every_versions=every_versions,
            every_steps=every_steps,
            at_start=evaluation.at_start,
            reached=assembly.target_test,
        ),
        plane,
        recorder,
        seed=scenario.seed,
        on_progress=on_progress,
    )


def check_server(assembly: Assembly) -> None:
    """Check that :func:`build_server` will succeed, without the cost of building.

    Raises:
        UserError: schedule or selection do not accept their parameters.
    """
    check_rules(_clients(assembly), _rules(assembly), assembly.scenario.seed)


def _clients(assembly: Assembly) -> Clients:
    return Clients(
        assembly.population,
        assembly.task.samples,
        assembly.world.work,
        assembly.expected_duration_s,
    )


def _rules(assembly: Assembly) -> Rules:
    section = assembly.scenario.server
    detection, prologue = section.failure_detection, assembly.method.prologue()
    return Rules(
        section.selection.create,
        section.schedule.create,
        failure_detection_ns=None if detection == "never" else to_ns(detection),
        aggregation_ns=to_ns(section.aggregation_time),
        has_prologue=prologue is not None,
        prologue_updates=None if prologue is None else prologue.updates,
        trains_lost_work=assembly.keeps_lost_work,
    )


def _workloads(assembly: Assembly) -> Workloads:
    scenario, section = assembly.scenario, assembly.scenario.server
    epochs = assembly.task.steps_per_epoch(scenario.training)
    workload = partial(
        Workload,
        assembly.population,
        scenario.devices.failures,
        send_partial_work=section.partial_work == "send",
        foresight=section.foresight,
        seed=scenario.seed,
        partial_unit=epochs.tolist() if section.partial_unit == "epoch" else None,
        drawn=_drawn_work(scenario, epochs),
    )
    down, up = assembly.traffic_bytes
    prologue, first_down = assembly.prologue_bytes, assembly.first_download_bytes
    return Workloads(
        workload(down, up),
        prologue=None if prologue is None else workload(*prologue),
        first=workload(first_down, up) if first_down > down else None,
    )


def _steps_worth_an_evaluation(assembly: Assembly) -> int:
    """Local steps after which an evaluation costs a tenth of the training; a step counts as three forward passes."""
    evaluation = assembly.scenario.evaluation
    passes = assembly.task.evaluation_passes(
        per_client=evaluation.per_client or assembly.method.personal,
        objective=evaluation.objective,
    )
    batch_size = assembly.scenario.training.batch_size
    return math.ceil(passes / (_EVALUATION_SHARE * FORWARD_PASSES_PER_STEP * batch_size))


def _drawn_work(scenario: Scenario, epochs: IntArray) -> DrawnWork | None:
    training = scenario.training
    if training.limited is None:
        return None
    units = np.ones_like(epochs) if training.local_epochs is None else epochs
    return DrawnWork(training.limited, units.tolist(), scenario.seed)
