"""The rules of a run: method, schedule and selection, the bytes they transfer, and whether they are compatible."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from fedsim.composition.requirements import unmet_requirements, unmet_target
from fedsim.composition.world import World
from fedsim.errors import UserError, raise_all
from fedsim.learning.metrics import Metric, definitions, ways_to_measure
from fedsim.learning.rates import learning_rate
from fedsim.methods.base import Method, MethodContext, Prologue
from fedsim.methods.declarations import check_declarations
from fedsim.scenario.model import Scenario
from fedsim.scenario.training import ThreadWorkers, Training
from fedsim.tasks.base import ITEM_BYTES, Task
from fedsim.vocabulary.formatting import format_bytes
from fedsim.vocabulary.metrics import MetricDefinition, meets

if TYPE_CHECKING:
    import torch

    from fedsim.learning.device import Execution
    from fedsim.learning.workers import Station


@dataclass(frozen=True)
class Rules:
    """The rules of a run.

    Attributes:
        scenario: the scenario.
        learns: whether a model is trained; otherwise only time is simulated.
        method: the learning rules.
        metrics: metrics besides those of every run.
        measured: the metrics that the run may measure, by name; empty if only time is simulated.
        fixed_bytes: bytes of the tensors of the model that training does not change.
    """

    scenario: Scenario
    learns: bool
    method: Method
    metrics: tuple[Metric, ...]
    measured: Mapping[str, MetricDefinition]
    fixed_bytes: int = 0

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
        down, up = (
            sum(vector.size_bytes(item) for vector in vectors) + included * self.fixed_bytes
            for vectors, included in zip((sent.download, sent.upload), fixed, strict=True)
        )
        return down * server.download_compression, up * server.compression


def build_rules(scenario: Scenario, world: World, *, timing_only: bool = False) -> Rules:
    """The rules of a scenario in its world.

    Args:
        scenario: the scenario.
        world: its clients.
        timing_only: simulate time only.

    Raises:
        UserError: the rules are not compatible with the task or each other.
    """
    timing = timing_only or not world.task.learns
    if timing and scenario.stop.target:
        raise UserError(
            "a target needs training, but this run only simulates time",
            where="stop.target",
            hint="remove stop.target, or run a task that trains a model without --timing-only",
        )
    item, fixed = ITEM_BYTES[scenario.training.dtype], world.task.fixed_elements
    if not timing:
        _check_model_fits((world.task.layout.size + fixed) * item)
    if not timing and _asks_for_hardware(scenario.training):
        _execution(scenario.training)
    method = build_method(scenario, world.task, world.availability_cycle_s, learns=not timing)
    metrics = tuple(part.create() for part in scenario.evaluation.metrics)
    measured = (
        {} if timing else definitions(world.task, scenario.evaluation, metrics, method.personal)
    )
    target = {} if timing else scenario.stop.target
    raise_all(
        [
            *unmet_requirements(
                method,
                scenario.server,
                world.task.clients,
                learns=not timing,
                client_accuracies=world.task.has_client_accuracies,
            ),
            *unmet_target(target, measured, ways_to_measure(world.task) if target else {}),
        ]
    )
    return Rules(scenario, not timing, method, metrics, measured, fixed * item)


def _check_model_fits(model_bytes: int) -> None:
    """Refuse a model that is larger than the memory of this machine.

    Raises:
        UserError: the model is larger.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if model_bytes > memory_bytes:
        raise UserError(
            f"the model takes {format_bytes(model_bytes)}, but this machine has {format_bytes(memory_bytes)} of memory",
            where="task.model",
            hint="make it smaller, or simulate only time (fedsim run --timing-only)",
        )


def _asks_for_hardware(training: Training) -> bool:
    """Whether the training section names hardware or software that this machine may lack."""
    return (
        training.device == "cuda"
        or training.autocast != "none"
        or not isinstance(training.workers, ThreadWorkers)
    )


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
