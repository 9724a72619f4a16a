"""The server of the simulation, and the story of a round, or of a version.

The methods of :class:`Server` are in the order of what happens:

1. The schedule draws clients from the selection and dispatches work to them.
2. A client that is online starts the work (:mod:`fedsim.simulation.life`).
3. The dispatch ends: its update arrives, its client fails, or the schedule cuts it.
4. The schedule discards updates, or aggregates them into the next version, and closes the round.
5. The version is evaluated if an evaluation is due.

The schedule (:mod:`fedsim.scheduling.schedules`) decides *when* a step happens, and the selection
(:mod:`fedsim.scheduling.selections`) *which clients* it concerns. Both act through the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fedsim.errors import UserError
from fedsim.network.shared import SharedNetwork
from fedsim.randomness import Purpose
from fedsim.scheduling.base import Dispatch, Selection, ServerPort, Timer
from fedsim.simulation.contended import ContendedDispatches
from fedsim.simulation.contract import check_draws
from fedsim.simulation.energy import EnergyUse
from fedsim.simulation.engine import LEAVING_ORDER, Engine
from fedsim.simulation.evaluations import Evaluations, EvaluationTimes
from fedsim.simulation.facts import Clients, Facts, Rules
from fedsim.simulation.handouts import HandOuts
from fedsim.simulation.life import Plan
from fedsim.simulation.plan import Dispatches, PlannedDispatches
from fedsim.simulation.stall import ROUNDS_AT_ONCE, stalled, stalled_after, standstill
from fedsim.simulation.updates import Recorder, Updates
from fedsim.simulation.workload import Workloads
from fedsim.vocabulary.formatting import format_count
from fedsim.vocabulary.outcomes import Ending, Outcome
from fedsim.vocabulary.timeline import LearningPlane

# Looking up a member of an enumeration costs several times as much as comparing with it.
_ARRIVED = Ending.ARRIVED


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends: at the first of these limits; see the scenario's ``stop``.

    Attributes:
        until_ns: simulated time.
        rounds: rounds closed.
        dispatches: dispatches handed out.
        arrivals: updates received.
        stalled_after: dispatches without an aggregated update, after which the run fails; None for the default.
    """

    until_ns: int | None = None
    rounds: int | None = None
    dispatches: int | None = None
    arrivals: int | None = None
    stalled_after: int | None = None


