"""Builds the objects of one run from a checked scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from fedsim.composition.population import availability_cycle_s, build_population
from fedsim.composition.shared import Datasets, Shared
from fedsim.devices.population import Population
from fedsim.errors import UserError
from fedsim.learning.device import Execution
from fedsim.learning.metrics import Metric
from fedsim.learning.rates import learning_rate
from fedsim.methods.base import Method, MethodContext, Prologue
from fedsim.methods.requirements import check_requirements
from fedsim.metrics import MetricDefinition, definition
from fedsim.network.base import Direction
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Scenario
from fedsim.scenario.training import Training
from fedsim.simulation.drawn_work import DrawnWork
from fedsim.simulation.evaluations import EvaluationTimes
from fedsim.simulation.facts import Clients, Rules, Work, check_rules
from fedsim.simulation.server import Limits, Server
from fedsim.simulation.updates import Recorder
from fedsim.simulation.workload import Workload, Workloads
from fedsim.tasks import kinds
from fedsim.tasks.base import FORWARD_PASSES_PER_STEP, ITEM_BYTES, Task, TaskContext
from fedsim.tasks.layout import Layout
from fedsim.timeline import LearningPlane
from fedsim.units import NS_PER_S, to_ns

_EVALUATION_SHARE = 0.1


@dataclass(frozen=True)
class Assembly:
    """The parts of a run that do not change while it goes on.

    Attributes:
        loaded: the scenario.
        task: what is learned, or timed.
        method: the learning rules.
        layout: of the model.
        samples: training samples of each client, (N,).
        work: local steps of a full piece of work.
        population: the devices.
        bytes_down, bytes_up: bytes of one download and one upload.
        execution: where tensors live; None where only time is simulated.
    """

    loaded: LoadedScenario
    task: Task
    method: Method
    layout: Layout
    samples: npt.NDArray[np.int64]
    work: Work
    population: Population
    bytes_down: float
    bytes_up: float
    execution: Execution | None

    @property
    def scenario(self) -> Scenario:
        """The scenario's sections."""
        return self.loaded.scenario

    @property
    def prologue_bytes(self) -> tuple[float, float] | None:
        """Bytes of a download and an upload of the method's prologue; None where it has none."""
        prologue = self.method.prologue()
        return None if prologue is None else _traffic(self.scenario, prologue)

    @property
    def first_download_bytes(self) -> float:
        """Bytes of the download of a client's first dispatch."""
        sent = [*self.method.download(), *self.method.first_download()]
        return _traffic(self.scenario, Prologue(sent, ()))[0]

    @property
    def keeps_lost_work(self) -> bool:
        """Whether clients keep something of work that the server never uses."""
        return any(memory.kept_when_lost for memory in self.method.memories().values())

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full piece of work of a client at its nominal speed and rates."""
        population, network = self.population, self.population.network
        transfers = sum(
            network.latency_ns(client, direction) / NS_PER_S
            + size * 8 / network.rate_bps(client, direction)
            for direction, size in (
                (Direction.DOWN, self.bytes_down),
                (Direction.UP, self.bytes_up),
            )
            if size
        )
        return transfers + float(self.work.steps[client]) * float(population.compute.step_s[client])


def assemble(
    loaded: LoadedScenario,
    shared: Shared | None = None,
    *,
    timing_only: bool = False,
    world_seed: int | None = None,
) -> Assembly:
    """Build task, method and population.

    Args:
        loaded: the scenario.
        shared: traces and data sets already loaded, to share them between runs.
        timing_only: leave the learning out.
        world_seed: seed of the devices and of who holds which data, where it is not the scenario's own.

    Raises:
        UserError: parts of the scenario do not fit together.
    """
    scenario, shared = loaded.scenario, shared or Shared()
    world = scenario
    if world_seed is not None:
        world = scenario.model_copy(update={"seed": world_seed})
    task = build_task(replace(loaded, scenario=world), shared.datasets)
    training = scenario.training
    timing = timing_only or not task.learns
    if timing and scenario.stop.target:
        raise UserError(
            "a target needs training, but this run simulates time alone",
            where="stop.target",
            hint="leave out the target, or run without --timing-only on a task that learns",
        )
    execution = None if timing else Execution.of(training)
    layout, samples = task.layout, task.samples
    task.check(training, scenario.evaluation)
    work = local_work(training, task)
    method = build_method(
        loaded,
        layout,
        samples,
        work.steps,
        execution,
        availability_cycle_s(scenario.devices, shared.bundles),
    )
    bytes_down, bytes_up = _traffic(scenario, Prologue(method.download(), method.upload()))
    population = build_population(
        replace(loaded, scenario=world),
        samples,
        flops_per_sample=_flops(scenario, task),
        compute_factor=method.compute_factor(),
        memory_needed_bytes=lambda: _memory_needed(training, task, method),
        bundles=shared.bundles,
    )
    return Assembly(
        loaded, task, method, layout, samples, work, population, bytes_down, bytes_up, execution
    )


def build_server(
    assembly: Assembly,
    plane: LearningPlane | None,
    recorder: Recorder,
    on_progress: Callable[[], None] | None = None,
) -> Server:
    """The time plane of a run, ready to go.

    Raises:
        UserError: schedule, selection, method and devices do not fit together.
    """
    check_combination(assembly)
    scenario = assembly.scenario
    stop, evaluation = scenario.stop, scenario.evaluation
    every_versions, every_steps = evaluation.every_rounds, None
    if every_versions is None and evaluation.every is None:
        every_steps = _steps_worth_an_evaluation(assembly)
    own = {metric.column: metric.definition for metric in build_metrics(assembly.loaded)}
    return Server(
        _clients(assembly),
        _workloads(assembly),
        _rules(assembly),
        Limits(
            until_ns=None if stop.simulated_time is None else to_ns(stop.simulated_time),
            rounds=stop.rounds,
            dispatches=stop.dispatches,
            arrivals=stop.arrivals,
        ),
        EvaluationTimes(
            every_ns=None if evaluation.every is None else to_ns(evaluation.every),
            every_versions=every_versions,
            every_steps=every_steps,
            at_start=evaluation.at_start,
            reached=_target_test(stop.target, own) if stop.target else None,
        ),
        plane,
        recorder,
        seed=scenario.seed,
        on_progress=on_progress,
    )


def check_server(assembly: Assembly) -> None:
    """Check that :func:`build_server` will succeed, without the cost of building.

    Raises:
        UserError: it would not.
    """
    check_combination(assembly)
    check_rules(_clients(assembly), _rules(assembly), assembly.scenario.seed)


def _clients(assembly: Assembly) -> Clients:
    return Clients(
        assembly.population, assembly.samples, assembly.work, assembly.expected_duration_s
    )


def _rules(assembly: Assembly) -> Rules:
    section = assembly.scenario.server
    detection = section.failure_detection
    return Rules(
        section.selection.create,
        section.schedule.create,
        failure_detection_ns=None if detection == "never" else to_ns(detection),
        aggregation_ns=to_ns(section.aggregation_time),
        has_prologue=assembly.prologue_bytes is not None,
        trains_lost_work=assembly.keeps_lost_work,
    )


def _workloads(assembly: Assembly) -> Workloads:
    scenario, section = assembly.scenario, assembly.scenario.server
    epochs = assembly.task.steps_per_epoch(scenario.training.batch_size)
    workload = partial(
        Workload,
        assembly.population,
        scenario.devices.failures,
        send_partial_work=section.partial_work == "send",
        seed=scenario.seed,
        partial_unit=epochs.tolist() if section.partial_unit == "epoch" else None,
        drawn=_drawn_work(scenario, epochs),
    )
    down, up = assembly.bytes_down, assembly.bytes_up
    prologue, first_down = assembly.prologue_bytes, assembly.first_download_bytes
    return Workloads(
        workload(down, up),
        prologue=None if prologue is None else workload(*prologue),
        first=workload(first_down, up) if first_down > down else None,
    )


def _steps_worth_an_evaluation(assembly: Assembly) -> int:
    """Local steps after which an evaluation costs a tenth of the training, a step being worth three forward passes."""
    evaluation = assembly.scenario.evaluation
    passes = assembly.task.evaluation_passes(
        per_client=evaluation.per_client or assembly.method.personal,
        objective=evaluation.objective,
    )
    batch_size = assembly.scenario.training.batch_size
    return math.ceil(passes / (_EVALUATION_SHARE * FORWARD_PASSES_PER_STEP * batch_size))


def check_combination(assembly: Assembly) -> None:
    """Whether the method can run under the schedule and with the optimizer.

    Raises:
        UserError: it cannot, with its reason.
    """
    method = assembly.method
    check_requirements(method, assembly.scenario.server.schedule.type)


def _traffic(scenario: Scenario, work: Prologue) -> tuple[float, float]:
    """Bytes of one download and one upload of these vectors."""
    item, server = ITEM_BYTES[scenario.training.dtype], scenario.server
    down, up = (sum(vector.elements for vector in sent) for sent in (work.download, work.upload))
    return down * item * server.download_compression, up * item * server.compression


def build_task(loaded: LoadedScenario, datasets: Datasets) -> Task:
    """What is learned from which data, or timed.

    Raises:
        UserError: its parts do not fit together, or data is missing.
    """
    scenario = loaded.scenario
    context = TaskContext(scenario.training, scenario.seed, loaded.folder, datasets.load)
    return kinds.registry()[scenario.task.name].build(scenario.task, context)


def build_method(
    loaded: LoadedScenario,
    layout: Layout,
    samples: npt.NDArray[np.int64],
    local_steps: npt.NDArray[np.int64],
    execution: Execution | None,
    cycle_s: float,
) -> Method:
    """The learning rules.

    Args:
        loaded: the scenario.
        layout: of the model.
        samples: training samples of each client, (N,).
        local_steps: of a full piece of work of each client, (N,).
        execution: where tensors live; None where only time is simulated.
        cycle_s: length of one availability cycle of the devices in seconds.

    Raises:
        UserError: the method cannot work on such a model.
    """
    scenario = loaded.scenario
    method: Method = scenario.server.method.create(
        MethodContext(
            layout=layout,
            clients=len(samples),
            samples=samples,
            learning_rate=learning_rate(scenario.training),
            local_steps=local_steps,
            dtype=execution.dtype if execution else torch.float32,
            device=execution.device if execution else torch.device("cpu"),
            seed=scenario.seed,
            availability_cycle_s=cycle_s,
            optimizer=scenario.training.optimizer.create(),
        ),
    )
    return method


def local_work(training: Training, task: Task) -> Work:
    """What each client is asked to do."""
    budget = training.time_budget
    return Work(task.local_steps(training), None if budget is None else to_ns(budget))


def _drawn_work(scenario: Scenario, epochs: npt.NDArray[np.int64]) -> DrawnWork | None:
    training = scenario.training
    if training.limited is None:
        return None
    units = epochs if training.local_epochs is not None else np.ones_like(epochs)
    return DrawnWork(training.limited, units.tolist(), scenario.seed)


def _flops(scenario: Scenario, task: Task) -> float | None:
    # Counting may take a forward and a backward pass, so it is done only for a compute model that needs it.
    needed = scenario.devices.compute.type.needs_flops
    return task.flops_per_sample() if needed or not task.learns else None


def _memory_needed(training: Training, task: Task, method: Method) -> npt.NDArray[np.float64]:
    """Bytes that training needs on each client's device, (N,), with what the method keeps there."""
    kept = sum(
        memory.elements for memory in method.memories().values() if memory.keeper != "server"
    )
    return task.memory_bytes(training, kept)


def _target_test(
    target: Mapping[str, float], own: Mapping[str, MetricDefinition]
) -> Callable[[Mapping[str, float]], bool]:
    def reached(metrics: Mapping[str, float]) -> bool:
        unknown = [name for name in target if name not in metrics]
        if unknown:
            raise UserError(
                f"there is no metric '{unknown[0]}' to stop at",
                where="stop.target",
                hint=f"this task measures: {', '.join(sorted(metrics))}"
                if metrics
                else "the data set has no test samples; give it some",
            )
        return all(
            bool(definition(name, own).reached(metrics[name], value))
            for name, value in target.items()
        )

    return reached


def build_metrics(loaded: LoadedScenario) -> list[Metric]:
    """The metrics that a scenario asks for besides those of every run."""
    return [part.create() for part in loaded.scenario.evaluation.metrics]
