"""The dispatches under way, run in one of two ways.

If links are not shared, the whole course of a dispatch is known when it begins: its story runs at once, and its end is
a single event. The server never sees a plan. Where the end of an activity depends on other clients, on shared links or
in joint work, each activity is an event, and a transfer calls back at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import simpy
from typing_extensions import override

from fedsim.network.base import Direction, Network
from fedsim.network.shared import SharedNetwork
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import (
    Activity,
    DispatchProcess,
    JointWork,
    MakeProcess,
    Plan,
    Reached,
    Span,
    Transfer,
)
from fedsim.simulation.engine import (
    FLOW_ORDER,
    LEAVING_ORDER,
    SETTLING_ORDER,
    Engine,
    ScheduledCall,
)
from fedsim.simulation.workload import Workload, Workloads
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import ARRIVED, Ending

OnEnd = Callable[[Dispatch, Plan], None]
OnMoved = Callable[[], None]
Stop = Callable[[], float]
"""Stops a transfer; returns the bytes moved, all of them if it has ended."""
# Looking up a member of an enumeration, and a named tuple's constructor, cost more, which every dispatch would pay.
_DOWN, _UP = Direction
_NEW_TUPLE: Any = tuple.__new__


class Dispatches(Protocol):
    """The dispatches under way: downloading, computing, uploading, or waiting for their client."""

    _under_way: dict[int, Any]
    """By number; each value has an attribute ``dispatch``."""
    can_stop: bool = True
    """Whether the server can stop a dispatch; if not, the update of one that it cuts arrives late."""

    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        """Start a dispatch now; its client is online until ``online_until_ns``."""

    def stop(self, dispatch: Dispatch) -> Plan:
        """Stop a dispatch now; returns its course up to now.

        A dispatch that has not ended yet has not arrived, even if it would have arrived at this very instant.
        """

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


def undisturbed(workload: Workload, dispatch: Dispatch, online_until_ns: int) -> Plan | None:
    """What :func:`at_once` returns, at half its cost, if the client stays online and nothing can fail; None otherwise.

    Only for a workload that is :attr:`~Workload.plain`, whose phases then follow one another without a pause.
    """
    transfer_end_ns = workload.population.network.transfer_end_ns
    client, sequence, start_ns = dispatch.client_id, dispatch.sequence, dispatch.dispatched_ns
    down, up, steps = workload.bytes_down, workload.bytes_up, dispatch.steps
    downloaded_ns = transfer_end_ns(client, _DOWN, down, start_ns, sequence)
    compute_ns = workload.compute.step_ns(client, sequence, start_ns) * steps
    computed_ns = downloaded_ns + compute_ns
    end_ns = transfer_end_ns(client, _UP, up, computed_ns, sequence)
    if end_ns > online_until_ns or end_ns >= NEVER or steps < 1 or dispatch.free_ns >= 0:
        return None
    phases_ns = downloaded_ns - start_ns, compute_ns, end_ns - computed_ns
    plan = end_ns, ARRIVED, downloaded_ns, computed_ns, steps, down, up, *phases_ns
    return cast(Plan, _NEW_TUPLE(Plan, plan))


def at_once(process: DispatchProcess) -> Plan:
    """Run a dispatch to its end, or to its ``stop_ns``, on links that are not shared."""
    network = process.workload.population.network
    client, sequence = process.dispatch.client_id, process.dispatch.sequence
    send = process.run().send
    reached: Any = None
    try:
        while True:
            activity = send(reached)
            if type(activity) is Transfer:
                direction, size, until_ns = activity
                end_ns = network.transfer_end_ns(client, direction, size, process.now_ns, sequence)
                if end_ns <= until_ns and end_ns < NEVER:
                    reached = end_ns, None
                elif until_ns < NEVER:
                    moved = network.bytes_by(
                        client, direction, size, process.now_ns, until_ns, sequence
                    )
                    reached = until_ns, moved
                else:
                    reached = NEVER, 0.0
            else:
                reached = activity.until_ns, None
    except StopIteration:
        return process.plan()


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

    def __init__(
        self, engine: Engine, workloads: Workloads, process: MakeProcess, on_end: OnEnd
    ) -> None:
        self._env = engine.env
        # SimPy's type of a priority is narrower than the integers that it accepts.
        self._schedule: Any = engine.env.schedule
        self._workload_of = workloads.of
        self._process = process
        self._only = workloads.every[0] if len(workloads.every) == 1 else None
        self._on_end = on_end
        self._under_way: dict[int, _End] = {}
        # SimPy reads this list and never writes to it, so all events can share one.
        self._callbacks = [self._ended]

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        workload = self._only or self._workload_of(dispatch)
        plan = undisturbed(workload, dispatch, online_until_ns) if workload.plain else None
        if plan is None:
            plan = at_once(self._process(dispatch, deadline_ns, online_until_ns))
        dispatch_id = dispatch.dispatch_id
        self._under_way[dispatch_id] = end = _End(dispatch, plan, deadline_ns, self._callbacks)
        end_ns = plan[0]
        if end_ns < NEVER:
            self._schedule(end, dispatch_id, end_ns - dispatch.dispatched_ns)

    def _ended(self, event: Any) -> None:
        dispatch = event.dispatch
        if self._under_way.pop(dispatch.dispatch_id, None) is not None:
            self._on_end(dispatch, event.plan)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        end = self._under_way.pop(dispatch.dispatch_id)
        availability = self._workload_of(dispatch).population.availability
        online_until_ns = availability.online_until(dispatch.client_id, dispatch.dispatched_ns)
        process = self._process(dispatch, end.deadline_ns, online_until_ns)
        process.stop_ns = int(self._env.now)
        return at_once(process)._replace(ending=Ending.STOPPED)


class OwnLinks:
    """Transfers over links that are not shared."""

    def __init__(self, engine: Engine, network: Network) -> None:
        self._engine = engine
        self._network = network

    def start(self, dispatch: Dispatch, transfer: Transfer, on_end: OnMoved) -> Stop:
        """Start a transfer of a dispatch."""
        way = dispatch.client_id, transfer.direction, transfer.size_bytes, self._engine.now_ns
        end_ns = self._network.transfer_end_ns(*way, dispatch.sequence)
        call = self._engine.call_at(end_ns, on_end, dispatch.dispatch_id)

        def stop() -> float:
            call.cancel()
            return self._network.bytes_by(*way, self._engine.now_ns, dispatch.sequence)

        return stop

    def start_between(self, source: int, target: int, size_bytes: float, on_end: OnMoved) -> Stop:
        """Start a transfer from one client to another, which ends when the links of both have carried it."""
        network, begun_ns = self._network, self._engine.now_ns
        up, down = (source, Direction.UP), (target, Direction.DOWN)
        sent_ns, received_ns = (
            network.transfer_end_ns(*one, size_bytes, begun_ns) for one in (up, down)
        )
        end_ns = max(sent_ns + network.latency_ns(*down), received_ns + network.latency_ns(*up))
        call = self._engine.call_at(min(end_ns, NEVER), on_end, FLOW_ORDER)

        def stop() -> float:
            call.cancel()
            now_ns = self._engine.now_ns
            return min(network.bytes_by(*one, size_bytes, begun_ns, now_ns) for one in (up, down))

        return stop


class SharedLinks:
    """Transfers over links that they share: flows, whose rates change as others start and end."""

    def __init__(self, engine: Engine, network: SharedNetwork) -> None:
        self._engine = engine
        self._network = network
        self._on_end: dict[int, OnMoved] = {}
        self._started = 0
        self._next_end: ScheduledCall | None = None
        self._next_end_ns = NEVER
        self._settling = False
        # Other traffic may be under way from the start.
        self._settle()

    def start(self, dispatch: Dispatch, transfer: Transfer, on_end: OnMoved) -> Stop:
        """Start a transfer of a dispatch."""
        ends = dispatch.client_id, transfer.direction
        return self._start(self._network.start_transfer, ends, transfer.size_bytes, on_end)

    def start_between(self, source: int, target: int, size_bytes: float, on_end: OnMoved) -> Stop:
        """Start a transfer from one client to another."""
        return self._start(self._network.start_between, (source, target), size_bytes, on_end)

    def _start(
        self, start: Callable[..., None], ends: tuple[Any, Any], size_bytes: float, on_end: OnMoved
    ) -> Stop:
        self._started = number = self._started + 1
        self._on_end[number] = on_end
        start(number, *ends, size_bytes, self._engine.now_ns)
        self._settle()

        def stop() -> float:
            if self._on_end.pop(number, None) is None:
                return size_bytes
            self._settle()
            return self._network.cancel(number, self._engine.now_ns)

        return stop

    def _settle(self) -> None:
        """Schedule a single check for the next flow to end, after all starts and stops of this instant."""
        if not self._settling:
            self._settling = True
            self._engine.call_at(self._engine.now_ns, self._plan_next_end, SETTLING_ORDER)

    def _plan_next_end(self) -> None:
        self._settling = False
        due_ns = self._network.next_event_ns()
        if due_ns == self._next_end_ns and self._next_end is not None:
            return
        if self._next_end is not None:
            self._next_end.cancel()
        self._next_end_ns = due_ns
        self._next_end = self._engine.call_at(due_ns, self._flows_end, FLOW_ORDER)

    def _flows_end(self) -> None:
        self._next_end, self._next_end_ns = None, NEVER
        for number in self._network.pop_finished(self._engine.now_ns):
            self._on_end.pop(number)()
        self._settle()


Links = OwnLinks | SharedLinks


def links_of(engine: Engine, network: Network) -> Links:
    """The links of a network."""
    return (
        SharedLinks(engine, network)
        if isinstance(network, SharedNetwork)
        else OwnLinks(engine, network)
    )


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A dispatch under way; ``interrupt`` ends its current activity before its time, unless time alone ends it."""

    dispatch: Dispatch
    process: DispatchProcess
    run: Generator[Activity, Reached, None]
    ended: bool = False
    interrupt: Callable[[], float | None] | None = None
    call: ScheduledCall | None = None

    def cancel_call(self) -> None:
        """Cancel the timed call, if there is one."""
        if self.call is not None:
            self.call.cancel()
            self.call = None


