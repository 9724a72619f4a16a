"""The event engine: SimPy on integer nanoseconds with a total order of simultaneous events.

The order at one instant is: flows on shared links that finish; ends of dispatches, in order of dispatching; clients
that leave in the middle of a transfer; timers and deadlines, in the order in which they were set; evaluations. An
update that arrives exactly at a deadline is therefore in time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol, cast

import simpy
from simpy.events import EventPriority

from fedsim.errors import UserError
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.formatting import format_count

FLOW_ORDER = -1
"""Flows that finish, before the ends of dispatches that they cause."""
LEAVING_ORDER = 1 << 59
"""Clients that go offline in the middle of a transfer, after the transfers that end at that instant."""
TIMER_ORDER = 1 << 60
EVALUATION_ORDER = 1 << 61
SETTLING_ORDER = (1 << 61) + 1
"""Shared links settle their rates after all starts and stops of the instant."""
LAST_ORDER = 1 << 62


class Clock(Protocol):
    """The clock of SimPy's environment, in integer nanoseconds."""

    @property
    def now(self) -> int:
        """Simulated nanoseconds since the scenario's start."""


class ScheduledCall(simpy.Event):
    """A call at a fixed time. SimPy cannot cancel an event, so a canceled call still happens but does nothing."""

    def __init__(self, env: simpy.Environment, callback: Callable[[], None]) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self._call: Callable[[], None] | None = callback
        self.callbacks: list[Any] = [self.run]

    def run(self, _: simpy.Event | None = None) -> None:
        """Make the call, unless it was canceled."""
        if self._call is not None:
            self._call()

    def cancel(self) -> None:
        """Make the call do nothing."""
        self._call = None


class Engine:
    """Simulated time.

    Attributes:
        env: SimPy's environment.
        clock: its clock, for code that reads the time often.
        stopped: whether :meth:`stop` was called, or the time was up.
        most_at_once: number of events that may happen at one instant.
    """

    most_at_once = 1_000_000

    def __init__(self) -> None:
        self.env = simpy.Environment(initial_time=0)
        self.clock = cast(Clock, self.env)
        self._timers = TIMER_ORDER
        self.stopped = False

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the scenario's start."""
        return int(self.env.now)

    def call_at(
        self, time_ns: int, callback: Callable[[], None], order: int | None = None
    ) -> ScheduledCall:
        """Schedule a call.

        Args:
            time_ns: when to call; not before now. A call at NEVER or later is not made.
            callback: what to call.
            order: rank among the events of that instant; by default that of a timer, after all timers set before.
        """
        if time_ns < self.env.now:
            raise ValueError(f"a call at {time_ns} ns would lie before now, {self.env.now} ns")
        if order is None:
            self._timers += 1
            order = self._timers
        call = ScheduledCall(self.env, callback)
        if time_ns < NEVER:
            self.env.schedule(call, EventPriority(order), time_ns - self.env.now)
        return call

    def stop(self) -> None:
        """End :meth:`run` after the event that is being processed."""
        self.stopped = True

    def run(self, until_ns: int | None) -> None:
        """Process events in order, until none is left, :meth:`stop` is called, or the time is up.

        Events at ``until_ns`` itself are processed. The clock then shows ``until_ns``, unless the run was stopped.

        Raises:
            UserError: the clock stands still for more than :attr:`most_at_once` events.
        """
        if until_ns is not None:
            self.call_at(until_ns, self.stop, LAST_ORDER)
        step = self.env.step
        with contextlib.suppress(simpy.core.EmptySchedule):
            while not self.stopped:
                before = self.env.now
                for _ in range(self.most_at_once):
                    step()
                    if self.stopped:
                        return
                if self.env.now == before:
                    raise UserError(
                        f"{format_count(self.most_at_once)} events took no time: the clock stands still at "
                        f"{before / NS_PER_S:g} s, so the run would never end",
                        where="devices",
                        hint="give devices.compute a step time, devices.network a latency or rates, or the schedule a "
                        "pause",
                    )

    @property
    def idle(self) -> bool:
        """Whether no event is left."""
        return self.env.peek() == simpy.core.Infinity
