"""The life of dispatches on shared links: transfers are flows whose rates change as others come and go."""

from __future__ import annotations

from collections.abc import Iterator

from fedsim.devices.population import Population
from fedsim.network.base import Direction
from fedsim.network.shared import SharedNetwork
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.engine import (
    FLOW_ORDER,
    LEAVING_ORDER,
    SETTLING_ORDER,
    Engine,
    ScheduledCall,
)
from fedsim.simulation.life import OnEnd
from fedsim.simulation.plan import Plan, Planner
from fedsim.traces.availability import NEVER


class _Work:
    """A dispatch at work, and what it has done so far."""

    __slots__ = (
        "attempt",
        "bytes_down",
        "bytes_up",
        "call",
        "compute_ns",
        "computed_ns",
        "crash_ns",
        "deadline_ns",
        "direction",
        "dispatch",
        "download_ns",
        "downloaded_ns",
        "left_bytes",
        "planner",
        "since_ns",
        "step_ns",
        "steps",
        "transfer_id",
        "upload_ns",
    )

    def __init__(
        self, dispatch: Dispatch, planner: Planner, deadline_ns: int | None, crash_ns: int
    ) -> None:
        self.dispatch = dispatch
        self.planner = planner
        self.deadline_ns = deadline_ns
        self.crash_ns = crash_ns
        self.direction: Direction | None = Direction.DOWN
        self.left_bytes = planner.bytes_down
        self.transfer_id = -1
        self.since_ns = dispatch.dispatched_ns
        self.downloaded_ns = self.computed_ns = -1
        self.steps = dispatch.steps
        self.step_ns = 0
        self.attempt = 0
        self.bytes_down = self.bytes_up = 0.0
        self.download_ns = self.compute_ns = self.upload_ns = 0
        self.call: ScheduledCall | None = None


