"""The server of the simulation, and the story of a round, or of a version.

The methods of :class:`Server` are in the order of what happens:

1. The schedule asks the selection for clients, and hands them work.
2. A client that is online takes the work, and lives through it (:mod:`fedsim.simulation.life`).
3. The dispatch ends: its update arrives, its client is gone, or the schedule calls it off.
4. The schedule throws updates away, or makes the next version of those it has, and closes the round.
5. The version is evaluated, if it is time to.

*When* a step happens is up to the schedule (:mod:`fedsim.scheduling.schedules`), and *whom* it concerns to the
selection (:mod:`fedsim.scheduling.selections`). Both act through the server, which carries out what they decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fedsim.errors import UserError
from fedsim.global_generators import watched
from fedsim.network.shared import SharedNetwork
from fedsim.outcomes import Outcome
from fedsim.randomness import Purpose
from fedsim.scheduling.base import Dispatch, Selection, ServerPort, Timer
from fedsim.simulation.contended import ContendedDispatches
from fedsim.simulation.energy import EnergyUse
from fedsim.simulation.engine import Engine
from fedsim.simulation.evaluations import Evaluations, EvaluationTimes
from fedsim.simulation.facts import Clients, Facts, Rules
from fedsim.simulation.handouts import HandOuts
from fedsim.simulation.life import Plan
from fedsim.simulation.planned import Dispatches, PlannedDispatches
from fedsim.simulation.updates import Recorder, Updates
from fedsim.simulation.workload import Workloads
from fedsim.timeline import LearningPlane


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends, whichever comes first; see the scenario's ``stop``.

    Attributes:
        until_ns: simulated time.
        rounds: rounds closed.
        dispatches: dispatches handed out.
        arrivals: updates received.
    """

    until_ns: int | None = None
    rounds: int | None = None
    dispatches: int | None = None
    arrivals: int | None = None