class SteppedDispatches(Dispatches):
    """Dispatches whose stories advance step by step, with the events of their activities.

    Args:
        engine, links: simulated time, and what carries the transfers.
        process: makes the process of a dispatch.
        on_end: called when a dispatch ends by itself.
    """

    def __init__(self, engine: Engine, links: Links, process: MakeProcess, on_end: OnEnd) -> None:
        self._engine = engine
        self._links = links
        self._process = process
        self._on_end = on_end
        self._under_way: dict[int, _UnderWay] = {}

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        process = self._process(dispatch, deadline_ns, online_until_ns)
        self._under_way[dispatch.dispatch_id] = one = _UnderWay(dispatch, process, process.run())
        self._advance(one, None)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        one = self._under_way.pop(dispatch.dispatch_id)
        now = one.process.stop_ns = self._engine.now_ns
        reached = now, self._leave_activity(one)
        while not one.ended:
            try:
                one.run.send(reached)
                reached = now, 0.0
            except StopIteration:
                one.ended = True
        return one.process.plan()._replace(ending=Ending.STOPPED)

    def _advance(self, one: _UnderWay, reached: Reached | None) -> None:
        """Begin the next activity of a dispatch, or end the dispatch."""
        now, dispatch = self._engine.now_ns, one.dispatch
        try:
            # A generator is started with None, which does not have the type of later values.
            activity = one.run.send(reached) if reached else next(one.run)
            while type(activity) is Transfer and activity.until_ns <= now:
                activity = one.run.send((now, 0.0))
        except StopIteration:
            # Ends of one instant are processed in order of dispatching.
            one.ended = True
            one.call = self._engine.call_at(now, lambda: self._end(one), dispatch.dispatch_id)
            return
        order: int | None = LEAVING_ORDER + dispatch.dispatch_id
        if type(activity) is Span:
            order = dispatch.dispatch_id if activity.works else None
        elif type(activity) is Transfer:
            one.interrupt = self._links.start(dispatch, activity, lambda: self._activity_ends(one))
        elif type(activity) is JointWork:
            one.interrupt = activity.begin(lambda: self._activity_ends(one))
        if activity.until_ns < NEVER:
            one.call = self._engine.call_at(
                activity.until_ns,
                lambda: self._advance(one, (self._engine.now_ns, self._leave_activity(one))),
                order,
            )

    def _activity_ends(self, one: _UnderWay) -> None:
        one.interrupt = None
        one.cancel_call()
        self._advance(one, (self._engine.now_ns, None))

    def _leave_activity(self, one: _UnderWay) -> float | None:
        """Interrupt the current activity of a dispatch; returns the bytes moved if it is a transfer."""
        one.cancel_call()
        interrupt, one.interrupt = one.interrupt, None
        return None if interrupt is None else interrupt()

    def _end(self, one: _UnderWay) -> None:
        del self._under_way[one.dispatch.dispatch_id]
        self._on_end(one.dispatch, one.process.plan())
