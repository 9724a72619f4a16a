"""Which clients of a server are at work, which have a dispatch waiting, and which are available.

A client is *engaged* from the moment work is assigned to it until all of its work is done. Only clients that are online
and not engaged are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsim.errors import UserError
from fedsim.randomness import Stream
from fedsim.scheduling.base import Dispatch, Timer
from fedsim.simulation.engine import Engine
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.arrays import Ints

_PATIENCE_NS = 366 * 86_400 * NS_PER_S

Steps = int | Callable[[], int] | None
OnDispatched = Callable[[Dispatch], None] | None
Request = tuple[Steps, int | None, OnDispatched]
"""Steps, deadline and callback of a dispatch."""
Begin = Callable[[int, int, int, Request], None]
"""Begins a dispatch: client, current time, time at which it goes offline, and request."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A dispatch that waits for its client."""

    dispatcher: Dispatcher
    client: int
    request: Request
    has_timer: bool = False

    def cancel(self) -> None:
        self.dispatcher.take_back(self)


class _Done:
    """The timer of a dispatch that has begun and cannot be withdrawn."""

    def cancel(self) -> None:
        pass


_DONE = _Done()


class Dispatcher:
    """Dispatches work to clients, now or when it becomes possible; a server is one.

    Args:
        engine, availability: simulated time, and when clients are online.
        stream: random numbers of uniform draws.
        begin: begins a dispatch.
        next_change_ns: when the selection may draw other clients although no client checks in; None if never.
        is_patient: whether the server may wait for clients without a limit.
        prepare: called with clients that will probably be given work soon.

    Attributes:
        busy_until_ns: nothing is dispatched before this time; set when an aggregation takes time, and NEVER while the
            server is paused.
    """

    def __init__(
        self,
        engine: Engine,
        availability: AvailabilityIndex,
        stream: Stream,
        begin: Begin,
        next_change_ns: Callable[[], int | None],
        *,
        is_patient: bool,
        prepare: Callable[[Ints], None] | None = None,
    ) -> None:
        self.busy_until_ns = 0
        self._engine = engine
        self._clock = engine.clock
        self._availability = availability
        self._sampler = availability.sampler(stream, prepare)
        self._begin_dispatch = begin
        self._next_change_ns = next_change_ns
        self._is_patient = is_patient
        self._draws = 0
        self._drawn_ns = -1
        self._at_work = bytearray(availability.clients)
        self._engaged = np.zeros(availability.clients, dtype=np.bool_)
        # Single clients are read and written through a view, which is cheaper than indexing the array.
        self._is_engaged = self._engaged.data
        self._waiting: dict[int, _Waiting] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._last_dispatch_ns = 0
        self._wake_ns = -1
        self._wake_due = False

    # -- clients that can be drawn --------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Simulated time."""
        return self._clock.now

    def is_online(self, client: int) -> bool:
        """Whether the client is checked in now."""
        return self._availability.is_online(client, self._clock.now)

    def is_busy(self, client: int) -> bool:
        """Whether the client is at work, or work is waiting for it."""
        return bool(self._is_engaged[client])

    def online_clients(self) -> Ints:
        """Clients that are online and not engaged, ascending."""
        online = self._availability.online_clients(self._clock.now)
        return online[~self._engaged[online]]

    def sample_online(self, count: int) -> list[int]:
        """Up to ``count`` different clients, drawn uniformly from those that are online and not engaged."""
        self._draws += 1
        self._drawn_ns = now = self._clock.now
        return self._sampler.sample(count, now, self._engaged, self._draws)

    # -- dispatching ----------------------------------------------------------------------------------------------

    def dispatch(
        self,
        client: int,
        *,
        steps: Steps = None,
        deadline_ns: int | None = None,
        on_dispatched: OnDispatched = None,
    ) -> Timer:
        """Dispatch work to a client now, or as soon as it is online and done with its last work."""
        now = self._clock.now
        if not self._is_engaged[client] and now >= self.busy_until_ns:
            online_until_ns = None
            if now == self._drawn_ns:
                online_until_ns = self._sampler.online_until_ns.get(client)
            if online_until_ns is None:
                online_until_ns = self._availability.online_until(client, now)
            if online_until_ns > now:
                self._at_work[client] = self._is_engaged[client] = True
                self._last_dispatch_ns = now
                request = steps, deadline_ns, on_dispatched
                self._begin_dispatch(client, now, online_until_ns, request)
                return _DONE
        if client in self._waiting:
            raise RuntimeError(f"work for client {client} is waiting already")
        waiting = _Waiting(self, client, (steps, deadline_ns, on_dispatched))
        self._waiting[client] = waiting
        self._is_engaged[client] = True
        self._try_again(waiting)
        return waiting

    def _try_again(self, waiting: _Waiting) -> None:
        """Begin a waiting dispatch if that is possible now; otherwise again when the client checks in or is done."""
        client = waiting.client
        waiting.has_timer = False
        if self._waiting.get(client) is not waiting or self._at_work[client]:
            return
        now = self._clock.now
        if now >= self.busy_until_ns:
            online_until_ns = self._availability.online_until(client, now)
            if online_until_ns > now:
                del self._waiting[client]
                self._at_work[client] = True
                self._last_dispatch_ns = now
                self._begin_dispatch(client, now, online_until_ns, waiting.request)
                return
        if self.busy_until_ns >= NEVER:
            return  # dispatch_waiting() tries again
        due_ns = self._availability.next_online(client, max(now, self.busy_until_ns))
        if due_ns < NEVER:
            self._set_timer(waiting, due_ns)

    def _set_timer(self, waiting: _Waiting, due_ns: int) -> None:
        waiting.has_timer = True
        self._engine.call_at(due_ns, lambda: self._try_again(waiting))

    def take_back(self, waiting: _Waiting) -> None:
        """Withdraw a dispatch that has not begun."""
        client = waiting.client
        if self._waiting.get(client) is waiting:
            del self._waiting[client]
            self._is_engaged[client] = bool(self._at_work[client])

    def release(self, client: int) -> None:
        """Record that the client is done with its dispatch and can be given work again."""
        self._at_work[client] = False
        self._is_engaged[client] = client in self._waiting

    def occupy(self, client: int) -> None:
        """Give a client no work until :meth:`release`: it is at work for another server."""
        self._at_work[client] = self._is_engaged[client] = True

    def dispatch_waiting(self) -> None:
        """Begin waiting dispatches again after a pause, in which :attr:`busy_until_ns` was NEVER."""
        self.busy_until_ns = 0
        for waiting in list(self._waiting.values()):
            if not waiting.has_timer:
                self._try_again(waiting)

    def withdraw_all(self) -> None:
        """Withdraw all dispatches that have not begun, and forget the callers that wait for a client."""
        for waiting in list(self._waiting.values()):
            self.take_back(waiting)
        self._callbacks.clear()

    # -- waiting for clients --------------------------------------------------------------------------------------

    def call_when_available(self, callback: Callable[[], None]) -> None:
        """Call back once, when the next client becomes available."""
        self._callbacks.append(callback)
        now = self._clock.now
        if self._wake_ns <= now:
            self._wake_ns = self._availability.next_arrival(now)
            change_ns = self._next_change_ns()
            if change_ns is not None:
                self._wake_ns = min(self._wake_ns, change_ns)
            if self._wake_ns < NEVER:
                self._engine.call_at(self._wake_ns, self._wake)

    def look_again(self, client: int) -> None:
        """After a client's work has ended, begin its waiting dispatch and wake the callers that wait for a client."""
        if self._waiting:
            waiting = self._waiting.get(client)
            # Work assigned at this very end has its own timer, and keeps its position among the others.
            if waiting is not None and not waiting.has_timer and self.busy_until_ns < NEVER:
                self._set_timer(waiting, self._clock.now)
        if self._callbacks and not self._wake_due:
            self._wake_due = True
            self._engine.call_at(self._clock.now, self._wake)

    def _wake(self) -> None:
        self._wake_due = False
        if not self._is_patient and self._clock.now > self._last_dispatch_ns + _PATIENCE_NS:
            raise UserError(
                f"the server has waited {_PATIENCE_NS // (86_400 * NS_PER_S)} simulated days without finding enough "
                "clients to work",
                where="server.schedule",
                hint="check availability and memory of the devices and the cohort's size, or give stop.simulated_time",
            )
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
