"""Dispatches on uncontended networks as events: one per dispatch, at the end that its plan foresees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import simpy
from typing_extensions import override

from fedsim.scheduling.base import Dispatch
from fedsim.simulation.engine import Engine
from fedsim.simulation.life import Plan
from fedsim.simulation.plan import Planner
from fedsim.simulation.workload import Workloads
from fedsim.traces.availability import NEVER

OnEnd = Callable[[Dispatch, Plan], None]


class Dispatches(Protocol):
    """The dispatches under way: downloading, computing, uploading, or waiting for their client."""

    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        """Start a dispatch now; its client is online until ``online_until_ns``."""

    def stop(self, dispatch: Dispatch) -> Plan:
        """Break a dispatch off now; what had become of it by now.

        A dispatch that has not ended yet has not arrived, even if it would have arrived at this very instant.
        """
        ...

    def stop_all(self) -> Iterator[tuple[Dispatch, Plan]]:
        """:meth:`stop` all dispatches under way, in order of dispatching."""
        ...


class _End(simpy.Event):
    """The end of a dispatch; ends of one instant are processed in order of dispatching.

    To SimPy this is an event that has been triggered already; SimPy's own constructor does more than that needs, and
    slots make events cheaper.
    """

    __slots__ = ("callbacks", "deadline_ns", "dispatch", "plan")

    _ok = True
    _value = None

    def __init__(
        self,
        dispatch: Dispatch,
        plan: Plan,
        deadline_ns: int | None,
        callbacks: list[Any],
    ) -> None:
        self.callbacks = callbacks
        self.dispatch = dispatch
        self.plan = plan
        self.deadline_ns = deadline_ns


class PlannedDispatches(Dispatches):
    """Dispatches whose plans are known at the hand-out.

    Args:
        engine: simulated time.
        workloads: the work of each dispatch.
        on_end: called when a dispatch ends by itself.
    """

    def __init__(self, engine: Engine, workloads: Workloads, on_end: OnEnd) -> None:
        self._env = engine.env
        # Priorities are integers to SimPy, whatever it calls them.
        self._schedule: Any = engine.env.schedule
        self._workloads = workloads
        self._planners = {
            workload: Planner(workload)
            for workload in (workloads.usual, workloads.prologue, workloads.first)
            if workload is not None
        }
        self._only_planner = self._planners[workloads.usual] if workloads.always_usual else None
        self._on_end = on_end
        self._under_way: dict[int, _End] = {}
        # SimPy reads this list and never writes to it, so that all events can share one.
        self._callbacks = [self._ended]

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        now = dispatch.dispatched_ns
        plan = (self._only_planner or self._planner(dispatch)).plan(
            dispatch.client, dispatch.sequence, now, dispatch.steps, deadline_ns, online_until_ns
        )
        dispatch_id = dispatch.dispatch_id
        self._under_way[dispatch_id] = end = _End(dispatch, plan, deadline_ns, self._callbacks)
        end_ns = plan[0]
        if end_ns < NEVER:
            self._schedule(end, dispatch_id, end_ns - now)

    def _planner(self, dispatch: Dispatch) -> Planner:
        return self._planners[self._workloads.of(dispatch)]

    def _ended(self, event: Any) -> None:
        dispatch = event.dispatch
        if self._under_way.pop(dispatch.dispatch_id, None) is not None:
            self._on_end(dispatch, event.plan)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        end = self._under_way.pop(dispatch.dispatch_id)
        plan = self._planner(dispatch).live(
            dispatch.client,
            dispatch.sequence,
            dispatch.dispatched_ns,
            dispatch.steps,
            end.deadline_ns,
            stop_ns=int(self._env.now),
        )
        return plan._replace(arrives=False)

    @override
    def stop_all(self) -> Iterator[tuple[Dispatch, Plan]]:
        for dispatch_id in sorted(self._under_way):
            dispatch = self._under_way[dispatch_id].dispatch
            yield dispatch, self.stop(dispatch)