class Server(Facts, ServerPort):
    """The server of one run.

    Args:
        clients, workloads, rules, limits, evaluations, seed: the scenario.
        plane: executes the timeline; None for timing-only runs.
        recorder: takes the rows.
        on_progress: called after every server update.

    Attributes:
        dispatched: dispatches handed out so far.
        arrived: updates received so far.
        empty_draws: how often a user's selection has drawn nobody although clients were available.
        ran_out: whether the run ended before its limits, because no event was left.

    Raises:
        UserError: schedule or selection refuse their parameters.
    """

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
        self.version = self.round = self.dispatched = self.arrived = self.empty_draws = 0
        self._population = population
        self._rules = rules
        self._time_budget_ns = clients.work.time_budget_ns
        steps = clients.work.steps
        self._same_steps = int(steps[0]) if steps.min() == steps.max() else None
        self._sequences = [0] * population.clients
        self._continues = workloads.continues
        # Clients that have something from which a download can differ; None if downloads do not depend on it.
        self._known: set[int] | None = set() if workloads.differs else None
        # Version of, and end of the local steps in, each client's last dispatch whose steps it has done.
        self._finished: dict[int, tuple[int, int]] = {}
        self._limits = limits
        self._last_dispatch = -1 if limits.dispatches is None else limits.dispatches
        self._last_arrival = -1 if limits.arrivals is None else limits.arrivals
        self._failures = workloads.usual[0].failures
        self._stalled_after = stalled_after(limits.stalled_after, population.clients)
        # A clock that stands still for so many dispatches will not move again.
        self._standstill_after = stalled_after(None, population.clients)
        self._clock_check, self._clock_ns = self._standstill_after, 0
        self._stall_check = min(self._stalled_after, self._clock_check)
        self._round_check, self._round_ns = ROUNDS_AT_ONCE, 0
        self._dispatched_at_aggregation = 0
        # Dispatches that were dropped, which the server has not noticed.
        self._undetected: set[int] = set()
        # The last round has closed, and the run ends after the other ends of dispatches of this instant.
        self._is_over = False
        self.ran_out = False
        self._plane = plane
        self._on_progress = on_progress
        self._engine = engine = Engine()
        self._clock = engine.clock
        self._energy = EnergyUse(population.power)
        self._batteries = population.batteries
        self._updates = Updates(
            recorder,
            plane,
            trains_lost_work=rules.trains_lost_work,
            has_prologue=rules.has_prologue,
        )
        self._evaluations = Evaluations(evaluations, engine, plane)
        self._handouts = HandOuts(
            engine,
            population.availability,
            self.stream(Purpose.SELECTION),
            self._hand_out,
            lambda: self._selection.next_change_ns(),
            is_patient=limits.until_ns is not None,
            prepare=self._prepare if population.compute.draws else None,
        )
        network = population.network
        self._dispatches: Dispatches = (
            ContendedDispatches(engine, workloads.of, network, self._on_end)
            if isinstance(network, SharedNetwork)
            else PlannedDispatches(engine, workloads, self._on_end)
        )
        self._selection = rules.selection(self)
        check_draws(self._selection, self.clients, self._count_empty_draw)
        # Checked once, because these methods are called for every dispatch and do nothing in most selections.
        kind = type(self._selection)
        self._selection_counts = kind.multiplicity is not Selection.multiplicity
        self._selection_listens = kind.on_arrival is not Selection.on_arrival
        self._schedule = rules.schedule(self, self._selection)

    def run(self) -> None:
        """Simulate from time 0 until a limit is met or no event is left."""
        self._evaluations.start()
        self._schedule.start()
        self._engine.run(self._limits.until_ns)
        self.ran_out = not self._engine.stopped
        now = self._clock.now
        for dispatch, plan in [*self._dispatches.stop_all(), *self._updates.held.items()]:
            self._updates.close(dispatch, plan, Outcome.UNFINISHED, now)
        self._evaluations.finish()

    def _count_empty_draw(self) -> None:
        self.empty_draws += 1

    # -- Step 1. The schedule draws clients from the selection and dispatches work to them. -------------------------

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

    # -- Step 2. A client that is online starts the work (fedsim.simulation.life). ----------------------------------

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
        if dispatch_id == self._stall_check:
            self._check_progress()
        sequence = self._sequences[client]
        self._sequences[client] = sequence + 1
        if steps is None:
            steps = self._same_steps
            if steps is None:
                steps = int(self.default_steps[client])
            if self._time_budget_ns is not None:
                step_ns = self._population.compute.step_ns(client, sequence, now)
                steps = max(1, self._time_budget_ns // step_ns) if step_ns else 1
        elif callable(steps):
            steps = int(steps())
        dispatch = Dispatch(dispatch_id, client, sequence, self.version, self.round, steps, now)
        if self._selection_counts:
            dispatch.multiplicity = self._selection.multiplicity(client)
        self.dispatched = dispatch_id + 1
        if self._known is not None:
            dispatch.in_full = sequence > 0 and client not in self._known
        if self._continues:
            version, free_ns = self._finished.get(client, (-1, -1))
            dispatch.in_full |= version != self.version - 1
            online_until = self._population.availability.online_until
            if not dispatch.in_full and online_until(client, free_ns) >= now:
                dispatch.free_ns = free_ns
        if self._batteries is not None:
            self._batteries.begin(client, now)
        if self._plane is not None:
            self._plane.hold(self.version)
        if on_dispatched is not None:
            on_dispatched(dispatch)
        self._dispatches.begin(dispatch, deadline_ns, online_until_ns)
        if self.dispatched == self._last_dispatch:
            self._engine.call_at(now, self._engine.stop)

    def _prepare(self, clients: npt.NDArray[np.int64]) -> None:
        """Draw the random numbers of the next dispatches of some clients at once."""
        sequences = [self._sequences[client] for client in clients.tolist()]
        self._population.compute.prepare(clients, np.array(sequences, dtype=np.int64))

    def _check_progress(self) -> None:
        """Stop a run in which too many dispatches were handed out since an update was aggregated or the clock moved."""
        if self.dispatched == self._clock_check:
            if self._engine.now_ns == self._clock_ns:
                raise standstill(
                    f"{format_count(self._standstill_after)} dispatches", self._clock_ns
                )
            self._clock_ns = self._engine.now_ns
            self._clock_check = self.dispatched + self._standstill_after
        count = self.dispatched - self._dispatched_at_aggregation
        if count >= self._stalled_after:
            raise stalled(
                count,
                self._updates.lost,
                len(self._updates.held),
                self._failures,
                has_batteries=self._batteries is not None,
            )
        due = self._dispatched_at_aggregation + self._stalled_after
        self._stall_check = min(due, self._clock_check)

    # -- Step 3. The dispatch ends: its update arrives, its client fails, or the schedule cuts it. ------------------

    def _on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        client = dispatch.client
        if self._continues:
            self._note_finished(dispatch, plan)
        if self._batteries is None:
            self._handouts.release(client)
        else:
            self._release(client, plan)
        if self._is_over:
            self._close_after_the_last_round(dispatch, plan)
            return
        if plan.ending is _ARRIVED:
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
            self._undetected.add(dispatch.dispatch_id)
            detection_ns = self._rules.failure_detection_ns
            if detection_ns is not None:
                self._engine.call_at(
                    self._clock.now + detection_ns, lambda: self._on_failure(dispatch)
                )
        self._handouts.look_again(client)

    def _note_finished(self, dispatch: Dispatch, plan: Plan) -> None:
        if plan.computed_ns >= 0:
            self._finished[dispatch.client] = dispatch.version, plan.computed_ns

    def _close_after_the_last_round(self, dispatch: Dispatch, plan: Plan) -> None:
        """Record a dispatch that ends at the instant at which the last round has closed: its update is late."""
        outcome = Outcome.DROPPED
        if plan.ending is _ARRIVED:
            self.arrived += 1
            dispatch.staleness = self.version - dispatch.version
            outcome = Outcome.LATE
        self._updates.close(dispatch, plan, outcome, self._clock.now)

    def _on_failure(self, dispatch: Dispatch) -> None:
        if dispatch.dispatch_id not in self._undetected:
            return  # the schedule has stopped it in the meantime
        self._undetected.remove(dispatch.dispatch_id)
        self._selection.on_failure(dispatch)
        self._schedule.on_failure(dispatch)

    @override
    def cut(self, dispatch: Dispatch) -> None:
        if not dispatch.open:
            return
        plan = self._dispatches.stop(dispatch)
        self._note_finished(dispatch, plan)
        self._release(dispatch.client, plan)
        self._updates.close(dispatch, plan, Outcome.CUT, self._clock.now)
        self._handouts.look_again(dispatch.client)

    @override
    def cancel(self, dispatch: Dispatch, on_stopped: Callable[[], None]) -> None:
        def stop() -> None:
            if dispatch.open and dispatch.arrived_ns < 0:
                self.cut(dispatch)
                on_stopped()
            elif dispatch.dispatch_id in self._undetected:
                self._undetected.remove(dispatch.dispatch_id)
                on_stopped()

        latency_ns = self._population.network.latency_ns(dispatch.client)
        self._engine.call_at(self._clock.now + latency_ns, stop)

    def _release(self, client: int, plan: Plan) -> None:
        """Mark a client as done with its work; if its battery is low, only once it has recharged."""
        if self._batteries is not None:
            now = self._clock.now
            ready_ns = self._batteries.end(client, now, self._energy.joules(client, plan))
            if ready_ns > now:
                self._engine.call_at(ready_ns, lambda: self._on_recharged(client))
                return
        self._handouts.release(client)

    def _on_recharged(self, client: int) -> None:
        self._handouts.release(client)
        self._handouts.look_again(client)

    # -- Step 4. The schedule discards updates, or aggregates them into the next version, and closes the round. ------

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
        if dispatches:
            self._dispatched_at_aggregation = self.dispatched
        if self._known is not None:
            self._known.update(dispatch.client for dispatch in dispatches)
        self._updates.aggregate(
            dispatches, groups, attributes, version=version, round_=self.round, now_ns=now
        )
        if self._rules.aggregation_ns:
            self._handouts.busy_until_ns = now + self._rules.aggregation_ns
        if closes_round:
            self.close_round()
        elif not (self.round or self._schedule.synchronous):
            self._end_after(version)
        # Step 5. The version is evaluated if an evaluation is due.
        self._evaluations.on_version(version, self.round, dispatches)
        if self._on_progress is not None:
            self._on_progress()
        return version

    @override
    def close_round(self) -> None:
        self.round += 1
        if self.round == self._round_check:
            if self._clock.now == self._round_ns:
                raise standstill(f"{format_count(ROUNDS_AT_ONCE)} rounds", self._round_ns)
            self._round_check, self._round_ns = self.round + ROUNDS_AT_ONCE, self._clock.now
        self._evaluations.on_round(self.round)
        self._end_after(self.round)

    def _end_after(self, rounds: int) -> None:
        """Stop the run if these are all its rounds; those of a schedule that has closed none are its versions."""
        if self._limits.rounds is not None and rounds >= self._limits.rounds:
            self._is_over = True
            self._engine.call_at(self._clock.now, self._engine.stop, LEAVING_ORDER)

    # -- The rest of the server port. ---------------------------------------------------------------------------------

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
        plane = self._plane_that_learns()
        return plane.training_losses([dispatch.dispatch_id for dispatch in dispatches])

    @override
    def client_accuracies(self) -> npt.NDArray[np.float64]:
        return self._plane_that_learns().client_accuracies(self.version)

    def _plane_that_learns(self) -> LearningPlane:
        if self._plane is None:
            raise UserError(
                "a selection by training losses or accuracies needs training",
                where="server.selection",
                hint="leave out --timing-only, or choose another selection",
            )
        return self._plane
