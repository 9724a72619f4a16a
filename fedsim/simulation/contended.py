"""Dispatches on shared links as events: transfers are flows whose rates change as others start and end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

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
from fedsim.simulation.life import Activity, Life, LocalSteps, Plan, Reached, Transfer
from fedsim.simulation.plan import Dispatches, OnEnd
from fedsim.simulation.workload import Workload
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import Ending


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A dispatch under way, and its current activity: a transfer, a timed call, or both."""

    dispatch: Dispatch
    life: Life
    story: Generator[Activity, Reached, None]
    ended: bool = False
    transfer_id: int = -1
    call: ScheduledCall | None = None

    def cancel_call(self) -> None:
        """Cancel the timed call, if there is one."""
        if self.call is not None:
            self.call.cancel()
            self.call = None


class ContendedDispatches(Dispatches):
    """Dispatches whose transfers share links: a transfer is a flow, every other activity a timed call.

    ``on_end`` is called when a dispatch ends by itself.
    """

    def __init__(
        self,
        engine: Engine,
        workload_of: Callable[[Dispatch], Workload],
        network: SharedNetwork,
        on_end: OnEnd,
    ) -> None:
        self._engine = engine
        self._workload_of = workload_of
        self._network = network
        self._on_end = on_end
        self._under_way: dict[int, _UnderWay] = {}
        self._of_transfer: dict[int, _UnderWay] = {}
        self._transfers = 0
        self._next_flow: ScheduledCall | None = None
        self._next_flow_ns = NEVER
        self._settling = False
        # Other traffic may be under way from the start.
        self._settle()

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        life = Life(self._workload_of(dispatch), dispatch, deadline_ns, online_until_ns)
        self._under_way[dispatch.dispatch_id] = one = _UnderWay(dispatch, life, life.story())
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
        return one.life.plan()._replace(ending=Ending.STOPPED)

    # -- one dispatch ---------------------------------------------------------------------------------------------

    def _advance(self, one: _UnderWay, reached: Reached | None) -> None:
        """Begin the next activity of a dispatch, or end the dispatch."""
        now, dispatch = self._engine.now_ns, one.dispatch
        try:
            # A generator is started with None, which does not have the type of later values.
            activity = one.story.send(reached) if reached else next(one.story)
            while type(activity) is Transfer and activity.until_ns <= now:
                activity = one.story.send((now, 0.0))
        except StopIteration:
            # Ends of one instant are processed in order of dispatching.
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
        """Interrupt the current activity of a dispatch; returns the bytes moved if it is a transfer."""
        one.cancel_call()
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
        """Schedule a single check for the next finished flow, after all starts and stops of this instant."""
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
            one.cancel_call()
            self._advance(one, (now, None))
        self._settle()
