"""A scenario put together: the world, the rules, the devices under both, and the server that runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from fedsim.composition.feasibility import Feasibility
from fedsim.composition.requirements import (
    doubts,
    nothing_measured,
    personal_models_unmeasured,
    population_doubts,
    seldom_evaluated,
    undeclared_directions,
)
from fedsim.composition.rules import Rules, build_rules
from fedsim.composition.shared import Shared
from fedsim.composition.world import World, build_world
from fedsim.devices.population import Population
from fedsim.errors import UserError, combined
from fedsim.methods.base import Method
from fedsim.network.base import Direction
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Scenario
from fedsim.simulation.drawn_work import DrawnWork
from fedsim.simulation.evaluations import EvaluationTimes
from fedsim.simulation.facts import Clients, check_rules
from fedsim.simulation.facts import Rules as ServerRules
from fedsim.simulation.server import Limits, Server
from fedsim.simulation.updates import Recorder
from fedsim.simulation.workload import Workload, Workloads
from fedsim.tasks.base import FORWARD_PASSES_PER_STEP, IntArray, Task
from fedsim.units import NS_PER_S, to_ns
from fedsim.vocabulary.timeline import LearningPlane

_EVALUATION_SHARE = 0.1


@dataclass(frozen=True)
class Assembly:
    """The parts of a run that do not change during it.

    Attributes:
        loaded: the scenario.
        world: the clients.
        rules: how they learn.
        population: their devices.
        trace_doubts: warnings about the traces.
    """

    loaded: LoadedScenario
    world: World
    rules: Rules
    population: Population
    trace_doubts: list[UserError]

    @property
    def scenario(self) -> Scenario:
        """The scenario's sections."""
        return self.loaded.scenario

    @property
    def task(self) -> Task:
        """The task that is learned or timed."""
        return self.world.task

    @property
    def method(self) -> Method:
        """The learning rules."""
        return self.rules.method

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full dispatch of a client at its nominal speed and rates."""
        network = self.population.network
        down, up = self.rules.traffic_bytes
        transfers = sum(
            network.latency_ns(client, direction) / NS_PER_S
            + network.nominal_wire_s(client, direction, size)
            for direction, size in ((Direction.DOWN, down), (Direction.UP, up))
            if size
        )
        return transfers + float(self._compute_s[client])

    @cached_property
    def _compute_s(self) -> npt.NDArray[np.float64]:
        """Duration of each client's full workload at its nominal speed, (N,)."""
        step_s = self.population.compute.step_s
        return self.world.work.nominal_steps(step_s) * step_s


def assemble(
    loaded: LoadedScenario,
    shared: Shared | None = None,
    *,
    timing_only: bool = False,
    world_seed: int | None = None,
) -> Assembly:
    """Build everything in a scenario except the server and the learner.

    No parameter values are created and no samples loaded, unless a user's model or the counting of FLOPs needs them.

    Args:
        loaded: the scenario.
        shared: traces and data sets already loaded, to share them between runs.
        timing_only: simulate time only.
        world_seed: seed of devices and data split, if different from the scenario's.

    Raises:
        UserError: parts of the scenario are not compatible.
    """
    world = build_world(loaded, shared, world_seed)
    rules = build_rules(loaded.scenario, world, timing_only=timing_only)
    population = world.population(rules.method)
    trace_doubts = list(world.trace_doubts())
    if shared is None:
        # Population and names hold what the run needs of the traces.
        _ = world.device_names
        world.shared.bundles.forget()
    return Assembly(loaded, world, rules, population, trace_doubts)


def check_server(assembly: Assembly) -> list[UserError]:
    """Check that :func:`build_server` will succeed, without the cost of building, and that the clients can do the work.

    Returns:
        Warnings: settings that are legal but probably not intended.

    Raises:
        UserError: the server cannot be built, or the run cannot succeed.
    """
    check_rules(_clients(assembly), _server_rules(assembly), assembly.scenario.seed)
    feasibility = Feasibility(
        assembly.scenario,
        assembly.population,
        assembly.world.work,
        assembly.rules.traffic_bytes,
        assembly.world.memory_in_trace,
    )
    if errors := list(feasibility.errors()):
        # Values in a wrong unit may be the cause.
        raise combined([*errors, *feasibility.forgotten_units(), *assembly.trace_doubts])
    scenario, of_learning = assembly.scenario, list[UserError]()
    if assembly.rules.learns:
        of_learning += seldom_evaluated(scenario.evaluation, scenario.stop)
        of_learning += undeclared_directions(scenario.stop.target, assembly.rules.metrics)
        of_learning += personal_models_unmeasured(
            assembly.method, assembly.task, scenario.evaluation
        )
    return [
        *assembly.trace_doubts,
        *assembly.task.doubts(),
        *nothing_measured(assembly.rules.learns, assembly.rules.measured),
        *of_learning,
        *doubts(assembly.method, scenario.server),
        *population_doubts(assembly.method, assembly.population.availability),
        *feasibility.warnings(),
    ]


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
        _server_rules(assembly),
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
            reached=assembly.rules.target_test,
        ),
        plane,
        recorder,
        seed=scenario.seed,
        on_progress=on_progress,
    )


def _clients(assembly: Assembly) -> Clients:
    return Clients(
        assembly.population,
        assembly.task.samples,
        assembly.world.work,
        assembly.expected_duration_s,
    )


def _server_rules(assembly: Assembly) -> ServerRules:
    section = assembly.scenario.server
    detection, prologue = section.failure_detection, assembly.rules.method.prologue()
    return ServerRules(
        section.selection.create,
        section.schedule.create,
        failure_detection_ns=None if detection == "never" else to_ns(detection),
        aggregation_ns=to_ns(section.aggregation_time),
        has_prologue=prologue is not None,
        prologue_updates=None if prologue is None else prologue.updates,
        trains_lost_work=assembly.rules.keeps_lost_work,
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
    rules = assembly.rules
    down, up = rules.traffic_bytes
    prologue, first_down = rules.prologue_bytes, rules.first_download_bytes
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
