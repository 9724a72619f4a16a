"""A scenario put together: the clients, what they learn and how, their devices, and the bytes they transfer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsim.composition.needs import unmet_requirements, unmet_target
from fedsim.composition.prospects import Prospects
from fedsim.composition.shared import Shared
from fedsim.composition.world import World, build_world
from fedsim.devices.population import Population
from fedsim.errors import UserError, raise_all
from fedsim.learning.metrics import Metric, definitions, ways_to_measure
from fedsim.learning.rates import learning_rate
from fedsim.methods.base import Method, MethodContext, Prologue
from fedsim.methods.declarations import check_declarations
from fedsim.network.base import Direction
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Scenario
from fedsim.scenario.training import ThreadWorkers, Training
from fedsim.tasks.base import ITEM_BYTES, Task
from fedsim.units import NS_PER_S
from fedsim.vocabulary.formatting import format_bytes
from fedsim.vocabulary.metrics import MetricDefinition, meets

if TYPE_CHECKING:
    import torch

    from fedsim.learning.device import Execution
    from fedsim.learning.workers import Station


@dataclass(frozen=True)
class Assembly:
    """The parts of a run that do not change during it.

    Attributes:
        loaded: the scenario.
        world: the clients, with their task and data.
        learns: whether a model is trained; otherwise only time is simulated.
        method: the learning rules.
        metrics: metrics besides those of every run.
        measured: the metrics that the run may measure, by name; empty if only time is simulated.
        population: the clients' devices.
    """

    loaded: LoadedScenario
    world: World
    learns: bool
    method: Method
    metrics: tuple[Metric, ...]
    measured: Mapping[str, MetricDefinition]
    population: Population

    @property
    def scenario(self) -> Scenario:
        """The scenario's sections."""
        return self.loaded.scenario

    @property
    def task(self) -> Task:
        """The task that is learned or timed."""
        return self.world.task

    @cached_property
    def prospects(self) -> Prospects:
        """What the clients can do."""
        world, traffic_bytes = self.world, self.traffic_bytes
        return Prospects(
            self.scenario, self.population, world.work, traffic_bytes, world.memory_in_trace
        )

    @cached_property
    def execution(self) -> Execution | None:
        """Where tensors live; None if only time is simulated."""
        return _execution(self.scenario.training) if self.learns else None

    @property
    def traffic_bytes(self) -> tuple[float, float]:
        """Bytes of the download and of the upload of a dispatch."""
        sends_all = self.scenario.server.transfer == "all"
        usual = Prologue(self.method.download(), self.method.upload())
        return self._bytes(usual, fixed=(sends_all, sends_all))

    @property
    def prologue_bytes(self) -> tuple[float, float] | None:
        """Bytes of the download and of the upload of the method's prologue; None without one."""
        prologue = self.method.prologue()
        sends_all = self.scenario.server.transfer == "all"
        return None if prologue is None else self._bytes(prologue, fixed=(True, sends_all))

    @property
    def first_download_bytes(self) -> float:
        """Bytes of the download of a client's first dispatch, which includes what training does not change."""
        sent = [*self.method.download(), *self.method.first_download()]
        return self._bytes(Prologue(sent, ()), fixed=(True, False))[0]

    @property
    def keeps_lost_work(self) -> bool:
        """Whether clients keep state from work that the server never uses."""
        return any(memory.kept_when_lost for memory in self.method.memories().values())

    @property
    def target_test(self) -> Callable[[Mapping[str, float]], bool] | None:
        """Function that returns whether metrics meet the target of the run; None without a target."""
        target = self.scenario.stop.target
        if not target:
            return None

        def reached(metrics: Mapping[str, float]) -> bool:
            missing = [name for name in target if name not in metrics]
            if missing:
                raise UserError(
                    f"there is no metric '{missing[0]}' to stop at",
                    where="stop.target",
                    hint=f"metrics of this task: {', '.join(sorted(metrics))}"
                    if metrics
                    else "the data set has no test samples, which every metric needs",
                )
            return meets(target, metrics, self.measured.__getitem__)

        return reached

    def _bytes(self, sent: Prologue, fixed: tuple[bool, bool]) -> tuple[float, float]:
        """Bytes of a download and an upload; ``fixed`` says which of them include what training does not change."""
        item, server = ITEM_BYTES[self.scenario.training.dtype], self.scenario.server
        fixed_bytes = self.task.fixed_elements * item
        down, up = (
            sum(vector.size_bytes(item) for vector in vectors) + included * fixed_bytes
            for vectors, included in zip((sent.download, sent.upload), fixed, strict=True)
        )
        return down * server.download_compression, up * server.compression

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full dispatch of a client at its nominal speed and rates."""
        network = self.population.network
        down, up = self.traffic_bytes
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
    scenario, task = loaded.scenario, world.task
    learns = task.learns and not timing_only
    _check_learning(scenario, task, learns)
    method = build_method(scenario, task, world.availability_cycle_s, learns=learns)
    metrics = tuple(part.create() for part in scenario.evaluation.metrics)
    measured = definitions(task, scenario.evaluation, metrics, method.personal) if learns else {}
    target = scenario.stop.target if learns else {}
    raise_all(
        [
            *unmet_requirements(
                method,
                scenario.server,
                task.clients,
                learns=learns,
                client_accuracies=task.has_client_accuracies,
            ),
            *unmet_target(target, measured, ways_to_measure(task) if target else {}),
        ]
    )
    return Assembly(loaded, world, learns, method, metrics, measured, world.population(method))


def _check_learning(scenario: Scenario, task: Task, learns: bool) -> None:
    """Refuse a target without training, a model that is larger than the memory, and hardware that there is not."""
    if not learns:
        if scenario.stop.target:
            raise UserError(
                "a target needs training, but this run only simulates time",
                where="stop.target",
                hint="remove stop.target, or run a task that trains a model without --timing-only",
            )
        return
    model_bytes = (task.layout.size + task.fixed_elements) * ITEM_BYTES[scenario.training.dtype]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if model_bytes > memory_bytes:
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
        _execution(training)


def _execution(training: Training) -> Execution:
    from fedsim.learning.device import Execution

    return Execution.of(training)


def build_method(scenario: Scenario, task: Task, cycle_s: float, *, learns: bool = True) -> Method:
    """The method of a scenario, with the facts of the run that it may use.

    Args:
        scenario: the scenario.
        task: the task.
        cycle_s: length of one availability cycle of the devices in seconds.
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
        execution = _execution(training)
        return execution.dtype, execution.device

    method: Method = scenario.server.method.create(
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
    check_declarations(method)
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
        _execution(training),
        squared_losses=scenario.server.selection.type.squared_losses,
    )
