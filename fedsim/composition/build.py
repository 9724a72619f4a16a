"""Builds the world of a run from its scenario: the clients, what they learn and how, their devices, edge servers;
and checks it before its first event."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from fedsim.composition.devices import Devices
from fedsim.composition.edges import (
    edge_servers,
    relocated,
    relocating,
    unmet_with_edges,
    with_edges,
)
from fedsim.composition.needs import unmet_exchange, unmet_requirements, unmet_target
from fedsim.composition.planes import build_station, check_server
from fedsim.composition.rules.planned import PLANNED, UNITS
from fedsim.composition.shared import Shared
from fedsim.composition.submodels import divided
from fedsim.composition.world import World, impossible
from fedsim.errors import (
    UserError,
    combined,
    further_checks,
    located,
    raise_all,
    unknown,
)
from fedsim.learning.metrics import chosen_metrics, definitions, known_columns, ways_to_measure
from fedsim.learning.rates import learning_rate
from fedsim.learning.submodels import Submodels
from fedsim.learning.submodels.parts import Parts
from fedsim.methods.base import Method, MethodContext, with_mixin
from fedsim.methods.compression import Compressed
from fedsim.methods.mixins import InParts, Kept, Sent, with_averaged_buffers
from fedsim.processes.cluster import machine_bytes
from fedsim.randomness import isolated
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Scenario
from fedsim.scenario.training import ThreadWorkers
from fedsim.simulation.facts import Work
from fedsim.tasks.base import ITEM_BYTES, Task, TaskContext
from fedsim.units import to_ns
from fedsim.vocabulary.formatting import format_bytes

if TYPE_CHECKING:
    import torch


def unknown_metrics(
    names: Iterable[str],
    scenario: Scenario,
    where: str = "stop.target.{}",
    also: Collection[str] = (),
) -> Iterator[UserError]:
    """One error per name of a target that no task measures and that is none of ``also``; no data set is read."""
    if hasattr(scenario.task.params, "dataset") and not scenario.evaluation.by_class:
        known = sorted({*known_columns(scenario.evaluation), *also})
        for name in names:
            if name not in known:
                yield unknown("metric", name, known, where.format(name))


def build(
    loaded: LoadedScenario,
    shared: Shared | None = None,
    *,
    timing_only: bool = False,
    threads: int | None = None,
) -> World:
    """Build everything in a scenario except the two planes of its run.

    No parameter values are created and no samples loaded, unless a user's model or the counting of FLOPs needs them.

    Args:
        loaded: the scenario.
        shared: traces and data sets already loaded, to share them between runs.
        timing_only: simulate time only.
        threads: worker threads of local training, if the scenario gives none; never changes a result.
    """
    shared, scenario = shared or Shared(), loaded.scenario
    training, target = scenario.training, scenario.stop.target
    if threads is not None and training.threads is None:
        training = training.model_copy(update={"threads": threads})
    with further_checks(), loaded.locating_errors():
        raise_all(unknown_metrics(target, scenario))
        task = build_task(loaded, shared)
        learns = task.learns and not timing_only
        _check_learning(scenario, task, learns)
        budget_ns = None if training.time_budget is None else to_ns(training.time_budget)
        # Traces are read when the population is built, or when the length of their cycle is needed.
        work = Work(task.local_steps(training), budget_ns)
        devices = Devices(scenario, loaded.folder, shared, task, work)
        with relocating(scenario):
            method = build_method(devices, learns=learns)
        parts = divided(devices, method)
        if parts is not None:
            method = build_method(devices, parts, learns=learns)
        edges = edge_servers(devices, method)
        metrics = chosen_metrics(scenario.evaluation, task)
        measured = (
            definitions(task, scenario.evaluation, metrics, method.personal) if learns else {}
        )
        unmet = unmet_requirements(
            method,
            scenario.server.of_devices,
            learns=learns,
            client_accuracies=task.has_client_accuracies,
            pauses=scenario.devices.availability.params.on_disconnect == "pause",
        )
        raise_all(
            [
                *(unmet if edges is None else map(relocated, unmet)),
                *unmet_with_edges(scenario, edges, method),
                *unmet_exchange(scenario, method),
                *(unmet_target(target, measured, ways_to_measure(task)) if learns else ()),
            ]
        )
        population = devices.population(method, parts)
        facts = loaded, devices, training, learns, method, population
        return with_edges(World(*facts, metrics, measured, parts, edges))


def build_task(loaded: LoadedScenario, shared: Shared | None = None) -> Task:
    """The task of a scenario, with its data and their partition."""
    scenario, shared = loaded.scenario, shared or Shared()
    submodels: Submodels = scenario.server.submodels.create()
    context = TaskContext(
        scenario.training,
        scenario.seed,
        loaded.folder,
        shared.dataset,
        merges=scenario.server.of_devices.method.type.merges,
        adapted=submodels.adapted,
    )
    kind = scenario.task.type
    with isolated(scenario.seed):
        task: Task = kind.build(scenario.task.params, context)
    submodels.check(task)
    task.check(scenario.training, scenario.evaluation)
    return task


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
        from fedsim.learning.device import Execution

        Execution.of(training)


def build_method(devices: Devices, parts: Parts | None = None, *, learns: bool = True) -> Method:
    """The method of a scenario, with the facts of the run that it may use; arguments are as in :class:`World`."""
    scenario, task = devices.scenario, devices.task
    training, server = scenario.training, scenario.server.of_devices

    @cache
    def tensors() -> tuple[torch.dtype, torch.device]:
        import torch

        from fedsim.learning.device import Execution

        if not learns:
            return torch.float32, torch.device("cpu")
        execution = Execution.of(training)
        return execution.dtype, execution.device

    part, state = server.method, training.optimizer_state
    if state != "reset" and training.optimizer.create().buffers:
        part = replace(part, component=with_mixin(part.type, Kept if state == "kept" else Sent))
    part = replace(part, component=with_averaged_buffers(part.type, task.layout))
    wire = server.compression
    up, down = wire.up.create(task.layout), wire.down.create(task.layout)
    if not (up.changes_nothing and down.changes_nothing):
        ways = {"up": up, "down": down}
        part = replace(part, component=with_mixin(part.type, Compressed, ways=ways))
    if parts is not None:
        part = replace(part, component=with_mixin(part.type, InParts, parts=parts))
    method: Method = part.create(
        MethodContext(
            layout=task.layout,
            clients=task.clients,
            samples=task.samples,
            learning_rate=learning_rate(training),
            local_steps=task.local_steps(training),
            tensors=tensors,
            seed=scenario.seed,
            availability_cycle_s=devices.availability_cycle_s,
            optimizer=training.optimizer.create(),
        )
    )
    return method


def check(world: World) -> list[UserError]:
    """Check that the server of a run can be built, and that its clients can do the work.

    Returns:
        Warnings: settings that are legal but probably not intended.
    """
    loaded, ignored = world.loaded, world.scenario.ignore
    with further_checks(), loaded.locating_errors():
        if ignored:
            # The rules on finished runs import pandas, which takes as long as the rest of a check.
            from fedsim.composition.rules.finished import check_names

            check_names(ignored)
        for number, part in enumerate(world.scenario.logging):
            with located(f"logging.{number}"):
                part.type.require_installed()
        check_server(world)
        if errors := list(impossible(world.prospects)):
            # Values in a wrong unit may be the cause.
            raise combined([*errors, *PLANNED.warnings(world, ignored, only=UNITS)])
        return [loaded.located(warning) for warning in PLANNED.warnings(world, ignored)]


def check_scenario(
    loaded: LoadedScenario, shared: Shared | None = None, *, timing_only: bool = False
) -> list[UserError]:
    """Make all checks that a run makes before its first event, without running.

    torch is not imported unless the scenario needs it for the check itself. Arguments are those of :func:`build`, and
    the result is that of :func:`check`.
    """
    world = build(loaded, shared, timing_only=timing_only)
    warnings = check(world)
    if world.learns and world.task.may_lack_kernel(world.training):
        with loaded.locating_errors():
            build_station(world)
    return warnings
