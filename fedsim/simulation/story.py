"""The story of a round, or of a version, from top to bottom:

1. The schedule draws clients from the selection and dispatches work to them.
2. A client that is online does the work: :meth:`DeviceProcess.run`.
3. The dispatch ends: its update arrives, its client fails, or the schedule cuts it.
4. The schedule discards updates, or aggregates them into the next version, and closes the round.
5. The version is evaluated if an evaluation is due (:mod:`fedsim.simulation.evaluations`).

The schedule (:mod:`fedsim.scheduling.schedules`) decides *when* a step happens, and the selection
(:mod:`fedsim.scheduling.selections`) *which clients* it concerns. Both act through the server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from typing_extensions import override

from fedsim.devices.battery import COMPUTE
from fedsim.network.base import Direction
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import (
    Activity,
    DispatchProcess,
    LocalSteps,
    MakeProcess,
    Plan,
    Reached,
)
from fedsim.simulation.dispatcher import OnDispatched, Steps
from fedsim.simulation.server import ServerBase
from fedsim.simulation.stall import ROUNDS_AT_ONCE, standstill
from fedsim.simulation.updates import without_update
from fedsim.simulation.workload import Workload
from fedsim.units import NEVER
from fedsim.vocabulary.formatting import format_count
from fedsim.vocabulary.outcomes import Ending, Outcome

# Looking up a member of an enumeration costs several times as much as comparing with it.
_ARRIVED = Ending.ARRIVED


class Server(ServerBase):
    """A server, and what happens in its rounds."""

    # -- Step 1. The schedule draws clients from the selection and dispatches work to them (Dispatcher.dispatch). ---

    # -- Step 2. A client that is online does the work (DeviceProcess.run). ------------------------------------------

    @override
    def _begin(
        self,
        client: int,
        now: int,
        online_until_ns: int,
        steps: Steps,
        deadline_ns: int | None,
        on_dispatched: OnDispatched,
    ) -> None:
        level = self._level
        dispatch_id = level.dispatched
        if dispatch_id == level.last_dispatch:
            return
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
        arrived = plan.ending is _ARRIVED
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
        closes_round: bool = False,
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
        elif not (self.round or self.schedule.synchronous):
            self._end_after(version)
        # Step 5. The version is evaluated if an evaluation is due.
        self._above.on_version(version, self.round, dispatches)
        return version

    @override
    def close_round(self) -> None:
        self.round += 1
        if self.round == self._checked_round + ROUNDS_AT_ONCE:
            if self._clock.now == self._checked_ns:
                raise standstill(f"{format_count(ROUNDS_AT_ONCE)} rounds", self._checked_ns)
            self._checked_round, self._checked_ns = self.round, self._clock.now
        self._above.on_round(self.round)
        self._end_after(self.round)

    def _end_after(self, rounds: int) -> None:
        """Note whether the run ends with this round; those of a schedule that has closed none are its versions."""
        if self._above.ends_after(rounds):
            self._is_over = True


class DeviceProcess(DispatchProcess):
    """A dispatch to a device, from the download to the upload."""

    def run(self) -> Generator[Activity, Reached, None]:
        """The activities of the dispatch, in order; after the last one, the dispatch has arrived, been dropped or been
        stopped."""
        workload, dispatch = self.workload, self.dispatch
        client, sequence = dispatch.client_id, dispatch.sequence

        # Step 1. Download the model.
        if not (yield from self.transfer(Direction.DOWN, workload.bytes_down)):
            return
        self.downloaded_ns = self.now_ns

        # Step 2. Decide how many local steps to do. A client declines if even an immediate upload would miss the
        # deadline, and with foresight if it knows that it cannot do a step in time; otherwise it does at least one.
        work, steps = workload.computation(dispatch, self.now_ns), dispatch.steps
        began_ns = work.start_ns
        if workload.shortens:
            steps = workload.affordable_steps(work, steps, self.deadline_ns)
        if steps < 1:
            self.ending = Ending.DECLINED
            return

        # Step 3. Do these steps, unless the client crashes or its battery runs empty. A client that goes offline drops
        # the work, pauses, stops, or continues offline.
        end_ns, steps = workload.local_steps(work, steps, self.online_until_ns)
        crash_ns = empty_ns = fails_ns = NEVER
        if workload.fails:
            crash_ns = workload.crash_after_ns(client, sequence)
            empty_ns = NEVER if self._battery is None else self._battery.lasts_ns(COMPUTE)
            fails_ns = workload.after_work_ns(client, began_ns, min(crash_ns, empty_ns))
        until_ns = max(self.now_ns, min(end_ns, self.stop_ns, fails_ns))
        if workload.drops and until_ns > self.online_until_ns:
            until_ns = self.online_until_ns
        self.now_ns, _ = yield LocalSteps(until_ns)
        self.compute_ns = workload.time_at_work_ns(client, began_ns, self.now_ns)
        if self._battery is not None:
            self._battery.discharge(COMPUTE, self.compute_ns)
        if self.now_ns < end_ns or end_ns >= NEVER:
            self.steps_done = workload.steps_by(work, steps, self.now_ns)
            if self.now_ns >= fails_ns:
                self.ending = Ending.CRASH if crash_ns <= empty_ns else Ending.BATTERY
            elif self.now_ns < self.stop_ns:
                self.ending = Ending.OFFLINE
            return
        self.steps_done = steps
        if steps < 1:
            self.ending = Ending.OFFLINE
            return
        self.computed_ns = self.now_ns

        # Step 4. Upload the update, and retry if it is lost. The dispatch ends with the last attempt.
        for attempt in range(workload.upload_attempts):
            if not (yield from self.transfer(Direction.UP, workload.bytes_up)):
                return
            if not (workload.loses_uploads and workload.upload_is_lost(client, sequence, attempt)):
                self.ending = _ARRIVED
                return
        self.ending = Ending.LOST_UPLOAD


def device_processes(
    workload_of: Callable[[Dispatch], Workload],
) -> MakeProcess:
    """A function that makes the process of a dispatch, as :data:`MakeProcess`."""
    return lambda dispatch, deadline_ns, online_until_ns: DeviceProcess(
        workload_of(dispatch), dispatch, deadline_ns, online_until_ns
    )