class Server(Facts, ServerPort):
    """The server of one run; implements :class:`fedsim.scheduling.base.ServerPort`.

    Args:
        clients: the clients.
        workloads: the work of a dispatch, with its sizes and failures.
        rules: schedule, selection, and how the server works.
        limits: when to stop.
        evaluations: when to evaluate.
        plane: executes the timeline; None for timing-only runs.
        recorder: takes the rows.
        seed: the scenario's seed.
        on_progress: called after every server update.

    Attributes:
        version: server updates so far.
        round: rounds closed so far.
        dispatched: dispatches handed out so far.
        arrived: updates received so far.

    Raises:
        UserError: schedule or selection refuse their parameters.
    """

    version: int = 0
    round: int = 0

    def __init__(
        self,
        clients: Clients,
        workloads: Workloads,
        rules: Rules,
        limits: Limits,
        evaluations: EvaluationTimes,
        plane: LearningPlane | None,
        recorder: Recorder,
        *,
        seed: int,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(clients, rules, seed)
        population = clients.population
        self.dispatched = self.arrived = 0
        self._population = population
        self._work = clients.work
        steps = clients.work.steps
        self._same_steps = int(steps[0]) if steps.min() == steps.max() else None
        self._sequences = [0] * population.clients
        self._limits = limits
        self._last_dispatch = -1 if limits.dispatches is None else limits.dispatches
        self._last_arrival = -1 if limits.arrivals is None else limits.arrivals
        self._plane = plane
        self._on_progress = on_progress
        self._engine = engine = Engine()
        self._clock = engine.clock
        self._energy = EnergyUse(population)
        self._has_batteries = population.batteries is not None
        self._updates = Updates(rules, self._energy, plane, recorder)
        self._evaluations = Evaluations(evaluations, engine, plane)
        self._handouts = HandOuts(
            engine,
            population.availability,
            self.stream(Purpose.SELECTION),
            self._hand_out,
            lambda: self._selection.next_change_ns(),
            is_patient=limits.until_ns is not None,
        )
        network = population.network
        self._dispatches: Dispatches = (
            ContendedDispatches(engine, workloads, network, self._on_end)
            if isinstance(network, SharedNetwork)
            else PlannedDispatches(engine, workloads, self._on_end)
        )
        self._selection = watched(
            rules.selection(self),
            *("draw", "cohort"),
            hint="draw from self.generator(), which is different at every call and the same in every run",
        )
        # Asked once, because these are called for every dispatch and most selections do nothing then.
        kind = type(self._selection)
        self._selection_counts = kind.multiplicity is not Selection.multiplicity
        self._selection_listens = kind.on_arrival is not Selection.on_arrival
        self._schedule = rules.schedule(self, self._selection)

    def run(self) -> None:
        """Simulate from time 0 until a limit is met or nothing can happen any more."""
        self._evaluations.start()
        self._schedule.start()
        self._engine.run(self._limits.until_ns)
        now = self._clock.now
        for dispatch, plan in [*self._dispatches.stop_all(), *self._updates.held.items()]:
            self._updates.close(dispatch, plan, Outcome.UNFINISHED, now)
        self._evaluations.finish()

    # -- Step 1. The schedule asks the selection for clients, and hands them work. ----------------------------------

    @override
    def is_online(self, client: int) -> bool:
        return self._population.availability.is_online(client, self._clock.now)

    @override
    def is_busy(self, client: int) -> bool:
        return self._handouts.is_engaged(client)

    @override
    def online_clients(self) -> npt.NDArray[np.int64]:
        return self._handouts.online_clients()

    @override
    def sample_online(self, count: int) -> list[int]:
        return self._handouts.sample_online(count)

    @override
    def call_when_available(self, callback: Callable[[], None]) -> None:
        self._handouts.call_when_available(callback)

    @override
    def dispatch(
        self,
        client: int,
        *,
        steps: int | Callable[[], int] | None = None,
        deadline_ns: int | None = None,
        on_dispatched: Callable[[Dispatch], None] | None = None,
    ) -> Timer:
        return self._handouts.hand_out(client, steps, deadline_ns, on_dispatched)

    # -- Step 2. A client that is online takes the work, and lives through it (fedsim.simulation.life). -------------

    def _hand_out(
        self,
        client: int,
        now: int,
        online_until_ns: int,
        steps: int | Callable[[], int] | None,
        deadline_ns: int | None,
        on_dispatched: Callable[[Dispatch], None] | None,
    ) -> None:
        dispatch_id = self.dispatched
        if dispatch_id == self._last_dispatch:
            return
        sequence = self._sequences[client]
        self._sequences[client] = sequence + 1
        if steps is None:
            steps = self._same_steps
            if steps is None:
                steps = int(self._work.steps[client])
            if self._work.time_budget_ns is not None:
                step_ns = self._population.compute.step_ns(client, sequence, now)
                steps = max(1, self._work.time_budget_ns // step_ns) if step_ns else 1
        elif callable(steps):
            steps = steps()
        dispatch = Dispatch(dispatch_id, client, sequence, self.version, self.round, steps, now)
        if self._selection_counts:
            dispatch.multiplicity = self._selection.multiplicity(client)
        self.dispatched = dispatch_id + 1
        if self._has_batteries:
            self._energy.begin(client, now)
        if self._plane is not None:
            self._plane.hold(self.version)
        if on_dispatched is not None:
            on_dispatched(dispatch)
        self._dispatches.begin(dispatch, deadline_ns, online_until_ns)
        if self.dispatched == self._last_dispatch:
            self._engine.call_at(now, self._engine.stop)

    # -- Step 3. The dispatch ends: its update arrives, its client is gone, or the schedule calls it off. -----------

    def _on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        client = dispatch.client
        if self._has_batteries:
            self._release(client, plan)
        else:
            self._handouts.release(client)
        if plan.arrives:
            self.arrived += 1
            dispatch.arrived_ns = plan.end_ns
            dispatch.steps_done = plan.steps_done
            dispatch.staleness = self.version - dispatch.version
            self._updates.held[dispatch] = plan
            if self._selection_listens:
                self._selection.on_arrival(dispatch)
            self._schedule.on_arrival(dispatch)
            if self.arrived == self._last_arrival:
                self._engine.stop()
        else:
            self._updates.close(dispatch, plan, Outcome.DROPPED, self._clock.now)
            detection_ns = self._rules.failure_detection_ns
            if detection_ns is not None:
                self._engine.call_at(
                    self._clock.now + detection_ns, lambda: self._on_failure(dispatch)
                )
        self._handouts.look_again(client)

    def _on_failure(self, dispatch: Dispatch) -> None:
        self._selection.on_failure(dispatch)
        self._schedule.on_failure(dispatch)

    @override
    def cut(self, dispatch: Dispatch) -> None:
        if not dispatch.open:
            return
        plan = self._dispatches.stop(dispatch)
        self._release(dispatch.client, plan)
        self._updates.close(dispatch, plan, Outcome.CUT, self._clock.now)
        self._handouts.look_again(dispatch.client)

    def _release(self, client: int, plan: Plan) -> None:
        """The client is done working; with a low battery it takes no work until it has recharged."""
        now = self._clock.now
        ready_ns = self._energy.end(client, now, plan)
        if ready_ns > now:
            self._engine.call_at(ready_ns, lambda: self._on_recharged(client))
        else:
            self._handouts.release(client)

    def _on_recharged(self, client: int) -> None:
        self._handouts.release(client)
        self._handouts.look_again(client)

    # -- Step 4. The schedule throws updates away, or makes the next version, and closes the round. ------------------

    @override
    def discard(self, dispatch: Dispatch, *, late: bool = False) -> None:
        outcome = Outcome.LATE if late else Outcome.DISCARDED
        self._updates.close(dispatch, self._updates.held.pop(dispatch), outcome, self._clock.now)

    @override
    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        *,
        groups: Sequence[int] | None = None,
        attributes: Mapping[str, float] | None = None,
        closes_round: bool = False,
    ) -> int:
        self.version = version = self.version + 1
        now = self._clock.now
        self._updates.aggregate(
            dispatches, groups, attributes, version=version, round_=self.round, now_ns=now
        )
        if self._rules.aggregation_ns:
            self._handouts.busy_until_ns = now + self._rules.aggregation_ns
        if closes_round:
            self.close_round()
        # Step 5. The version is evaluated, if it is time to.
        self._evaluations.on_version(version, self.round, dispatches)
        if self._on_progress is not None:
            self._on_progress()
        return version

    @override
    def close_round(self) -> None:
        self.round += 1
        self._evaluations.on_round(self.round)
        if self._limits.rounds is not None and self.round >= self._limits.rounds:
            self._engine.stop()

    # -- what else a schedule may know and do -------------------------------------------------------------------------

    @property
    @override
    def now_ns(self) -> int:
        return self._clock.now

    @property
    @override
    def busy_until_ns(self) -> int:
        return self._handouts.busy_until_ns

    @override
    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        return self._engine.call_at(time_ns, callback)

    @override
    def training_losses(self, dispatches: Sequence[Dispatch]) -> npt.NDArray[np.float64]:
        if self._plane is None:
            raise UserError(
                "a selection by training loss needs training",
                where="server.selection",
                hint="leave out --timing-only, or choose another selection",
            )
        return self._plane.training_losses([dispatch.dispatch_id for dispatch in dispatches])
