"""The two planes of a run, from what was built: the learner, and the server with its clients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.composition.edges import hierarchy, relocating
from fedsim.composition.world import World
from fedsim.simulation.evaluations import Evaluations
from fedsim.simulation.facts import Clients, check_rules
from fedsim.simulation.simulation import Live, Simulation
from fedsim.simulation.updates import Recorder
from fedsim.simulation.workload import Workload, Workloads, drawn_work
from fedsim.tasks.base import FORWARD_PASSES_PER_STEP
from fedsim.units import to_ns
from fedsim.vocabulary.metrics import meets
from fedsim.vocabulary.timeline import LearningPlane

if TYPE_CHECKING:
    from fedsim.learning.learner import Learner
    from fedsim.learning.workers import Station
    from fedsim.learning.workers.distributed import Ranks

_EVALUATION_SHARE = 0.1
"""Cost of an evaluation, as a share of the local steps before it, unless the scenario says when they are due."""


def build_learner(world: World, ranks: Ranks | None = None, **options: Any) -> Learner:
    """The learning plane of a run.

    Args:
        world: what was built.
        ranks: the processes of the run; None if there is only this one.
        options: further arguments of :class:`fedsim.learning.learner.Learner`.
    """
    from fedsim.learning.learner import Learner

    return Learner(
        build_station(world),
        world.scenario.evaluation,
        metrics=list(world.metrics),
        cloud=None if world.edges is None else world.edges.cloud,
        ranks=ranks,
        **options,
    )


def build_station(world: World) -> Station:
    """Task, kernel and method on the device of the training."""
    from fedsim.learning.device import Execution
    from fedsim.learning.workers import Station

    return Station(
        world.task,
        world.method,
        world.training,
        world.scenario.seed,
        Execution.of(world.training),
        dispatch_loss=world.server.selection.type.dispatch_loss,
    )


def build_server(
    world: World,
    plane: LearningPlane | None,
    recorder: Recorder,
    on_progress: Callable[[], None] | None = None,
    live: Live | None = None,
) -> Simulation:
    """The time plane of a run; ``live`` are its clients if they are not simulated."""
    scenario = world.scenario
    stop, evaluation = scenario.stop, scenario.evaluation
    every_versions, every_steps = evaluation.every_rounds, None
    if every_versions is None and evaluation.every is None:
        # A local step counts as three forward passes.
        passes = world.task.evaluation_passes(
            per_client=evaluation.per_client or world.method.personal,
            objective=evaluation.objective,
        )
        of_step = FORWARD_PASSES_PER_STEP * scenario.training.batch_size
        every_steps = math.ceil(passes / (_EVALUATION_SHARE * of_step))
    return Simulation(
        _clients(world),
        _workloads(world),
        stop,
        Evaluations(
            every_ns=None if evaluation.every is None else to_ns(evaluation.every),
            every_versions=every_versions,
            every_steps=every_steps,
            at_start=evaluation.at_start,
            reached=(lambda metrics: meets(stop.target, metrics, world.measured.__getitem__))
            if stop.target
            else None,
        ),
        plane,
        recorder,
        seed=scenario.seed,
        on_progress=on_progress,
        hierarchy=hierarchy(world),
        live=live,
    )


def check_server(world: World) -> None:
    """Check that :func:`build_server` will succeed, without the cost of building."""
    clients, seed = _clients(world), world.scenario.seed
    above = hierarchy(world)
    if above is not None:
        check_rules(above.clients, seed)
        clients = replace(clients, members=above.members[0])
    with relocating(world.scenario):
        check_rules(clients, seed)


def _clients(world: World) -> Clients:
    section, prologue = world.server, world.method.prologue()
    keeps_lost = any(memory.kept_when_lost for memory in world.method.memories().values())
    return Clients(
        world.population,
        world.task.samples,
        world.devices.work,
        world.expected_duration_s,
        section.selection.create,
        section.schedule.create,
        failure_detection_ns=section.failure_detection_ns,
        aggregation_ns=to_ns(section.aggregation_time),
        first_updates=None if prologue is None else prologue.updates or 0,
        # Nothing is kept of the work before the first round.
        keeps_from=int(prologue is not None) if keeps_lost else None,
        exchange=section.exchange.create() if section.exchange.type.among_clients else None,
    )


def _workloads(world: World) -> Workloads:
    scenario, section, training = world.scenario, world.scenario.server, world.scenario.training
    epochs = world.task.steps_per_epoch(training)
    units = np.ones_like(epochs) if training.local_epochs is None else epochs
    limited = training.limited
    workload = partial(
        Workload,
        world.population,
        scenario.devices.failures,
        send_partial_work=section.partial_work == "send",
        foresight=section.foresight,
        seed=scenario.seed,
        partial_unit=epochs.tolist() if section.partial_unit == "epoch" else None,
        drawn=None if limited is None else drawn_work(limited, units.tolist(), scenario.seed),
        steps_ahead=world.method.steps_ahead(),
    )
    prologue = world.prologue_bytes
    usual, first = [], []
    for level in world.levels:
        down, up = world.traffic_bytes(level)
        first_down = world.first_download_bytes(level)
        usual.append(workload(down, up))
        first.append(workload(first_down, up) if first_down > down else usual[-1])
    parts = world.parts
    return Workloads(
        usual,
        prologue=None if prologue is None else workload(*prologue),
        first=first,
        of_client=None if parts is None else parts.level.tolist(),
        history=world.history(),
    )
