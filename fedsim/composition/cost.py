"""What a run will cost: its timeline without training, and the wall time of a few updates that are trained.

The first pass simulates time alone, for a second or so; if the run is not over by then, its counts are extrapolated by
the share of its limits. A plane that counts takes the place of the learner, so that the pass also works for schedules
that ask for losses: it answers with ones. The second pass trains the beginning with the run's own learner until the
time per update is known. Both have parts of their own, so that the run itself is the same with and without them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsim.composition.assembled import Assembly
from fedsim.composition.assembly import assemble, build_server, build_station
from fedsim.composition.prospects import impossible
from fedsim.composition.shared import Shared
from fedsim.errors import raise_all
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import share_done
from fedsim.scenario.training import DistributedWorkers
from fedsim.units import NS_PER_S
from fedsim.vocabulary.timeline import Aggregate, Evaluate, Instruction, Train

if TYPE_CHECKING:
    from fedsim.learning.learner import Learner
    from fedsim.scenario.model import Scenario
    from fedsim.simulation.simulation import Simulation

Floats = npt.NDArray[np.float64]

PASS_S = 1.0
"""Wall seconds of the pass without training."""
_WINDOW_S = 0.5
"""Wall seconds of training after which the time per update is known well enough."""
_LONG_S = 5.0
"""The same of the first version, which takes longer than the others."""
_MOST_TOGETHER = 256
"""Updates that a learner trains together at most."""
_MUCH_FLOPS, _MANY_STEPS = 5e11, 100_000
"""Training with fewer operations and steps is a matter of seconds."""


@dataclass(frozen=True)
class Cost:
    """What a run, or several, will cost at most: a target may end a run earlier.

    Attributes:
        rounds, versions, dispatches: as in the summary of a run.
        updates: updates to train.
        steps: local steps of these.
        wall_s: wall seconds; None if training was not measured.
        share: the share of the run that was simulated; the numbers are extrapolated if it is less than 1.
    """

    rounds: float
    versions: float
    dispatches: float
    updates: float
    steps: float
    wall_s: float | None
    share: float


def of_runs(costs: Sequence[Cost], runs: int) -> Cost:
    """The cost of ``runs`` runs that cost as much as these on average, one after another."""
    walls = [cost.wall_s for cost in costs]
    known = [wall_s for wall_s in walls if wall_s is not None]
    counts = ("rounds", "versions", "dispatches", "updates", "steps")
    factor = runs / len(costs)
    return Cost(
        **{name: factor * sum(getattr(cost, name) for cost in costs) for name in counts},
        wall_s=factor * sum(known) if len(known) == len(walls) else None,
        share=min(cost.share for cost in costs),
    )


def estimate(
    loaded: LoadedScenario,
    shared: Shared | None = None,
    *,
    timing_only: bool = False,
    threads: int | None = None,
    runs: int = 1,
    measures: bool | None = None,
) -> Cost:
    """The cost of a run.

    Args:
        loaded, shared, timing_only: as for :func:`fedsim.composition.assembly.check`.
        threads: worker threads of local training, if the scenario gives none.
        runs: the number of such runs that will be made.
        measures: whether training is measured; by default, if that of all runs may take more than seconds. It never is
            if it takes place in other processes.

    Raises:
        UserError: the run cannot succeed.
    """
    assembly = assemble(loaded, shared, timing_only=timing_only)
    raise_all(impossible(assembly.prospects))  # Otherwise the pass might never end.
    scenario, counting = assembly.scenario, _Counting(assembly)
    # A clock that stands still for long is an error of the run.
    watch = _Watch(lambda: _share(server, scenario) * bool(server.now_ns))
    server = build_server(assembly, counting if assembly.learns else None, watch)
    began = watch.began = time.perf_counter()
    try:
        server.run()
        share = 1.0
    except _Enough:
        share = _share(server, scenario)
    simulating_s = (time.perf_counter() - began) / share
    counts = (server.round, server.version, server.dispatched, counting.updates, counting.steps)
    rounds, versions, dispatches, updates, steps = (count / share for count in counts)
    if measures is None:
        flops = 6 * assembly.task.layout.size * scenario.training.batch_size * steps
        measures = runs * max(flops / _MUCH_FLOPS, steps / _MANY_STEPS) >= 1
    wall_s: float | None = simulating_s
    if updates:
        elsewhere = isinstance(scenario.training.workers, DistributedWorkers)
        measures = measures and not elsewhere
        wall_s = simulating_s + updates * _update_s(assembly, threads) if measures else None
    return Cost(rounds, versions, dispatches, updates, steps, wall_s, share)


def _share(server: Simulation, scenario: Scenario) -> float:
    now_s, reached = server.now_ns / NS_PER_S, {"rounds": server.round, "arrivals": server.arrived}
    stop = scenario.stop.model_dump()
    return share_done(stop, simulated_s=now_s, dispatches=server.dispatched, **reached)


def _update_s(assembly: Assembly, threads: int | None) -> float:
    """Wall seconds per trained update, with the evaluations between them."""
    from fedsim.learning.learner import Learner

    training = assembly.scenario.training
    if training.threads is None:
        training = training.model_copy(update={"threads": threads})
    station = build_station(assembly.scenario, assembly.task, assembly.method, training)
    learner = Learner(station, assembly.scenario.evaluation, metrics=list(assembly.metrics))
    measuring = _Measuring(learner)
    population = assembly.world.population(assembly.method)
    fresh = dataclasses.replace(assembly, population=population)
    try:
        with contextlib.suppress(_Enough):
            build_server(fresh, measuring, _Watch(lambda: 0.0)).run()
            measuring.measure()
    finally:
        learner.stop()
    return measuring.update_s


class _Enough(Exception):
    """Ends a pass before its run ends."""


class _Watch:
    """A recorder that keeps nothing, and ends the pass after :data:`PASS_S`, but not before a part of it is known."""

    def __init__(self, share: Callable[[], float]) -> None:
        self.began = math.inf
        self._share = share

    def append_dispatch(self, _: object) -> None:
        if time.perf_counter() - self.began > PASS_S and self._share():
            raise _Enough

    append_aggregation = append_edge_dispatch = append_dispatch


class _Counting:
    """A learning plane that counts what a learner would have to train."""

    def __init__(self, assembly: Assembly) -> None:
        self.updates = self.steps = 0
        self._metrics = dict.fromkeys(assembly.measured, math.nan)
        self._clients = assembly.task.clients

    def hold(self, model: int, edge: int = -1) -> None:
        pass

    drop = hold

    def submit(self, instruction: Instruction) -> None:
        if isinstance(instruction, Train):
            self.updates += 1
            self.steps += instruction.steps

    def evaluate(self, _: Evaluate) -> Mapping[str, float]:
        return self._metrics  # Which meet no target.

    def training_losses(self, dispatch_ids: Sequence[int]) -> Floats:
        return np.ones(len(dispatch_ids))

    def client_accuracies(self, _: int) -> Floats:
        return np.ones(self._clients)


class _Measuring:
    """The beginning of a run with its learner, until a window of training is long enough to know the time per update.

    The first version warms the learner up; the windows after it grow until one is long enough.
    """

    def __init__(self, learner: Learner) -> None:
        self.update_s = math.nan
        self._learner = learner
        self._updates, self._most = 0, 1
        self._began = time.perf_counter()
        self.hold, self.drop, self.evaluate = learner.hold, learner.drop, learner.evaluate
        self.training_losses = learner.training_losses
        self.client_accuracies = learner.client_accuracies

    def submit(self, instruction: Instruction) -> None:
        self._learner.submit(instruction)
        self._updates += isinstance(instruction, Train)
        if isinstance(instruction, Aggregate) and self._updates >= self._most:
            self.measure()

    def measure(self) -> None:
        """Train what is pending, and end the pass if it took long enough."""
        self._learner.flush()
        now = time.perf_counter()
        window_s = now - self._began
        if self._updates:
            self.update_s = window_s / self._updates
            is_warm = self._most > 1
            if window_s >= (_WINDOW_S if is_warm else _LONG_S) or self._most >= _MOST_TOGETHER:
                raise _Enough
            enough = int(_WINDOW_S / self.update_s)
            self._most = min(_MOST_TOGETHER, max(2 * self._most, enough))
        self._updates, self._began = 0, now
