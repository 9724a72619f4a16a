"""The life of dispatches as events: from hand-out to the end that the plan foresees, or to a cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import simpy
from simpy.events import EventPriority

from fedsim.scheduling.base import Dispatch
from fedsim.simulation.engine import Engine
from fedsim.simulation.plan import Plan, Planner
from fedsim.traces.availability import NEVER

OnEnd = Callable[[Dispatch, Plan], None]


class Life(Protocol):
    """Lives through dispatches: download, compute, upload."""

    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        """Start a dispatch now; its client is online until ``online_until_ns``."""

    def cut(self, dispatch: Dispatch) -> Plan:
        """End a dispatch now; what had happened by now."""
        ...

    def unfinished(self) -> Iterator[tuple[Dispatch, Plan]]:
        """Dispatches that have not ended, with what has happened by now, in order of dispatching."""
        ...


class _End(simpy.Event):
    """The end of a dispatch; ends of one instant are processed in order of dispatching."""

    def __init__(
        self,
        env: simpy.Environment,
        dispatch: Dispatch,
        plan: Plan,
        deadline_ns: int | None,
        callback: Callable[[Any], None],
    ) -> None:
        self.env = env
        self._ok = True
        self._value = None
        self.callbacks: list[Any] = [callback]
        self.dispatch = dispatch
        self.plan = plan
        self.deadline_ns = deadline_ns


class PlannedLife:
    """Dispatches on uncontended networks: a closed-form plan and one event each.

    Args:
        engine: simulated time.
        planner: makes the plans.
        on_end: called when a dispatch ends by itself.
    """

    def __init__(self, engine: Engine, planner: Planner, on_end: OnEnd) -> None:
        self._env = engine.env
        self._planner = planner
        self._on_end = on_end
        self._at_work: dict[int, _End] = {}
        self._callback = self._ended
        self._one_plan = planner.plan if planner.plans_all else None

    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        """See :class:`Life`."""
        now = dispatch.dispatched_ns
        plan = (self._one_plan or self._planner.of(dispatch).plan)(
            dispatch.client,
            dispatch.sequence,
            now,
            dispatch.steps,
            deadline_ns,
            NEVER,
            online_until_ns,
        )
        end = _End(self._env, dispatch, plan, deadline_ns, self._callback)
        self._at_work[dispatch.dispatch_id] = end
        if plan.end_ns < NEVER:
            self._env.schedule(end, EventPriority(dispatch.dispatch_id), plan.end_ns - now)

    def _ended(self, event: Any) -> None:
        dispatch = event.dispatch
        if self._at_work.pop(dispatch.dispatch_id, None) is not None:
            self._on_end(dispatch, event.plan)

    def cut(self, dispatch: Dispatch) -> Plan:
        """See :class:`Life`."""
        return self._by_now(self._at_work.pop(dispatch.dispatch_id))

    def unfinished(self) -> Iterator[tuple[Dispatch, Plan]]:
        """See :class:`Life`."""
        for dispatch_id in sorted(self._at_work):
            end = self._at_work[dispatch_id]
            yield end.dispatch, self._by_now(end)

    def _by_now(self, end: _End) -> Plan:
        dispatch = end.dispatch
        return self._planner.of(dispatch).plan(
            dispatch.client,
            dispatch.sequence,
            dispatch.dispatched_ns,
            dispatch.steps,
            end.deadline_ns,
            cut_ns=int(self._env.now),
        )
