"""The interfaces of schedules (when) and selections (which clients), which act through the server
(:class:`~fedsim.scheduling.port.ServerPort`).

A schedule is a process: :meth:`Schedule.run` is a generator that acts, and yields to wait for what happens. It receives
everything that happens exactly once and in order, whatever it waits for. It is resumed within the server's own events
and adds none.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, TypeVar

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Component, Parameters, is_bundled, place
from fedsim.randomness import Purpose
from fedsim.scheduling.port import Dispatch as Dispatch
from fedsim.scheduling.port import ServerPort as ServerPort
from fedsim.scheduling.port import Timer as Timer
from fedsim.units import to_ns
from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.metrics import DispatchLoss

T = TypeVar("T")
_WAITS_AT_ONCE = 1_000_000
"""Waits of a schedule that may take no time, besides ten for each client."""


class Selection(Component, ABC):
    """Decides which clients to dispatch.

    Attributes:
        chooses: whether it chooses among the available clients; otherwise the clients are fixed in advance.
        needs_training: whether it learns from training losses or accuracies, so that a run without training cannot use
            it.
        needs_client_tests: whether it learns from accuracies on clients' own test samples.
        dispatch_loss: the training losses that it needs.
        with_replacement: whether a client may be drawn several times for one round.
    """

    chooses: ClassVar[bool] = True
    needs_training: ClassVar[bool] = False
    needs_client_tests: ClassVar[bool] = False
    dispatch_loss: ClassVar[DispatchLoss] = "mean"
    with_replacement: ClassVar[bool] = False

    def __init__(self, params: Any, server: ServerPort) -> None:
        self.params = params
        self.server = server
        self._members: Bools | None = None
        self._generators = 0

    @abstractmethod
    def draw(self, count: int) -> list[int]:
        """Draw up to ``count`` different clients, all of them in :meth:`available`."""

    def draw_among(self, count: int, members: Bools) -> list[int]:
        """:meth:`draw` restricted to ``members`` (N,), such as a tier."""
        self._members = members
        try:
            return [client for client in self.draw(count) if members[client]]
        finally:
            self._members = None

    def available(self) -> Ints:
        """Clients that may be drawn now, ascending: checked in, idle, and among the members that :meth:`draw_among`
        restricts to."""
        clients = self.server.online_clients()
        return clients if self._members is None else clients[self._members[clients]]

    def generator(self) -> np.random.Generator:
        """A generator for one draw; every call returns a different one."""
        self._generators += 1
        return self.server.stream(Purpose.SELECTION, 1).generator(k=self._generators)

    def next_change_ns(self) -> int | None:
        """When the selection may next draw different clients although no client checks in; None if it never does."""
        return None

    @property
    def allows_empty(self) -> bool:
        """Whether an empty cohort is a round without participants, rather than a lack of available clients."""
        return False

    def multiplicity(self, client: int) -> int:
        """How often the last draw that included ``client`` drew it; 1 unless drawn with replacement."""
        return 1

    def cohort(self, factor: float = 1.0) -> list[int]:
        """The clients of the next round; ``factor`` (over-selection) enlarges the cohort."""
        return self.draw(self.cohort_size(factor))

    def cohort_size(self, factor: float = 1.0) -> int:
        """Number of clients wanted for a round: ``cohort`` times ``factor``, rounded up; all clients if no cohort is
        given."""
        size = cohort_of(self.params)
        return self.server.clients if size is None else math.ceil(size * factor - 1e-9)

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Record an update that has arrived."""

    def on_failure(self, dispatch: Dispatch) -> None:
        """Record that a client has gone offline with its work."""


class CohortParams(Parameters):
    """Parameters of selections with a cohort size."""

    cohort: int | None = Field(default=None, ge=1, le=10**9)
    """Clients per round; default: all available clients."""


def cohort_of(params: Parameters) -> int | None:
    """The parameter ``cohort`` of a selection; None if it was not given or the selection has none."""
    cohort: int | None = getattr(params, "cohort", None)
    return cohort


@dataclass(frozen=True, slots=True)
class Demands:
    """Demands of a schedule on the clients.

    Attributes:
        updates: least number of updates per version.
        limit_s: how long it waits for a client in seconds; None if without limit.
        over_selection: factor by which it enlarges the cohort.
        cohort: clients that must be available for a round to start; None if it cannot wait for more.
        concurrency: clients that it keeps busy; None if not limited by the schedule.
    """

    updates: int = 1
    limit_s: float | None = None
    over_selection: float = 1.0
    cohort: int | None = None
    concurrency: int | None = None


