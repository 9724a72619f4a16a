"""When the model is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedsim.errors import UserError
from fedsim.scenario.model import MOST_EVALUATIONS
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.engine import EVALUATION_ORDER, Engine
from fedsim.units import NS_PER_S
from fedsim.vocabulary.formatting import format_count, format_duration
from fedsim.vocabulary.timeline import Evaluate, LearningPlane

if TYPE_CHECKING:
    from fedsim.scheduling.base import ServerPort


@dataclass
class Evaluations:
    """Evaluates at the given times (the scenario's ``evaluation``), and stops the run at its target.

    Attributes:
        every_ns: time between two evaluations.
        every_versions: versions between two evaluations.
        every_steps: aggregated local steps between two evaluations, if neither a time nor a number of versions is
            given.
        at_start: whether the initial model is evaluated.
        reached: whether metrics meet the target that ends the run; None without a target.
    """

    every_ns: int | None = None
    every_versions: int | None = None
    every_steps: int | None = None
    at_start: bool = False
    reached: Callable[[Mapping[str, float]], bool] | None = None
    _evaluated_version: int = field(default=-1, init=False)
    _steps_since: int = field(default=0, init=False)
    _timed: int = field(default=0, init=False)

    def start(self, engine: Engine, server: ServerPort, plane: LearningPlane | None) -> None:
        """Evaluate the initial model of a server if required, and schedule the first timed evaluation; timing-only runs
        have no ``plane``."""
        self._engine, self._server, self._plane = engine, server, plane
        if self.at_start:
            self._evaluate()
        if self.every_ns is not None:
            engine.call_at(self.every_ns, self._evaluate_on_time, EVALUATION_ORDER)

    def on_version(self, dispatches: Sequence[Dispatch]) -> None:
        """Evaluate the version just created from the updates of these dispatches, if an evaluation is due."""
        if self.every_versions is not None and self._server.version % self.every_versions == 0:
            self._evaluate()
        elif self.every_steps is not None:
            self._steps_since += sum(dispatch.steps_done for dispatch in dispatches)
            if self._steps_since >= self.every_steps:
                self._evaluate()

    def finish(self) -> None:
        """Evaluate the final model, unless it has been evaluated."""
        if self._evaluated_version != self._server.version:
            self._evaluate()

    def _evaluate_on_time(self) -> None:
        every_ns = self.every_ns
        assert every_ns is not None
        now = self._engine.now_ns
        if self._timed == MOST_EVALUATIONS:
            # If stop.simulated_time is given, the scenario is refused before it runs.
            raise UserError(
                f"{format_duration(every_ns / NS_PER_S)} between evaluations reached the limit of "
                f"{format_count(MOST_EVALUATIONS)} per run after {format_duration(now / NS_PER_S)} of simulated time",
                where="evaluation.every",
                hint="evaluate less often, or give stop.simulated_time",
            )
        self._timed += 1
        self._evaluate()
        if not self._engine.idle:
            self._engine.call_at(now + every_ns, self._evaluate_on_time, EVALUATION_ORDER)

    def _evaluate(self) -> None:
        self._evaluated_version = version = self._server.version
        self._steps_since = 0
        if self._plane is None:
            return
        instruction = Evaluate(version, self._engine.now_ns / NS_PER_S, self._server.round)
        self._plane.submit(instruction)
        if self.reached is not None and self.reached(self._plane.evaluate(instruction)):
            self._engine.stop()
