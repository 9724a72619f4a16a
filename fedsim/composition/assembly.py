"""Puts a scenario together and checks it: the clients, what they learn and how, their devices, the server."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from fedsim.composition.assembled import Assembly
from fedsim.composition.edges import (
    edge_servers,
    hierarchy,
    relocated,
    relocating,
    unmet_with_edges,
    with_edges,
)
from fedsim.composition.exchange import unmet_exchange
from fedsim.composition.extras import require_trackers
from fedsim.composition.needs import unknown_target, unmet_requirements, unmet_target
from fedsim.composition.prospects import impossible
from fedsim.composition.rules.planned import PLANNED, UNITS
from fedsim.composition.shared import Shared
from fedsim.composition.submodels import divided
from fedsim.composition.world import build_world
from fedsim.errors import UserError, combined, further_checks, raise_all
from fedsim.learning.metrics import chosen_metrics, definitions, known_columns, ways_to_measure
from fedsim.learning.rates import learning_rate
from fedsim.learning.submodels import Parts
from fedsim.methods.base import Method, MethodContext
from fedsim.methods.buffers import with_averaged_buffers
from fedsim.methods.compression import with_compression
from fedsim.methods.optimizer_state import with_optimizer_state
from fedsim.methods.submodels import with_submodels
from fedsim.processes.cluster import machine_bytes
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Scenario
from fedsim.scenario.training import ThreadWorkers, Training
from fedsim.simulation.evaluations import EvaluationTimes
from fedsim.simulation.facts import Clients, Rules, check_rules
from fedsim.simulation.level import Limits
from fedsim.simulation.simulation import Live, Simulation
from fedsim.simulation.updates import Recorder
from fedsim.simulation.workload import DrawnWork, Workload, Workloads
from fedsim.tasks.base import FORWARD_PASSES_PER_STEP, ITEM_BYTES, IntArray, Task
from fedsim.units import to_ns
from fedsim.vocabulary.formatting import format_bytes
from fedsim.vocabulary.metrics import meets
from fedsim.vocabulary.timeline import LearningPlane

if TYPE_CHECKING:
    import torch

    from fedsim.learning.device import Execution
    from fedsim.learning.workers import Station

_EVALUATION_SHARE = 0.1


def check(
    loaded: LoadedScenario, shared: Shared | None = None, *, timing_only: bool = False
) -> list[UserError]:
    """Make all checks that a run makes before its first event, without running.

    torch is not imported unless the scenario needs it for the check itself.

    Args:
        loaded: the scenario.
        shared: traces and data sets already loaded.
        timing_only: simulate time only.

    Returns:
        Warnings: settings that are legal but probably not intended.

    Raises:
        UserError: the error that :func:`fedsim.composition.execution.execute` would raise.
    """
    assembly, warnings = prepare(loaded, shared, timing_only=timing_only)
    task, scenario = assembly.task, loaded.scenario
    with loaded.locating_errors():
        if assembly.learns and task.may_lack_kernel(scenario.training):
            build_station(scenario, task, assembly.method, scenario.training)
    return warnings


def prepare(
    loaded: LoadedScenario,
    shared: Shared | None = None,
    *,
    timing_only: bool = False,
) -> tuple[Assembly, list[UserError]]:
    """Put a scenario together, and check that its server can be built and that its clients can do the work.

    Args:
        loaded, shared, timing_only: as for :func:`check`.

    Returns:
        The parts of the run, and warnings: settings that are legal but probably not intended.

    Raises:
        UserError: parts are not compatible, or the run cannot succeed.
    """
    with further_checks(), loaded.locating_errors():
        if loaded.scenario.ignore:
            # The rules on finished runs import pandas, which takes as long as the rest of a check.
            from fedsim.composition.rules.names import check_names

            check_names(loaded.scenario.ignore)
        require_trackers(loaded)
        assembly = assemble(loaded, shared, timing_only=timing_only)
        check_server(assembly)
        ignored = loaded.scenario.ignore
        if errors := list(impossible(assembly.prospects)):
            # Values in a wrong unit may be the cause.
            raise combined([*errors, *PLANNED.warnings(assembly, ignored, only=UNITS)])
        warnings = PLANNED.warnings(assembly, ignored)
    return assembly, [loaded.located(warning) for warning in warnings]


def assemble(
    loaded: LoadedScenario,
    shared: Shared | None = None,
    *,
    timing_only: bool = False,
) -> Assembly:
    """Build everything in a scenario except the server and the learner.

    No parameter values are created and no samples loaded, unless a user's model or the counting of FLOPs needs them.

    Args:
        loaded, shared, timing_only: as for :func:`check`.

    Raises:
        UserError: parts of the scenario are not compatible.
    """
    scenario = loaded.scenario
    if hasattr(scenario.task.params, "dataset") and not scenario.evaluation.by_class:
        # Before the data set is read, which may have to be downloaded.
        raise_all(unknown_target(scenario.stop.target, known_columns(scenario.evaluation)))
    world = build_world(loaded, shared)
    task = world.task
    learns = task.learns and not timing_only
    _check_learning(scenario, task, learns)
    server = scenario.server.of_devices
    of_devices = scenario.model_copy(update={"server": server})
    cycle_s = world.availability_cycle_s
    with relocating(scenario):
        method = build_method(of_devices, task, cycle_s, learns=learns)
    parts = divided(world, method)
    if parts is not None:
        world = replace(world, parts=parts)
        method = build_method(of_devices, task, cycle_s, parts, learns=learns)
    edges = edge_servers(world, method)
    metrics = chosen_metrics(scenario.evaluation, task)
    measured = definitions(task, scenario.evaluation, metrics, method.personal) if learns else {}
    target = scenario.stop.target if learns else {}
    accuracies = task.has_client_accuracies
    raise_all(
        [
            *_unmet(scenario, method, learns=learns, client_accuracies=accuracies),
            *unmet_with_edges(scenario, edges, method),
            *unmet_exchange(scenario, method),
            *unmet_target(target, measured, ways_to_measure(task) if target else {}),
        ]
    )
    population = world.population(method)
    return with_edges(Assembly(loaded, world, learns, method, metrics, measured, population, edges))


def _unmet(
    scenario: Scenario, method: Method, *, learns: bool, client_accuracies: bool
) -> list[UserError]:
    """The needs of the parts that deal with the clients which the scenario does not meet."""
    errors = unmet_requirements(
        method,
        scenario.server.of_devices,
        learns=learns,
        client_accuracies=client_accuracies,
        pauses=scenario.devices.availability.params.on_disconnect == "pause",
    )
    if scenario.server.edges is None:
        return errors
    return [relocated(error) for error in errors]


def _check_learning(scenario: Scenario, task: Task, learns: bool) -> None:
    """Refuse a target without training, a model that is larger than the memory, and hardware that there is not."""
    if not learns:
        if scenario.stop.target:
            raise UserError(
                "a target needs training, but this run only simulates time",
                where="stop.target",
                hint="remove it (-s 'stop.target={}'), or run a task that trains a model without --timing-only",
            )
        return
    model_bytes = (task.layout.size + task.fixed_elements) * ITEM_BYTES[scenario.training.dtype]
    memory_bytes = machine_bytes()
    if memory_bytes is not None and model_bytes > memory_bytes:
        raise UserError(
            f"the model takes {format_bytes(model_bytes)}, but this machine has {format_bytes(memory_bytes)} of memory",
            where="task.model",
            hint="make it smaller, or simulate only time (fedsim run --timing-only)",
        )
    training = scenario.training
    if (
        training.device == "cuda"
        or training.autocast != "none"
        or not isinstance(training.workers, ThreadWorkers)
    ):
        execution_of(training)


def build_method(
    scenario: Scenario,
    task: Task,
    cycle_s: float,
    parts: Parts | None = None,
    *,
    learns: bool = True,
) -> Method:
    """The method of a scenario, with the facts of the run that it may use.

    Args:
        scenario, task: the scenario and its task.
        cycle_s: length of one availability cycle of the devices in seconds.
        parts: the parts of the model that clients train; None if all train the whole model.
        learns: whether a model is trained; otherwise only time is simulated.

    Raises:
        UserError: the method does not support the model, or what it declares makes no sense.
    """
    training = scenario.training

    @cache
    def tensors() -> tuple[torch.dtype, torch.device]:
        import torch

        if not learns:
            return torch.float32, torch.device("cpu")
        execution = execution_of(training)
        return execution.dtype, execution.device

    part, state = scenario.server.method, training.optimizer_state
    if state != "reset" and training.optimizer.create().buffers:
        part = replace(part, component=with_optimizer_state(part.type, state))
    part = replace(part, component=with_averaged_buffers(part.type, task.layout))
    wire = scenario.server.compression
    up, down = wire.up.create(task.layout), wire.down.create(task.layout)
    if not (up.changes_nothing and down.changes_nothing):
        part = replace(part, component=with_compression(part.type, up, down))
    if parts is not None:
        part = replace(part, component=with_submodels(part.type, parts))
    method: Method = part.create(
        MethodContext(
            layout=task.layout,
            clients=task.clients,
            samples=task.samples,
            learning_rate=learning_rate(training),
            local_steps=task.local_steps(training),
            tensors=tensors,
            seed=scenario.seed,
            availability_cycle_s=cycle_s,
            optimizer=training.optimizer.create(),
        )
    )
    return method


def build_station(scenario: Scenario, task: Task, method: Method, training: Training) -> Station:
    """Task, kernel and method on the device of ``training``, which may differ from the scenario's.

    Raises:
        UserError: this machine or the kernels cannot do what the scenario needs.
    """
    from fedsim.learning.workers import Station

    return Station(
        task,
        method,
        training,
        scenario.seed,
        execution_of(training),
        dispatch_loss=scenario.server.of_devices.selection.type.dispatch_loss,
    )


def execution_of(training: Training) -> Execution:
    """Where the tensors of a run live, and in which type."""
    from fedsim.learning.device import Execution

    return Execution.of(training)


# -- the server --------------------------------------------------------------------------------------------------------


def build_server(
    assembly: Assembly,
    plane: LearningPlane | None,
    recorder: Recorder,
    on_progress: Callable[[], None] | None = None,
    live: Live | None = None,
) -> Simulation:
    """The time plane of a run; ``live`` are its clients if they are not simulated.

    Raises:
        UserError: schedule, selection, method and devices are not compatible.
    """
    scenario = assembly.scenario
    stop, evaluation = scenario.stop, scenario.evaluation
    every_versions, every_steps = evaluation.every_rounds, None
    if every_versions is None and evaluation.every is None:
        every_steps = _steps_worth_an_evaluation(assembly)
    return Simulation(
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
            reached=(lambda metrics: meets(stop.target, metrics, assembly.measured.__getitem__))
            if stop.target
            else None,
        ),
        plane,
        recorder,
        seed=scenario.seed,
        on_progress=on_progress,
        hierarchy=hierarchy(assembly),
        live=live,
    )


def check_server(assembly: Assembly) -> None:
    """Check that :func:`build_server` will succeed, without the cost of building.

    Raises:
        UserError: schedule or selection do not accept their parameters.
    """
    clients, rules, seed = _clients(assembly), _rules(assembly), assembly.scenario.seed
    above = hierarchy(assembly)
    if above is not None:
        check_rules(above.clients, above.rules, seed)
        clients = replace(clients, members=above.members[0])
    with relocating(assembly.scenario):
        check_rules(clients, rules, seed)


def _clients(assembly: Assembly) -> Clients:
    return Clients(
        assembly.population,
        assembly.task.samples,
        assembly.world.work,
        assembly.expected_duration_s,
    )


def _rules(assembly: Assembly) -> Rules:
    section = assembly.scenario.server.of_devices
    detection, prologue = section.failure_detection, assembly.method.prologue()
    keeps_lost = any(memory.kept_when_lost for memory in assembly.method.memories().values())
    return Rules(
        section.selection.create,
        section.schedule.create,
        failure_detection_ns=None if detection == "never" else to_ns(detection),
        aggregation_ns=to_ns(section.aggregation_time),
        first_updates=None if prologue is None else prologue.updates or 0,
        # Nothing is kept of the work before the first round.
        keeps_from=int(prologue is not None) if keeps_lost else None,
        exchange=section.exchange.create() if section.exchange.type.among_clients else None,
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
        steps_ahead=assembly.method.steps_ahead(),
    )
    prologue = assembly.prologue_bytes
    usual, first = [], []
    for level in assembly.levels:
        down, up = assembly.traffic_bytes(level)
        first_down = assembly.first_download_bytes(level)
        usual.append(workload(down, up))
        first.append(workload(first_down, up) if first_down > down else usual[-1])
    parts = assembly.world.parts
    return Workloads(
        usual,
        prologue=None if prologue is None else workload(*prologue),
        first=first,
        of_client=None if parts is None else parts.level.tolist(),
        history=assembly.history(),
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
