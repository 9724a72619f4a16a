"""The life of dispatches as events: from hand-out to the end that the plan foresees, or to a cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import simpy

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
    """The end of a dispatch; ends of one instant are processed in order of dispatching.

    An event that has happened as far as SimPy is concerned, made without what SimPy's own constructor does for others.
    """

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


class PlannedLife:
    """Dispatches on uncontended networks: a closed-form plan and one event each.

    Args:
        engine: simulated time.
        planner: makes the plans.
        on_end: called when a dispatch ends by itself.
    """

    def __init__(self, engine: Engine, planner: Planner, on_end: OnEnd) -> None:
        self._env = engine.env
        # Priorities are integers to SimPy, whatever it calls them.
        self._schedule: Any = engine.env.schedule
        self._planner = planner
        self._on_end = on_end
        self._at_work: dict[int, _End] = {}
        # SimPy reads this list and never writes to it, so that all events can share one.
        self._callbacks = [self._ended]
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
        dispatch_id = dispatch.dispatch_id
        self._at_work[dispatch_id] = end = _End(dispatch, plan, deadline_ns, self._callbacks)
        end_ns = plan[0]
        if end_ns < NEVER:
            self._schedule(end, dispatch_id, end_ns - now)

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
