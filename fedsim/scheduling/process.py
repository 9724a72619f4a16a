"""Schedules as processes: generators that act for a server, and yield to wait for what happens next.

Invariant: a process receives everything that happens exactly once and in order, whatever it waits for. It is resumed
within the server's own events and adds none.
"""

from __future__ import annotations

import reprlib
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from fedsim.errors import UserError
from fedsim.parts.component import place
from fedsim.scheduling.port import Dispatch, ServerPort, Timer

if TYPE_CHECKING:
    from fedsim.scheduling.base import Schedule

T = TypeVar("T")


class WakeUp:
    """Something besides the end of a dispatch for which a process waits: a time, an available client, another process.

    Attributes:
        value: whatever the schedule gave it, or the result of the process that has ended.
        has_happened: whether it has.
        wakes: the process that receives it; None if none does.
        timer: the pending call of a time.
        arrived: always False; see :attr:`Dispatch.arrived`.
    """

    __slots__ = ("has_happened", "timer", "value", "wakes")

    arrived = False

    def __init__(
        self, wakes: Process | None, value: Any = None, *, has_happened: bool = False
    ) -> None:
        self.wakes = wakes
        self.value = value
        self.has_happened = has_happened
        self.timer: Timer | None = None

    def happen(self) -> None:
        """Wake the process."""
        self.has_happened = True
        if self.wakes is not None:
            self.wakes.resume(self)

    def cancel(self) -> None:
        """Prevent a time; the process does not receive it any more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.wakes is not None:
            self.wakes.forget(self)

    def __iter__(self) -> NoReturn:
        raise self._misused(
            "a wake-up is waited for with `yield`", "write `yield`, not `yield from` or `for`"
        )

    def __index__(self) -> NoReturn:
        raise self._misused(
            "a wake-up is not a client",
            "wait for the cohort with `yield from`: clients = yield from self.cohort()",
        )

    def _misused(self, message: str, hint: str) -> UserError:
        process = self.wakes
        where = place(type(process._schedule), "run") if process is not None else None
        return UserError(message, where=where, hint=hint)


ANYTHING: Final = None
"""Yielded to wait for whatever happens next."""
Event = Dispatch | WakeUp
"""What a process receives."""
Story = Generator[WakeUp | None, Event, T]
"""A process, or a part of one: it yields the wake-up that it waits for, or ANYTHING."""


class Process(WakeUp):
    """A running story; as a wake-up, it happens when the story has ended."""

    __slots__ = ("_awaited", "_inbox", "_schedule", "_send")

    def __init__(self, schedule: Schedule, story: Story[Any]) -> None:
        super().__init__(None)
        if not isinstance(story, Generator):
            raise UserError(
                "run does not wait for anything: it has no `yield`",
                where=place(type(schedule), "run"),
                hint="write `event = yield` to wait for what happens next",
            )
        self._schedule = schedule
        self._send: Callable[[Any], WakeUp | None] = story.send
        self._awaited: WakeUp | None = None
        # What has happened while the process waited for one wake-up alone.
        self._inbox: deque[Event] = deque()

    def resume(self, event: Event | None) -> None:
        """Run to the next wait that does not end at once, unless the process waits for another event alone."""
        if self._awaited is not None and event is not self._awaited:
            if event is not None:
                self._inbox.append(event)
            return
        self._schedule.active = self
        try:
            awaited = self._send(event)
            while awaited is not None or self._inbox:
                if awaited is None:
                    event = self._inbox.popleft()
                elif not isinstance(awaited, WakeUp):
                    raise self._wrong_wait(awaited)
                elif awaited.has_happened:
                    self.forget(awaited)
                    event = awaited
                else:
                    break
                awaited = self._send(event)
        except StopIteration as end:
            self.value = end.value
            self._awaited = WakeUp(None)  # never happens
            self.happen()
        else:
            self._awaited = awaited

    def forget(self, event: WakeUp) -> None:
        """Do not receive an event that has happened."""
        if event in self._inbox:
            self._inbox.remove(event)

    def _wrong_wait(self, value: object) -> UserError:
        return UserError(
            f"run waits for {reprlib.repr(value)}, which is not a wake-up",
            where=place(type(self._schedule), "run"),
            hint="write `yield from`, as in clients = yield from self.cohort()"
            if isinstance(value, Generator)
            else "write `event = yield` to wait for what happens next, or yield a wake-up, such as self.after(60)",
        )


class Round:
    """Dispatches of one round; those that end after it has closed are late, and no process receives them.

    Args:
        server: hands out the work.
        clients: the clients that get work at once, now or when they check in.

    Attributes:
        arrived: its updates, in order of arrival.
        left: number of clients that work, or wait for it.
    """

    def __init__(self, server: ServerPort, clients: Iterable[int] = ()) -> None:
        self.arrived: list[Dispatch] = []
        self.left = 0
        self._server = server
        self._under_way: dict[int, Dispatch] = {}
        self._waiting: list[Timer] = []
        for client in clients:
            self.dispatch(client)

    def dispatch(
        self, client: int, steps: int | None = None, deadline_ns: int | None = None
    ) -> None:
        """Dispatch work to a client; see :meth:`ServerPort.dispatch`."""
        self.left += 1
        self._waiting.append(
            self._server.dispatch(
                client, steps=steps, deadline_ns=deadline_ns, on_dispatched=self._begun
            )
        )

    def _begun(self, dispatch: Dispatch) -> None:
        self._under_way[dispatch.dispatch_id] = dispatch

    def receive(self, event: Event) -> bool:
        """Count an event if it is the end of a dispatch of the round; returns whether it is an update."""
        if isinstance(event, WakeUp) or self._under_way.pop(event.dispatch_id, None) is None:
            return False
        self.left -= 1
        if event.arrived:
            self.arrived.append(event)
        return event.arrived

    def stop(self, *, cut: bool = False) -> None:
        """Withdraw the work that has not begun; what is under way will be late, or is cut."""
        for waiting in self._waiting:
            waiting.cancel()
        for dispatch in self._under_way.values():
            dispatch.round_is_closed = True
            if cut:
                self._server.cut(dispatch)

    def close(self, *, cut: bool = False) -> None:
        """Stop the round, and end it with the version made of its updates, or without one if there are none."""
        self.stop(cut=cut)
        if self.arrived:
            self._server.aggregate(self.arrived, closes_round=True)
        else:
            self._server.close_round()