class Schedule(Component, ABC):
    """Decides when to dispatch, wait, cut and aggregate.

    Attributes:
        synchronous: whether all work of a round starts from one version and is aggregated before the next round.
        begins_with_prologue: whether it dispatches the prologue of a method that has one.
        needs_all_clients: whether all clients participate all the time, so that a selection is refused.
        draws_if: setting with which a schedule that gives work to all clients draws them with its selection instead.
        needs_choice: whether the selection must choose among the clients that are available.
        patience: name of the parameter that limits how long it waits for a client; required if the server never detects
            failures. Empty if the schedule does not wait.
        updates_needed: name of the parameter that sets the minimum number of updates per version; empty if one is
            enough.
        paper: source of the schedule; a user's class does not inherit it.

    :mod:`fedsim.composition.needs` checks these needs.
    """

    synchronous: ClassVar[bool] = False
    begins_with_prologue: ClassVar[bool] = False
    needs_all_clients: ClassVar[bool] = False
    draws_if: ClassVar[str] = ""
    needs_choice: ClassVar[bool] = False
    patience: ClassVar[str] = ""
    updates_needed: ClassVar[str] = ""
    paper: ClassVar[str] = ""

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        self.params = params
        self.server = server
        self.selection = selection
        self.active: Process | None = None
        self._still_ns, self._waits_at_once = -1, 0

    @classmethod
    def class_problem(cls) -> str:
        """Why a class with a process of its own cannot replace what passes events to it."""
        own = {name for base in cls.__mro__ if not is_bundled(base) for name in vars(base)}
        both = sorted(own & {"on_arrival", "on_failure"}) if "run" in own else []
        return (
            f"{both[0]} keeps events from run; leave it out, and take them with event = yield"
            if both
            else ""
        )

    @classmethod
    def demands(cls, params: Any) -> Demands:
        """The demands of the schedule with these parameters."""
        return Demands(
            updates=getattr(params, cls.updates_needed) if cls.updates_needed else 1,
            limit_s=getattr(params, cls.patience) if cls.patience else None,
        )

    @classmethod
    def tiers(cls, params: Any, durations_s: Floats, online: Ints) -> Ints | None:
        """Tier of each client, (N,), if the clients work in tiers; None otherwise.

        Args:
            params: the schedule's parameters.
            durations_s: expected duration of a dispatch to each client, (N,).
            online: clients online when the first round starts.
        """
        return None

    def draws(self) -> bool:
        """Whether it draws clients with its selection; if not, all clients participate, and a selection is refused."""
        return not self.needs_all_clients

    @abstractmethod
    def run(self) -> Story[None]:
        """The process, from time 0 on.

        ``event = yield`` waits for what happens next: the end of a :class:`Dispatch`, with its update if
        ``event.arrived``, or a :class:`WakeUp` that it has asked for. ``yield wake_up`` waits for this one alone, and
        the following ``yield`` receives what happens meanwhile. Time passes only while it waits.
        """

    def start(self) -> None:
        """Begin the process."""
        self._main = self.begin(self.run())

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Resume the process with an arrived update, or discard one that is late."""
        if dispatch.round_is_closed:
            self.server.discard(dispatch, late=True)
        else:
            self.process_of(dispatch).resume(dispatch)

    def on_failure(self, dispatch: Dispatch) -> None:
        """Resume the process with a dispatch whose update will never arrive."""
        if not dispatch.round_is_closed:
            self.process_of(dispatch).resume(dispatch)

    def process_of(self, dispatch: Dispatch) -> Process:
        """The process that receives the end of a dispatch, if there are several."""
        return self._main

    def begin(self, story: Story[Any]) -> Process:
        """Begin another process beside this one, which may wait for its end: ``yield process``."""
        outer = self.active
        process = Process(self, story)
        process.resume(None)
        process.wakes, self.active = outer, outer or process
        return process

    def at(self, time_ns: int, value: Any = None) -> WakeUp:
        """A wake-up at a time, after all arrivals of that instant.

        Raises:
            UserError: the schedule waits for the present again and again.
        """
        if time_ns <= self.server.now_ns:
            self._wait_at_once()
        wake_up = WakeUp(self.active, value)
        wake_up.timer = self.server.call_at(time_ns, wake_up.happen)
        return wake_up

    def after(self, seconds: float) -> WakeUp:
        """A wake-up in so many seconds; 0 is after all that happens in this instant."""
        return self.at(self.server.now_ns + to_ns(seconds))

    def client_available(self) -> WakeUp:
        """A wake-up when the next client becomes available, or the selection may draw other clients."""
        wake_up = WakeUp(self.active)
        self.server.call_when_available(wake_up.happen)
        return wake_up

    def cohort(
        self, draw: Callable[[], list[int]] | None = None, at_least: int = 1
    ) -> Story[list[int]]:
        """Wait until the server is free and the selection draws clients for a round: ``yield from self.cohort()``.

        Args:
            draw: draws them; the selection's cohort if None.
            at_least: number of clients to wait for.
        """
        while True:
            yield self.server_free()
            clients = (draw or self.selection.cohort)()
            if len(clients) >= at_least:
                return clients
            yield self.client_available()

    def server_free(self) -> WakeUp:
        """A wake-up when the server is done with its last aggregation; it has happened if the server is free."""
        # The clients drawn then must still be online when the server can dispatch again.
        if self.server.now_ns < self.server.busy_until_ns:
            return self.at(self.server.busy_until_ns)
        self._wait_at_once()
        return WakeUp(self.active, has_happened=True)

    def _wait_at_once(self) -> None:
        now_ns = self.server.now_ns
        if now_ns != self._still_ns:
            self._still_ns, self._waits_at_once = now_ns, 0
        self._waits_at_once += 1
        if self._waits_at_once > _WAITS_AT_ONCE + 10 * self.server.clients:
            raise _misuse(
                self,
                f"run waits for the present again and again: the clock stands still at {now_ns / 1e9:g} s, so the run "
                "would never end",
                "wait for what happens next, event = yield, or for a later time, such as self.after(60)",
            )


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
        message, hint = (
            "a wake-up is waited for with `yield`",
            "write `yield`, not `yield from` or `for`",
        )
        raise _misuse(self.wakes, message, hint)

    def __index__(self) -> NoReturn:
        hint = "wait for the cohort with `yield from`: clients = yield from self.cohort()"
        raise _misuse(self.wakes, "a wake-up is not a client", hint)


def _misuse(of: Schedule | Process | None, message: str, hint: str) -> UserError:
    schedule = of._schedule if isinstance(of, Process) else of
    where = None if schedule is None else place(type(schedule), "run")
    return UserError(message, where=where, hint=hint)


_NEXT = "write `event = yield` to wait for what happens next"
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
            message = "run does not wait for anything: it has no `yield`"
            raise _misuse(schedule, message, _NEXT)
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
                    hint = f"{_NEXT}, or yield a wake-up, such as self.after(60)"
                    if isinstance(awaited, Generator):
                        hint = "write `yield from`, as in clients = yield from self.cohort()"
                    message = f"run waits for {reprlib.repr(awaited)}, which is not a wake-up"
                    raise _misuse(self._schedule, message, hint)
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


class Round:
    """Dispatches of one round; those that end after it has closed are late, and no process receives them.

    Args:
        server: hands out the work.
        clients: the clients that get work at once, now or when they check in.
        deadline_ns: latest useful arrival of their updates, as in :meth:`ServerPort.dispatch`.

    Attributes:
        arrived: its updates, in order of arrival.
        left: number of clients that work, or wait for it.
    """

    def __init__(
        self, server: ServerPort, clients: Iterable[int] = (), deadline_ns: int | None = None
    ) -> None:
        self.arrived: list[Dispatch] = []
        self.left = 0
        self._server = server
        self._under_way: dict[int, Dispatch] = {}
        self._waiting: list[Timer] = []
        for client in clients:
            self.dispatch(client, deadline_ns=deadline_ns)

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
        # A process that waits for one wake-up alone has not received what arrived meanwhile.
        arrived = [dispatch for dispatch in self._under_way.values() if dispatch.arrived]
        for dispatch in sorted(arrived, key=lambda dispatch: dispatch.arrived_ns):
            self.receive(dispatch)
        for dispatch in self._under_way.values():
            dispatch.round_is_closed = True
            if cut:
                self._server.cut(dispatch)

    def close(self, *, cut: bool = False) -> None:
        """Stop the round, and end it with the version made of its updates, or without one if there are none."""
        self.stop(cut=cut)
        if self.arrived:
            self._server.aggregate(self.arrived)
        else:
            self._server.close_round()
