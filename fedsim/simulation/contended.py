"""Dispatches on shared links as events: transfers are flows whose rates change as others come and go."""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from fedsim.network.shared import SharedNetwork
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.engine import (
    FLOW_ORDER,
    LEAVING_ORDER,
    SETTLING_ORDER,
    Engine,
    ScheduledCall,
)
from fedsim.simulation.life import Life, LocalSteps, Plan, Reached, Transfer
from fedsim.simulation.planned import Dispatches, OnEnd
from fedsim.simulation.workload import Workloads
from fedsim.traces.availability import NEVER


class _UnderWay:
    """A dispatch under way, and the activity that it is in."""

    __slots__ = ("call", "dispatch", "ended", "life", "story", "transfer_id")

    def __init__(self, dispatch: Dispatch, life: Life) -> None:
        self.dispatch = dispatch
        self.life = life
        self.story = life.story()
        self.ended = False
        self.transfer_id = -1
        self.call: ScheduledCall | None = None


class ContendedDispatches(Dispatches):
    """Dispatches whose transfers share links; a transfer is a flow, every other activity a timed call.

    Args:
        engine: simulated time.
        workloads: the work of each dispatch.
        network: the shared links.
        on_end: called when a dispatch ends by itself.
    """

    def __init__(
        self, engine: Engine, workloads: Workloads, network: SharedNetwork, on_end: OnEnd
    ) -> None:
        self._engine = engine
        self._workloads = workloads
        self._network = network
        self._on_end = on_end
        self._under_way: dict[int, _UnderWay] = {}
        self._of_transfer: dict[int, _UnderWay] = {}
        self._transfers = 0
        self._next_flow: ScheduledCall | None = None
        self._next_flow_ns = NEVER
        self._settling = False

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        life = Life(
            self._workloads.of(dispatch),
            dispatch.client,
            dispatch.sequence,
            dispatch.dispatched_ns,
            dispatch.steps,
            deadline_ns,
            online_until_ns,
        )
        self._under_way[dispatch.dispatch_id] = one = _UnderWay(dispatch, life)
        self._advance(one, None)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        one = self._under_way.pop(dispatch.dispatch_id)
        now = one.life.stop_ns = self._engine.now_ns
        reached = now, self._leave_activity(one)
        while not one.ended:
            try:
                one.story.send(reached)
                reached = now, 0.0
            except StopIteration:
                one.ended = True
        return one.life.plan()._replace(arrives=False)

    @override
    def stop_all(self) -> Iterator[tuple[Dispatch, Plan]]:
        for dispatch_id in sorted(self._under_way):
            dispatch = self._under_way[dispatch_id].dispatch
            yield dispatch, self.stop(dispatch)

    # -- one dispatch ---------------------------------------------------------------------------------------------

    def _advance(self, one: _UnderWay, reached: Reached | None) -> None:
        """Begin the next activity of a dispatch, or end it."""
        now, dispatch = self._engine.now_ns, one.dispatch
        try:
            # What starts a generator is None, whatever its type says of later values.
            activity = one.story.send(reached) if reached else next(one.story)
            while type(activity) is Transfer and activity.until_ns <= now:
                activity = one.story.send((now, 0.0))
        except StopIteration:
            # Ends of one instant come in order of dispatching.
            one.ended = True
            one.call = self._engine.call_at(now, lambda: self._end(one), dispatch.dispatch_id)
            return
        order = None
        if type(activity) is Transfer:
            self._transfers += 1
            one.transfer_id = self._transfers
            self._of_transfer[one.transfer_id] = one
            self._network.start_transfer(
                one.transfer_id, dispatch.client, activity.direction, activity.size_bytes, now
            )
            self._settle()
            order = LEAVING_ORDER + dispatch.dispatch_id
        elif type(activity) is LocalSteps:
            order = dispatch.dispatch_id
        if activity.until_ns < NEVER:
            one.call = self._engine.call_at(activity.until_ns, lambda: self._time_is_up(one), order)

    def _time_is_up(self, one: _UnderWay) -> None:
        self._advance(one, (self._engine.now_ns, self._leave_activity(one)))

    def _leave_activity(self, one: _UnderWay) -> float | None:
        """Break off what a dispatch is doing; bytes moved by a transfer."""
        if one.call is not None:
            one.call.cancel()
            one.call = None
        if one.transfer_id < 0:
            return None
        moved = self._network.cancel(one.transfer_id, self._engine.now_ns)
        del self._of_transfer[one.transfer_id]
        one.transfer_id = -1
        self._settle()
        return moved

    def _end(self, one: _UnderWay) -> None:
        del self._under_way[one.dispatch.dispatch_id]
        self._on_end(one.dispatch, one.life.plan())

    # -- flows ----------------------------------------------------------------------------------------------------

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
            one = self._of_transfer.pop(transfer_id)
            one.transfer_id = -1
            if one.call is not None:
                one.call.cancel()
                one.call = None
            self._advance(one, (now, None))
        self._settle()
