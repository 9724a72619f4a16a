"""A server of the simulation, and the story of a round, or of a version.

The methods of :class:`Server` are in the order of what happens:

1. The schedule draws clients from the selection and dispatches work to them.
2. A client that is online starts the work (:mod:`fedsim.simulation.life`).
3. The dispatch ends: its update arrives, its client fails, or the schedule cuts it.
4. The schedule discards updates, or aggregates them into the next version, and closes the round.
5. The version is evaluated if an evaluation is due (:mod:`fedsim.simulation.simulation`).

The schedule (:mod:`fedsim.scheduling.schedules`) decides *when* a step happens, and the selection
(:mod:`fedsim.scheduling.selections`) *which clients* it concerns. Both act through the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fedsim.errors import UserError
from fedsim.randomness import Purpose
from fedsim.scheduling.base import Dispatch, Selection, ServerPort, Timer
from fedsim.simulation.contract import check_draws
from fedsim.simulation.facts import Clients, Facts, Rules
from fedsim.simulation.handouts import HandOuts
from fedsim.simulation.level import Level
from fedsim.simulation.life import Plan
from fedsim.simulation.stall import ROUNDS_AT_ONCE, standstill
from fedsim.vocabulary.formatting import format_count
from fedsim.vocabulary.outcomes import Ending, Outcome
from fedsim.vocabulary.timeline import LearningPlane

# Looking up a member of an enumeration costs several times as much as comparing with it.
_ARRIVED = Ending.ARRIVED


class Above(Protocol):
    """What a server reports to: the run, or for an edge server the cloud."""

    def on_version(self, version: int, round_: int, dispatches: Sequence[Dispatch]) -> None:
        """Note a version made of the updates of these dispatches; does nothing unless overridden."""
        return

    def on_round(self, round_: int) -> None:
        """Note that a round has closed; does nothing unless overridden."""
        return

    def ends_after(self, rounds: int) -> bool:
        """Whether the run ends when the server has closed so many rounds; versions count if its schedule has none."""


class Server(Facts, ServerPort):
    """One server.

    Args:
        level: its clients, and what it shares with the other servers that dispatch to them.
        clients, rules, seed: the clients that are its own, its rules, and the seed of its draws.
        above: what it reports to.
        edge: number of the edge server; -1 if it is the only server, or the cloud.

    Attributes:
        schedule: decides when it acts.
        adopted: models that it has received from the cloud.
        empty_draws: how often a user's selection has drawn nobody although clients were available.

    Raises:
        UserError: schedule or selection refuse their parameters.
    """

    def __init__(
        self,
        level: Level,
        clients: Clients,
        rules: Rules,
        above: Above,
        *,
        seed: int,
        edge: int = -1,
    ) -> None:
        super().__init__(clients, rules, seed)
        population = level.population
        self.edge = edge
        self.version = self.round = self.adopted = self.empty_draws = 0
        self._level = level
        self._above = above
        self._population = population
        self._availability = clients.availability
        self._rules = rules
        # The numbers of the clients in the run, if they differ from those at this server.
        self._ids = None if clients.members is None else clients.members.data
        self._time_budget_ns = level.time_budget_ns
        self._same_steps = level.same_steps
        self._sequences = level.sequences
        self._continues = level.continues
        self._finished = level.finished
        self._known = level.known
        self._round_check, self._round_ns = ROUNDS_AT_ONCE, 0
        # Dispatches that were dropped, which the server has not noticed.
        self._undetected: set[int] = set()
        # The last round has closed, and the run ends after the other ends of dispatches of this instant.
        self._is_over = False
        self._plane = level.plane
        self._engine = engine = level.engine
        self._clock = engine.clock
        self._energy = level.energy
        self._batteries = level.batteries
        self._updates = level.updates
        self._dispatches = level.dispatches
        self._handouts = HandOuts(
            engine,
            self._availability,
            self.stream(Purpose.SELECTION),
            self._hand_out,
            lambda: self._selection.next_change_ns(),
            is_patient=level.is_patient,
            prepare=self._prepare if population.compute.draws else None,
        )
        self._selection = rules.selection(self)
        check_draws(self._selection, self.clients, self._count_empty_draw)
        # Checked once, because these methods are called for every dispatch and do nothing in most selections.
        kind = type(self._selection)
        self._selection_counts = kind.multiplicity is not Selection.multiplicity
        self._selection_listens = kind.on_arrival is not Selection.on_arrival
        self.schedule = rules.schedule(self, self._selection)
        level.servers.append(self)

    def start(self) -> None:
        """Start the schedule."""
        self.schedule.start()

    def _count_empty_draw(self) -> None:
        self.empty_draws += 1

    # -- Step 1. The schedule draws clients from the selection and dispatches work to them. -------------------------

    @override
    def is_online(self, client: int) -> bool:
        return self._availability.is_online(client, self._clock.now)

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
        level = self._level
        dispatch_id = level.dispatched
        if dispatch_id == level.last_dispatch:
            return
        if dispatch_id == level.check_at:
            level.check_progress()
        client_id = client if self._ids is None else self._ids[client]
        sequence = self._sequences[client_id]
        self._sequences[client_id] = sequence + 1
        if steps is None:
            steps = self._same_steps
            if steps is None:
                steps = int(self.default_steps[client])
            if self._time_budget_ns is not None:
                step_ns = self._population.compute.step_ns(client_id, sequence, now)
                steps = max(1, self._time_budget_ns // step_ns) if step_ns else 1
        elif callable(steps):
            steps = int(steps())
        dispatch = Dispatch(
            dispatch_id,
            client,
            sequence,
            self.version,
            self.round,
            steps,
            now,
            client_id,
            self.edge,
            self.adopted,
        )
        if self._selection_counts:
            dispatch.multiplicity = self._selection.multiplicity(client)
        level.dispatched = dispatch_id + 1
        if self._known is not None:
            dispatch.in_full = sequence > 0 and self._known.get(client_id) != self.edge
        if self._continues:
            version, free_ns = self._finished.get(client_id, (-1, -1))
            dispatch.in_full |= version != self.version - 1
            online_until = self._population.availability.online_until
            if not dispatch.in_full and online_until(client_id, free_ns) >= now:
                dispatch.free_ns = free_ns
        if self._batteries is not None:
            self._batteries.begin(client_id, now)
        if self._plane is not None:
            self._plane.hold(self.version + self.adopted, self.edge)
        if on_dispatched is not None:
            on_dispatched(dispatch)
        self._dispatches.begin(dispatch, deadline_ns, online_until_ns)
        if level.dispatched == level.last_dispatch:
            self._engine.call_at(now, self._engine.stop)

    def _prepare(self, clients: npt.NDArray[np.int64]) -> None:
        """Draw the random numbers of the next dispatches of some clients at once."""
        client_ids = clients if self._ids is None else np.array(self._ids)[clients]
        sequences = [self._sequences[client] for client in client_ids.tolist()]
        self._population.compute.prepare(client_ids, np.array(sequences, dtype=np.int64))

    # -- Step 3. The dispatch ends: its update arrives, its client fails, or the schedule cuts it. ------------------

    def on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        """Handle a dispatch that has ended by itself."""
        client = dispatch.client
        if self._continues:
            self._note_finished(dispatch, plan)
        if self._batteries is None:
            self._handouts.release(client)
        else:
            self._release(dispatch, plan)
        if self._is_over:
            self._close_after_the_last_round(dispatch, plan)
            return
        if plan.ending is _ARRIVED:
            self._level.arrived += 1
            dispatch.arrived_ns = plan.end_ns
            dispatch.steps_done = plan.steps_done
            dispatch.staleness = self.version - dispatch.version
            self._updates.held[dispatch] = plan
            if self._selection_listens:
                self._selection.on_arrival(dispatch)
            self.schedule.on_arrival(dispatch)
            if self._level.arrived == self._level.last_arrival:
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
            self._finished[dispatch.client_id] = dispatch.version, plan.computed_ns

    def _close_after_the_last_round(self, dispatch: Dispatch, plan: Plan) -> None:
        """Record a dispatch that ends at the instant at which the last round has closed: its update is late."""
        outcome = Outcome.DROPPED
        if plan.ending is _ARRIVED:
            self._level.arrived += 1
            dispatch.staleness = self.version - dispatch.version
            outcome = Outcome.LATE
        self._updates.close(dispatch, plan, outcome, self._clock.now)

    def _on_failure(self, dispatch: Dispatch) -> None:
        if dispatch.dispatch_id not in self._undetected:
            return  # the schedule has stopped it in the meantime
        self._undetected.remove(dispatch.dispatch_id)
        self._selection.on_failure(dispatch)
        self.schedule.on_failure(dispatch)

    @override
    def cut(self, dispatch: Dispatch) -> None:
        if not dispatch.open:
            return
        plan = self._dispatches.stop(dispatch)
        self._note_finished(dispatch, plan)
        self._release(dispatch, plan)
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

        latency_ns = self._population.network.latency_ns(dispatch.client_id)
        self._engine.call_at(self._clock.now + latency_ns, stop)

    def _release(self, dispatch: Dispatch, plan: Plan) -> None:
        """Mark a client as done with its work; if its battery is low, only once it has recharged."""
        client, client_id = dispatch.client, dispatch.client_id
        if self._batteries is not None:
            now = self._clock.now
            ready_ns = self._batteries.end(client_id, now, self._energy.joules(client_id, plan))
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
            self._level.dispatched_at_aggregation = self._level.dispatched
        if self._known is not None:
            self._known.update((dispatch.client_id, self.edge) for dispatch in dispatches)
        self._updates.aggregate(
            dispatches,
            groups,
            attributes,
            version=version,
            round_=self.round,
            now_ns=now,
            edge=self.edge,
            adopted=self.adopted,
        )
        if self._rules.aggregation_ns:
            self._handouts.busy_until_ns = now + self._rules.aggregation_ns
        if closes_round:
            self.close_round()
        elif not (self.round or self.schedule.synchronous):
            self._end_after(version)
        # Step 5. The version is evaluated if an evaluation is due.
        self._above.on_version(version, self.round, dispatches)
        return version

    @override
    def close_round(self) -> None:
        self.round += 1
        if self.round == self._round_check:
            if self._clock.now == self._round_ns:
                raise standstill(f"{format_count(ROUNDS_AT_ONCE)} rounds", self._round_ns)
            self._round_check, self._round_ns = self.round + ROUNDS_AT_ONCE, self._clock.now
        self._above.on_round(self.round)
        self._end_after(self.round)

    def _end_after(self, rounds: int) -> None:
        """Note whether the run ends with this round; those of a schedule that has closed none are its versions."""
        if self._above.ends_after(rounds):
            self._is_over = True

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
