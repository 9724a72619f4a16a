"""The rules of a run: method, schedule and selection, what they send, and whether they fit together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from fedsim.composition.requirements import refuse, unmet_requirements, unmet_target
from fedsim.composition.world import World
from fedsim.errors import UserError
from fedsim.formatting import format_bytes
from fedsim.learning.device import Execution
from fedsim.learning.evaluation import definitions
from fedsim.learning.metrics import Metric
from fedsim.learning.rates import learning_rate
from fedsim.methods.base import Method, MethodContext, Prologue
from fedsim.metrics import MetricDefinition
from fedsim.scenario.model import Scenario
from fedsim.tasks.base import ITEM_BYTES, Task


@dataclass(frozen=True)
class Rules:
    """How the clients learn.

    Attributes:
        scenario: the scenario.
        execution: where tensors live; None if only time is simulated.
        method: the learning rules.
        metrics: what is measured besides the metrics of every run.
        measured: the metrics that the run may measure, by name; empty if only time is simulated.
    """

    scenario: Scenario
    execution: Execution | None
    method: Method
    metrics: tuple[Metric, ...]
    measured: Mapping[str, MetricDefinition]

    @property
    def traffic_bytes(self) -> tuple[float, float]:
        """Bytes of the download and of the upload of a dispatch."""
        return self._bytes(Prologue(self.method.download(), self.method.upload()))

    @property
    def prologue_bytes(self) -> tuple[float, float] | None:
        """Bytes of the download and of the upload of the method's prologue; None without one."""
        prologue = self.method.prologue()
        return None if prologue is None else self._bytes(prologue)

    @property
    def first_download_bytes(self) -> float:
        """Bytes of the download of a client's first dispatch."""
        sent = [*self.method.download(), *self.method.first_download()]
        return self._bytes(Prologue(sent, ()))[0]

    @property
    def keeps_lost_work(self) -> bool:
        """Whether clients keep something of work that the server never uses."""
        return any(memory.kept_when_lost for memory in self.method.memories().values())

    @property
    def target_test(self) -> Callable[[Mapping[str, float]], bool] | None:
        """Whether metrics meet the target at which the run stops; None without a target."""
        target = self.scenario.stop.target
        if not target:
            return None

        def reached(metrics: Mapping[str, float]) -> bool:
            missing = [name for name in target if name not in metrics]
            if missing:
                raise UserError(
                    f"there is no metric '{missing[0]}' to stop at",
                    where="stop.target",
                    hint=f"this run measured: {', '.join(sorted(metrics)) or 'nothing'}",
                )
            return all(
                bool(self.measured[name].reached(metrics[name], value))
                for name, value in target.items()
            )

        return reached

    def _bytes(self, sent: Prologue) -> tuple[float, float]:
        item, server = ITEM_BYTES[self.scenario.training.dtype], self.scenario.server
        down, up = (sum(vector.elements for vector in way) for way in (sent.download, sent.upload))
        return down * item * server.download_compression, up * item * server.compression


def build_rules(scenario: Scenario, world: World, *, timing_only: bool = False) -> Rules:
    """The rules of a scenario in its world.

    Args:
        scenario: the scenario.
        world: its clients.
        timing_only: leave the learning out.

    Raises:
        UserError: the rules do not fit the task or each other.
    """
    timing = timing_only or not world.task.learns
    if timing and scenario.stop.target:
        raise UserError(
            "a target needs training, but this run simulates time alone",
            where="stop.target",
            hint="leave out the target, or run without --timing-only on a task that learns",
        )
    if not timing:
        _check_model_fits(world.task.layout.size * ITEM_BYTES[scenario.training.dtype])
    execution = None if timing else Execution.of(scenario.training)
    method = build_method(scenario, world.task, execution, world.availability_cycle_s)
    metrics = tuple(part.create() for part in scenario.evaluation.metrics)
    measured = (
        {} if timing else definitions(world.task, scenario.evaluation, metrics, method.personal)
    )
    target = {} if timing else scenario.stop.target
    refuse(
        [
            *unmet_requirements(method, scenario.server, world.task.clients, learns=not timing),
            *unmet_target(target, measured),
        ]
    )
    return Rules(scenario, execution, method, metrics, measured)


def _check_model_fits(model_bytes: int) -> None:
    """Refuse a model that is larger than the memory of this machine.

    Raises:
        UserError: it is.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if model_bytes > memory_bytes:
        raise UserError(
            f"the model takes {format_bytes(model_bytes)}, but this machine has {format_bytes(memory_bytes)} of memory",
            where="task.model",
            hint="make it smaller, or simulate time alone (fedsim run --timing-only)",
        )


def build_method(
    scenario: Scenario, task: Task, execution: Execution | None, cycle_s: float
) -> Method:
    """The method of a scenario, with the facts of the run that it may use.

    Args:
        scenario: the scenario.
        task: what is learned.
        execution: where tensors live; None if only time is simulated.
        cycle_s: length of one availability cycle of the devices in seconds.

    Raises:
        UserError: the method cannot work on such a model.
    """
    training = scenario.training
    method: Method = scenario.server.method.create(
        MethodContext(
            layout=task.layout,
            clients=task.clients,
            samples=task.samples,
            learning_rate=learning_rate(training),
            local_steps=task.local_steps(training),
            dtype=execution.dtype if execution else torch.float32,
            device=execution.device if execution else torch.device("cpu"),
            seed=scenario.seed,
            availability_cycle_s=cycle_s,
            optimizer=training.optimizer.create(),
        )
    )
    return method
