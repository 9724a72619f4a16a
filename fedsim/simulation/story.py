"""The story of a round, or of a version, from top to bottom:

1. The schedule draws clients from the selection and dispatches work to them.
2. A client that is online does the work: :meth:`fedsim.simulation.dispatch_process.DispatchProcess.run`.
3. The dispatch ends: its update arrives, its client fails, or the schedule cuts it.
4. The schedule discards updates, or aggregates them into the next version, and closes the round.
5. The version is evaluated if an evaluation is due (:mod:`fedsim.simulation.evaluations`).

The schedule (:mod:`fedsim.scheduling.schedules`) decides *when* a step happens, and the selection
(:mod:`fedsim.scheduling.selections`) *which clients* it concerns. Both act through the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from fedsim.randomness import Purpose
from fedsim.scheduling.base import Dispatch, Selection, ServerPort, Timer
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.dispatcher import Dispatcher, Request
from fedsim.simulation.facts import Clients, Facts, check_dispatches, check_draws
from fedsim.simulation.level import Above, Level
from fedsim.simulation.updates import without_update
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.outcomes import ARRIVED, Outcome


class Server(Dispatcher, Facts, ServerPort):
    """A server: what happens in its rounds, and what schedule and selection may ask of it.

    Args:
        level: its clients, and what it shares with the other servers that dispatch to them.
        clients, seed: the clients that are its own, and the seed of its draws.
        above: what it reports to.
        edge: number of the edge server; -1 if it is the only server, or the cloud.

    Attributes:
        schedule: decides when it acts.
        adopted: models that it has received from the cloud.
        empty_draws: how often a user's selection has drawn nobody although clients were available.
    """

    def __init__(
        self, level: Level, clients: Clients, above: Above, *, seed: int, edge: int = -1
    ) -> None:
        Facts.__init__(self, clients, seed, level.plane)
        population = level.population
        self.edge = edge
        self.round = self.adopted = self.empty_draws = 0
        self._level = level
        self._above = above
        self._population = population
        # The numbers of the clients in the run, if they differ from those at this server.
        self._ids = None if clients.members is None else clients.members.data
        # Dispatches that were dropped, which the server has not noticed.
        self._undetected: set[int] = set()
        # The last round has closed, and the run ends after the other ends of dispatches of this instant.
        self._is_over = False
        self._batteries = level.batteries
        self._updates = level.updates
        self._dispatches = level.dispatches
        Dispatcher.__init__(
            self,
            level.engine,
            clients.availability,
            self.stream(Purpose.SELECTION),
            self._begin,
            lambda: self._selection.next_change_ns(),
            is_patient=level.is_patient,
            prepare=self._prepare if population.compute.draws else None,
        )
        self._selection = clients.selection(self)
        check_draws(self._selection, self)
        # Checked once, because these methods are called for every dispatch and do nothing in most selections.
        kind = type(self._selection)
        self._selection_counts = kind.multiplicity is not Selection.multiplicity
        self._selection_listens = kind.on_arrival is not Selection.on_arrival
        self.schedule = clients.schedule(self, self._selection)
        check_dispatches(self.schedule, self)
        level.servers.append(self)

    # -- Steps 1 and 2. Work is dispatched to a client (Dispatcher.dispatch) that is online, which begins it. ---------

    def _begin(self, client: int, now: int, online_until_ns: int, request: Request) -> None:
        steps, deadline_ns, on_dispatched = request
        level = self._level
        dispatch_id = level.dispatched
        if dispatch_id == level.last_dispatch:
            return  # The run ends, after what else is requested at this instant.
        if dispatch_id == level.check_at:
            level.check_progress()
        client_id = client if self._ids is None else self._ids[client]
        sequence = level.sequences[client_id]
        level.sequences[client_id] = sequence + 1
        if steps is None:
            steps = level.same_steps
            if steps is None:
                steps = int(self.default_steps[client])
            if level.time_budget_ns is not None:
                step_ns = self._population.compute.step_ns(client_id, sequence, now)
                steps = max(1, level.time_budget_ns // step_ns) if step_ns else 1
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
        if level.history is not None:
            level.history.begin(dispatch)
        if self._batteries is not None:
            self._batteries.begin(client_id, now)
        if self._plane is not None:
            self._plane.hold(self.version + self.adopted, self.edge)
        if on_dispatched is not None:
            on_dispatched(dispatch)
        self._dispatches.begin(dispatch, deadline_ns, online_until_ns)
        if level.dispatched == level.last_dispatch:
            self._engine.call_at(now, self._engine.stop)

    # -- Step 3. The dispatch ends: its update arrives, its client fails, or the schedule cuts it. ------------------

    def on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        """Handle a dispatch that has ended by itself."""
        client = dispatch.client
        if self._level.history is not None:
            self._level.history.end(dispatch, plan.computed_ns)
        if self._batteries is None:
            self.release(client)
        else:
            self._release(dispatch, plan)
        arrived = plan.ending is ARRIVED
        if arrived:
            self._level.arrived += 1
            dispatch.staleness = self.version - dispatch.version
        if self._is_over:
            # The last round has closed at this instant.
            outcome = Outcome.LATE if arrived else Outcome.DROPPED
            self._updates.close(dispatch, plan, outcome, self._clock.now)
            return
        if arrived:
            dispatch.arrived_ns = plan.end_ns
            dispatch.steps_done = plan.steps_done
            self._updates.held[dispatch] = plan
            if self._selection_listens:
                self._selection.on_arrival(dispatch)
            self.schedule.on_arrival(dispatch)
            if self._level.arrived == self._level.last_arrival:
                self._engine.stop()
        else:
            self._updates.close(dispatch, plan, Outcome.DROPPED, self._clock.now)
            self._undetected.add(dispatch.dispatch_id)
            detection_ns = self._clients.failure_detection_ns
            if detection_ns is not None:
                self._engine.call_at(
                    self._clock.now + detection_ns, lambda: self._on_failure(dispatch)
                )
        self.look_again(client)

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
        if dispatch.arrived:
            raise ValueError(
                f"the update of dispatch {dispatch.dispatch_id} has arrived: discard it, or aggregate it"
            )
        if not self._dispatches.can_stop:
            dispatch.round_is_closed = True
            return
        plan = self._dispatches.stop(dispatch)
        if self._level.history is not None:
            self._level.history.end(dispatch, plan.computed_ns)
        self._release(dispatch, plan)
        self._updates.close(dispatch, plan, Outcome.CUT, self._clock.now)
        self.look_again(dispatch.client)

    @override
    def cancel(self, dispatch: Dispatch, on_stopped: Callable[[], None]) -> None:
        def stop() -> None:
            if dispatch.open and not dispatch.arrived:
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
            work_ns = plan.download_ns, plan.compute_ns, plan.upload_ns
            used_j = self._population.power.joules(client_id, work_ns)
            ready_ns = self._batteries.end(client_id, now, used_j)
            if ready_ns > now:
                self._engine.call_at(ready_ns, lambda: self._on_recharged(client))
                return
        self.release(client)

    def _on_recharged(self, client: int) -> None:
        self.release(client)
        self.look_again(client)

    # -- Step 4. The schedule discards updates, or aggregates them into the next version, and closes the round. ------

    @override
    def discard(self, dispatch: Dispatch, *, late: bool = False) -> None:
        outcome = Outcome.LATE if late else Outcome.DISCARDED
        plan = self._updates.held.pop(dispatch, None)
        if plan is None:
            raise without_update(dispatch)
        self._updates.close(dispatch, plan, outcome, self._clock.now)

    @override
    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        *,
        groups: Sequence[int] | None = None,
        attributes: Mapping[str, float] | None = None,
        closes_round: bool = True,
    ) -> int:
        self.version = version = self.version + 1
        now = self._clock.now
        if dispatches:
            self._level.dispatched_at_aggregation = self._level.dispatched
        if self._level.history is not None:
            self._level.history.use(dispatches)
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
        if self._clients.aggregation_ns:
            self.busy_until_ns = now + self._clients.aggregation_ns
        if closes_round:
            self.close_round()
        # Step 5. The version is evaluated if an evaluation is due.
        self._above.on_version(dispatches)
        return version

    @override
    def close_round(self) -> None:
        self.round += 1
        self._is_over |= self._above.ends_after(self.round)

    # -- what else schedule and selection may ask of it ---------------------------------------------------------------

    @override
    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        return self._engine.call_at(time_ns, callback)

    def _prepare(self, clients: Ints) -> None:
        """Draw the random numbers of the next dispatches of some clients at once."""
        client_ids = clients if self._ids is None else np.array(self._ids)[clients]
        sequences = [self._level.sequences[client] for client in client_ids.tolist()]
        self._population.compute.prepare(client_ids, np.array(sequences, dtype=np.int64))