class ContendedLife:
    """Dispatches whose transfers share links; a transfer is a flow, everything else is a timed call.

    Args:
        engine: simulated time.
        planner: compute phases, failures and partial work, as on uncontended networks.
        population: the devices.
        network: the shared links.
        on_end: called when a dispatch ends by itself.
    """

    def __init__(
        self,
        engine: Engine,
        planner: Planner,
        population: Population,
        network: SharedNetwork,
        on_end: OnEnd,
    ) -> None:
        self._engine = engine
        self._planner = planner
        self._availability = population.availability
        self._compute = population.compute
        self._drops = population.on_disconnect == "drop"
        self._network = network
        self._on_end = on_end
        self._at_work: dict[int, _Work] = {}
        self._of_transfer: dict[int, _Work] = {}
        self._transfers = 0
        self._next_flow: ScheduledCall | None = None
        self._next_flow_ns = NEVER
        self._settling = False

    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        """See :class:`fedsim.simulation.life.Life`."""
        planner = self._planner.of(dispatch)
        crash_ns = planner.crash_ns(dispatch.client, dispatch.sequence, dispatch.dispatched_ns)
        work = _Work(dispatch, planner, deadline_ns, crash_ns)
        self._at_work[dispatch.dispatch_id] = work
        self._transfer(work)

    def cut(self, dispatch: Dispatch) -> Plan:
        """See :class:`fedsim.simulation.life.Life`."""
        work = self._at_work.pop(dispatch.dispatch_id)
        self._leave_phase(work)
        return self._account(work, self._engine.now_ns, arrives=False)

    def unfinished(self) -> Iterator[tuple[Dispatch, Plan]]:
        """See :class:`fedsim.simulation.life.Life`."""
        for dispatch_id in sorted(self._at_work):
            dispatch = self._at_work[dispatch_id].dispatch
            yield dispatch, self.cut(dispatch)

    # -- transfers --------------------------------------------------------------------------------------------------

    def _transfer(self, work: _Work) -> None:
        """Start what is left of a download or upload, as soon as the client is online."""
        now, client = self._engine.now_ns, work.dispatch.client
        direction = work.direction
        assert direction is not None
        online_ns = self._availability.next_online(client, now)
        if online_ns > now:
            if self._drops:
                self._drop(work)
            else:
                self._pause(work, online_ns)
            return
        self._transfers += 1
        work.transfer_id, work.since_ns = self._transfers, now
        self._of_transfer[work.transfer_id] = work
        self._network.start_transfer(work.transfer_id, client, direction, work.left_bytes, now)
        off_ns = min(self._availability.online_until(client, now), work.crash_ns)
        if off_ns < NEVER:
            work.call = self._engine.call_at(
                off_ns, lambda: self._interrupted(work), LEAVING_ORDER + work.dispatch.dispatch_id
            )
        self._settle()

    def _pause(self, work: _Work, until_ns: int) -> None:
        """Wait for the client to be back; one that never comes back stays unfinished."""
        if work.crash_ns <= until_ns:
            work.call = self._engine.call_at(work.crash_ns, lambda: self._drop(work))
        elif until_ns < NEVER:
            work.call = self._engine.call_at(until_ns, lambda: self._transfer(work))

    def _interrupted(self, work: _Work) -> None:
        """The client goes offline, or crashes, in mid-transfer."""
        now = self._engine.now_ns
        self._leave_phase(work)
        if self._drops or now >= work.crash_ns:
            self._drop(work)
        else:
            self._pause(work, self._availability.next_online(work.dispatch.client, now))

    def _stop_transfer(self, work: _Work, moved_bytes: float) -> None:
        """Book what a transfer has moved since it was last started."""
        spent_ns = self._engine.now_ns - work.since_ns
        work.left_bytes -= moved_bytes
        if work.direction is Direction.DOWN:
            work.bytes_down += moved_bytes
            work.download_ns += spent_ns
        else:
            work.bytes_up += moved_bytes
            work.upload_ns += spent_ns
        self._of_transfer.pop(work.transfer_id, None)
        work.transfer_id = -1

    def _settle(self) -> None:
        """Ask for the next finished flow once, after everything that starts and stops at this instant."""
        if not self._settling:
            self._settling = True
            self._engine.call_at(self._engine.now_ns, self._plan_next_flow, SETTLING_ORDER)

    def _plan_next_flow(self) -> None:
        self._settling = False
        due_ns = self._network.next_event_ns()
        if due_ns == self._next_flow_ns and self._next_flow is not None:
            return
        if self._next_flow is not None:
            self._next_flow.cancel()
            self._next_flow = None
        self._next_flow_ns = due_ns
        if due_ns < NEVER:
            self._next_flow = self._engine.call_at(due_ns, self._flows_finish, FLOW_ORDER)

    def _flows_finish(self) -> None:
        self._next_flow, self._next_flow_ns = None, NEVER
        now = self._engine.now_ns
        for transfer_id in self._network.pop_finished(now):
            work = self._of_transfer[transfer_id]
            if work.call is not None:
                work.call.cancel()
            self._stop_transfer(work, work.left_bytes)
            if work.direction is Direction.DOWN:
                self._downloaded(work)
            else:
                self._uploaded(work)
        self._settle()

    # -- phases -----------------------------------------------------------------------------------------------------

    def _downloaded(self, work: _Work) -> None:
        now, dispatch = self._engine.now_ns, work.dispatch
        work.downloaded_ns = work.since_ns = now
        work.direction = None
        work.step_ns = self._compute.step_ns(
            dispatch.client, dispatch.sequence, dispatch.dispatched_ns
        )
        work.steps = work.planner.affordable_steps(
            dispatch.client, dispatch.sequence, dispatch.steps, now, work.step_ns, work.deadline_ns
        )
        if work.steps < 1:
            self._end_at(now, work, arrives=False)
            return
        end_ns, _, _ = self._computing(work, NEVER)
        drop_ns = work.crash_ns
        if self._drops:
            drop_ns = min(drop_ns, self._availability.online_until(dispatch.client, now))
        if end_ns <= drop_ns and end_ns < NEVER:
            work.call = self._engine.call_at(
                end_ns, lambda: self._computed(work), dispatch.dispatch_id
            )
        elif drop_ns < NEVER:
            work.call = self._engine.call_at(
                drop_ns, lambda: self._leave_and_drop(work), dispatch.dispatch_id
            )

    def _computing(self, work: _Work, cut_ns: int) -> tuple[int, int, int]:
        return work.planner.compute_phase(
            work.dispatch.client,
            work.dispatch.sequence,
            work.downloaded_ns,
            work.step_ns,
            work.steps,
            cut_ns,
        )

    def _computed(self, work: _Work) -> None:
        now = self._engine.now_ns
        _, work.steps, work.compute_ns = self._computing(work, now)
        if work.steps < 1:
            self._drop(work)
            return
        work.computed_ns = now
        work.direction, work.left_bytes = Direction.UP, work.planner.bytes_up
        self._transfer(work)

    def _uploaded(self, work: _Work) -> None:
        dispatch = work.dispatch
        lost = work.planner.upload_is_lost(dispatch.client, dispatch.sequence, work.attempt)
        work.attempt += 1
        if lost and work.attempt < work.planner.upload_attempts:
            work.left_bytes = work.planner.bytes_up
            self._transfer(work)
        else:
            self._end_at(self._engine.now_ns, work, arrives=not lost)

    # -- ends -------------------------------------------------------------------------------------------------------

    def _leave_phase(self, work: _Work) -> None:
        """Book a phase that is broken off now."""
        now = self._engine.now_ns
        if work.call is not None:
            work.call.cancel()
            work.call = None
        if work.transfer_id >= 0:
            moved = self._network.cancel(work.transfer_id, now)
            self._stop_transfer(work, moved)
            self._settle()
        elif work.direction is None and work.downloaded_ns >= 0:
            _, work.steps, work.compute_ns = self._computing(work, now)

    def _leave_and_drop(self, work: _Work) -> None:
        self._leave_phase(work)
        self._drop(work)

    def _drop(self, work: _Work) -> None:
        del self._at_work[work.dispatch.dispatch_id]
        self._on_end(work.dispatch, self._account(work, self._engine.now_ns, arrives=False))

    def _end_at(self, time_ns: int, work: _Work, *, arrives: bool) -> None:
        """End a dispatch at this instant, in order of dispatching among the ends of the instant."""

        def end() -> None:
            del self._at_work[work.dispatch.dispatch_id]
            self._on_end(work.dispatch, self._account(work, time_ns, arrives=arrives))

        work.call = self._engine.call_at(time_ns, end, work.dispatch.dispatch_id)

    def _account(self, work: _Work, end_ns: int, *, arrives: bool) -> Plan:
        return Plan(
            end_ns,
            arrives,
            work.downloaded_ns,
            work.computed_ns,
            work.steps if work.downloaded_ns >= 0 else 0,
            work.bytes_down,
            work.bytes_up,
            work.download_ns,
            work.compute_ns,
            work.upload_ns,
        )
