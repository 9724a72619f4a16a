"""Dispatches on links that are not shared: their plans in closed form, and their ends as events.

If links are not shared, the whole course of a dispatch is known when it is handed out, so a dispatch is a single event.
The server never sees a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import simpy
from typing_extensions import override

from fedsim.network.base import Direction
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.engine import Engine
from fedsim.simulation.life import Life, Plan, Reached, Transfer
from fedsim.simulation.workload import Workload, Workloads
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import Ending

_BEYOND = 2 * NEVER - 1
"""Later than every instant, including NEVER."""
OnEnd = Callable[[Dispatch, Plan], None]
# Skips one call of the named tuple's constructor, which every dispatch would pay.
_NEW_TUPLE = tuple.__new__
# Looking up a member of an enumeration costs several times as much as passing it on.
_ARRIVED = Ending.ARRIVED


class Dispatches(Protocol):
    """The dispatches under way: downloading, computing, uploading, or waiting for their client."""

    _under_way: dict[int, Any]
    """By number; each value has an attribute ``dispatch``."""

    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        """Start a dispatch now; its client is online until ``online_until_ns``."""

    def stop(self, dispatch: Dispatch) -> Plan:
        """Stop a dispatch now; returns its course up to now.

        A dispatch that has not ended yet has not arrived, even if it would have arrived at this very instant.
        """

    def of_edge(self, edge: int) -> list[Dispatch]:
        """The dispatches of an edge server that are under way, in order of dispatching."""
        return [dispatch for dispatch in self.all() if dispatch.edge == edge]

    def all(self) -> list[Dispatch]:
        """The dispatches that are under way, in order of dispatching."""
        return [self._under_way[number].dispatch for number in sorted(self._under_way)]

    def is_under_way(self, dispatch: Dispatch) -> bool:
        """Whether a dispatch has not ended."""
        return dispatch.dispatch_id in self._under_way

    def stop_all(self) -> Iterator[tuple[Dispatch, Plan]]:
        """Stop all dispatches under way, in order of dispatching."""
        for dispatch in self.all():
            yield dispatch, self.stop(dispatch)


class Planner:
    """Plans the dispatches of one workload on a network whose links are not shared."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._network = workload.population.network
        self._compute = workload.population.compute
        self._batteries = workload.population.batteries
        self._phases, self._steps_vary = self._constant_phases()

    def _constant_phases(self) -> tuple[memoryview[int] | None, bool]:
        """Durations of the phases of undisturbed dispatches, and whether the duration of a local step varies.

        Download, local step and upload (ns) of client 0, of client 1 and so on, because they are read together; None if
        they are not constant.
        """
        workload, network, compute = self._workload, self._network, self._compute
        varies = workload.shortens or workload.crashes or workload.loses_uploads
        varies = varies or workload.steps_ahead > 0
        if varies or not compute.steady:
            return None, True
        down_ns = network.constant_transfers_ns(Direction.DOWN, workload.bytes_down)
        up_ns = network.constant_transfers_ns(Direction.UP, workload.bytes_up)
        if down_ns is None or up_ns is None:
            return None, True
        step_ns = compute.constant_steps_ns()
        steps = np.zeros_like(up_ns) if step_ns is None else step_ns
        phases = [np.where(column < NEVER, column, _BEYOND) for column in (down_ns, steps, up_ns)]
        return np.stack(phases, axis=1).reshape(-1).data, step_ns is None

    def plan(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> Plan:
        """The course of a dispatch: the result of :meth:`live`, without its cost if nothing disturbs the dispatch.

        Undisturbed means that the client stays online until the update has arrived, and nothing fails. Then the phases
        follow one another without a pause, whatever the disconnect policy.

        Args:
            dispatch: the dispatch; its client is online at the start.
            deadline_ns: latest useful arrival, if one was announced.
            online_until_ns: when the client goes offline.
        """
        client, start_ns = dispatch.client_id, dispatch.dispatched_ns
        phases = self._phases
        if phases is not None:
            at = client * 3
            downloaded = start_ns + phases[at]
            step_ns = phases[at + 1]
            if self._steps_vary:
                step_ns = self._compute.step_ns(client, dispatch.sequence, start_ns)
            done = dispatch.steps
            computed = downloaded + step_ns * done
            end = computed + phases[at + 2]
        else:
            downloaded, computed, end, done = self._undisturbed(
                dispatch, deadline_ns, online_until_ns
            )
        if end > online_until_ns:
            return self.live(dispatch, deadline_ns)
        workload = self._workload
        down, up = workload.bytes_down, workload.bytes_up
        plan: Plan = _NEW_TUPLE(
            Plan,
            (
                end,
                _ARRIVED,
                downloaded,
                computed,
                done,
                down,
                up,
                downloaded - start_ns,
                computed - downloaded,
                end - computed,
            ),
        )
        if self._batteries is not None and not workload.has_charge_for(client, plan):
            return self.live(dispatch, deadline_ns)
        return plan

    def _undisturbed(
        self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int
    ) -> tuple[int, int, int, int]:
        """Ends of the three phases, and local steps; the last end is ``_BEYOND`` if the dispatch is disturbed."""
        workload, network, compute = self._workload, self._network, self._compute
        client, sequence = dispatch.client_id, dispatch.sequence
        start_ns, steps = dispatch.dispatched_ns, dispatch.steps
        disturbed = -1, -1, _BEYOND, 0
        if dispatch.free_ns >= 0:
            return disturbed
        off_ns = min(online_until_ns, NEVER - 1)
        downloaded = network.transfer_end_ns(
            client, Direction.DOWN, workload.bytes_down, start_ns, sequence
        )
        if downloaded > off_ns:
            return disturbed
        step_ns = compute.step_ns(client, sequence, start_ns)
        if workload.shortens:
            steps = workload.affordable_steps(
                client, sequence, steps, downloaded, step_ns, deadline_ns
            )
            if steps < 1:
                return disturbed
        if compute.steady:
            computed = downloaded + step_ns * steps
        else:
            work_ns = compute.work_ns(client, sequence, step_ns, steps)
            computed = compute.finish(client, downloaded, work_ns)
        if workload.crashes and computed - downloaded > workload.crash_after_ns(client, sequence):
            return disturbed
        if computed > off_ns or workload.upload_is_lost(client, sequence, 0):
            return disturbed
        end = network.transfer_end_ns(client, Direction.UP, workload.bytes_up, computed, sequence)
        return (downloaded, computed, end, steps) if end <= off_ns else disturbed

    def live(self, dispatch: Dispatch, deadline_ns: int | None, stop_ns: int = NEVER) -> Plan:
        """Run a dispatch's :class:`fedsim.simulation.life.Life` in closed form, up to ``stop_ns``; see :meth:`plan`."""
        network = self._network
        client, sequence = dispatch.client_id, dispatch.sequence
        availability = self._workload.population.availability
        online_until_ns = availability.online_until(client, dispatch.dispatched_ns)
        life = Life(self._workload, dispatch, deadline_ns, online_until_ns, stop_ns)
        story = life.story()
        try:
            activity = next(story)
            while True:
                reached: Reached = activity.until_ns, None
                if type(activity) is Transfer:
                    direction, size, until_ns = activity
                    end_ns = network.transfer_end_ns(client, direction, size, life.now_ns, sequence)
                    if end_ns <= until_ns and end_ns < NEVER:
                        reached = end_ns, None
                    elif until_ns < NEVER:
                        reached = (
                            until_ns,
                            network.bytes_by(
                                client, direction, size, life.now_ns, until_ns, sequence
                            ),
                        )
                    else:
                        reached = NEVER, 0.0
                activity = story.send(reached)
        except StopIteration:
            return life.plan()


class _End(simpy.Event):
    """The end of a dispatch, an event that SimPy considers triggered; slots and the plain constructor make it cheap."""

    __slots__ = ("callbacks", "deadline_ns", "dispatch", "plan")

    _ok = True
    _value = None

    def __init__(
        self, dispatch: Dispatch, plan: Plan, deadline_ns: int | None, callbacks: list[Any]
    ) -> None:
        self.callbacks = callbacks
        self.dispatch = dispatch
        self.plan = plan
        self.deadline_ns = deadline_ns


class PlannedDispatches(Dispatches):
    """Dispatches whose plans are known when they are handed out; ``on_end`` is called when one ends by itself."""

    def __init__(self, engine: Engine, workloads: Workloads, on_end: OnEnd) -> None:
        self._env = engine.env
        # SimPy's type of a priority is narrower than the integers that it accepts.
        self._schedule: Any = engine.env.schedule
        self._workloads = workloads
        self._planners = {workload: Planner(workload) for workload in workloads.every}
        self._only_planner = None
        if len(self._planners) == 1:
            (self._only_planner,) = self._planners.values()
        self._on_end = on_end
        self._under_way: dict[int, _End] = {}
        # SimPy reads this list and never writes to it, so all events can share one.
        self._callbacks = [self._ended]

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        planner = self._only_planner or self._planner(dispatch)
        plan = planner.plan(dispatch, deadline_ns, online_until_ns)
        dispatch_id = dispatch.dispatch_id
        self._under_way[dispatch_id] = end = _End(dispatch, plan, deadline_ns, self._callbacks)
        end_ns = plan[0]
        if end_ns < NEVER:
            self._schedule(end, dispatch_id, end_ns - dispatch.dispatched_ns)

    def _planner(self, dispatch: Dispatch) -> Planner:
        return self._planners[self._workloads.of(dispatch)]

    def _ended(self, event: Any) -> None:
        dispatch = event.dispatch
        if self._under_way.pop(dispatch.dispatch_id, None) is not None:
            self._on_end(dispatch, event.plan)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        end = self._under_way.pop(dispatch.dispatch_id)
        plan = self._planner(dispatch).live(dispatch, end.deadline_ns, stop_ns=int(self._env.now))
        return plan._replace(ending=Ending.STOPPED)
