"""Checks what a user's selection returns and what a user's schedule requests of the server.

Parts that ship with fedsim are not checked, so that they cost nothing.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import FrameType
from typing import Any, ClassVar, TypeVar

from fedsim.errors import UserError
from fedsim.global_generators import random_numbers, unmoved
from fedsim.parts.component import is_bundled, place
from fedsim.scheduling.base import Dispatch, Schedule, Selection, ServerPort, Timer
from fedsim.scheduling.standstill import Standstill
from fedsim.simulation.handouts import HandOuts
from fedsim.units import to_s
from fedsim.vocabulary.formatting import format_count, format_duration

_TIMES = (
    "times are whole nanoseconds since the start: self.server.now_ns + round(60 * 1e9) is one minute "
    "from now"
)
_CLIENTS = (
    "return a list of client numbers, such as self.available()[:count].tolist(), or [] for none"
)
_Result = TypeVar("_Result")
_CALLBACK = "give the function without calling it: self.begin, not self.begin()"


def check_selection(selection: Selection, server: ServerPort, on_empty: Callable[[], None]) -> None:
    """Let a user's selection raise an error if it returns anything but different clients, too many of them, or a wrong
    number.

    Arrays of clients become lists. A selection that ships with fedsim is left alone.

    Args:
        selection, server: the selection and its server.
        on_empty: called when it draws nobody although clients are available.
    """
    if is_bundled(type(selection)):
        return

    def clients(value: Any, where: str) -> list[int]:
        try:
            drawn = [_client(item, server.clients, "draws", where, _CLIENTS) for item in value]
        except TypeError:
            raise UserError(
                f"returns {reprlib.repr(value)}, not a list of clients", where=where, hint=_CLIENTS
            ) from None
        if len(set(drawn)) < len(drawn):
            twice = next(client for client in drawn if drawn.count(client) > 1)
            raise UserError(
                f"draws client {twice} more than once: {reprlib.repr(drawn)}",
                where=where,
                hint="return different clients; to draw some more than once, derive the class from "
                "fedsim.scheduling.drawing.Replacing and return self.counted(drawn)",
            )
        return drawn

    def number(value: Any, where: str, least: int) -> int:
        if not _is_whole(value) or value < least:
            message = f"returns {reprlib.repr(value)}, not a whole number of at least {least}"
            raise UserError(message, where=where, hint="round it with int(...)")
        return int(value)

    def next_change(value: Any, where: str) -> int | None:
        if value is None:
            return None
        time_ns = _instant(value, "returns", where)
        if time_ns <= server.now_ns:
            message = f"returns {value}, which is not later than the current time, {server.now_ns}"
            raise UserError(message, where=where, hint=f"{_TIMES}; None means never")
        return time_ns

    checks: dict[str, Callable[[Any, str], Any]] = {
        **dict.fromkeys(("draw", "draw_among", "cohort"), clients),
        "cohort_size": functools.partial(number, least=0),
        "multiplicity": functools.partial(number, least=1),
        "next_change_ns": next_change,
    }
    for name, check in checks.items():
        function, where = getattr(selection, name), place(type(selection), name)
        setattr(selection, name, _checked(function, check, where))
        if name in ("draw", "draw_among") and not is_bundled(function):
            setattr(
                selection, name, _available(getattr(selection, name), selection, where, on_empty)
            )


def check_requests(
    server: ServerPort,
    schedule: Schedule,
    selection: Selection,
    handouts: HandOuts,
    held: Mapping[Dispatch, Any],
) -> None:
    """Let ``server`` check the requests of a user's schedule, the dispatches to clients of a user's selection, and the
    numbers of clients that either passes to it.

    Args:
        server: the server; unchanged if schedule and selection ship with fedsim.
        schedule, selection: its schedule and selection.
        handouts: its hand-outs.
        held: its updates that have arrived and are not used yet.
    """
    if is_bundled(type(schedule)) and is_bundled(type(selection)):
        return
    requests = _Requests(server, schedule, selection, handouts, held)
    for name in ("dispatch",) if is_bundled(type(schedule)) else _Requests.NAMES:
        setattr(server, name, getattr(requests, name))
    for name in _Requests.QUERIES:
        setattr(server, name, requests.query(name))


class _Requests:
    """The functions of the server that change a run or return facts of a client, with checks of their arguments.

    Args:
        server, schedule, selection, handouts, held: see :func:`check_requests`.
    """

    NAMES: ClassVar[tuple[str, ...]] = (
        "dispatch",
        "call_at",
        "call_when_available",
        "discard",
        "cut",
        "aggregate",
    )
    QUERIES: ClassVar[tuple[str, ...]] = ("is_online", "is_busy", "expected_duration_s")
    CALLS: ClassVar[int] = 100_000
    """Calls at one instant, besides two per client, after which a run in which nothing else happens is stopped."""
    IDLE_CALLS: ClassVar[int] = 5_000_000
    """Calls without a dispatch between them after which a run is stopped: two months of calls every second."""

    def __init__(
        self,
        server: ServerPort,
        schedule: Schedule,
        selection: Selection,
        handouts: HandOuts,
        held: Mapping[Dispatch, Any],
    ) -> None:
        self._server = server
        # A schedule that ships with fedsim makes the requests that follow from the selection's draws.
        self._otherwise = (
            place(type(selection), "draw")
            if is_bundled(type(schedule))
            else place(type(schedule), "start")
        )
        self._files = {
            getattr(sys.modules.get(base.__module__), "__file__", None)
            for base in (*type(schedule).__mro__, *type(selection).__mro__)
            if not is_bundled(base) and base.__module__ not in ("builtins", "abc")
        }
        self._schedule_is_bundled = is_bundled(type(schedule))
        self._announced: Dispatch | None = None
        self._handouts = handouts
        self._held = held
        self._standstill = Standstill("dispatches", allowance=2 * server.clients)
        self._instant_ns = -1
        self._calls = self._idle_calls = 0
        self._dispatch = server.dispatch
        self._call_at = server.call_at
        self._call_when_available = server.call_when_available
        self._discard = server.discard
        self._cut = server.cut
        self._aggregate = server.aggregate

    def dispatch(
        self,
        client: int,
        *,
        steps: int | Callable[[], int] | None = None,
        deadline_ns: int | None = None,
        on_dispatched: Callable[[Dispatch], None] | None = None,
    ) -> Timer:
        self._idle_calls = 0
        where = self._where()
        client = _client(client, self._server.clients, "dispatches", where)
        if self._handouts.is_waiting(client):
            raise UserError(
                f"dispatches client {client}, for which work is waiting already",
                where=where,
                hint="dispatch only clients for which self.server.is_busy(client) is false, such as those of "
                "self.server.online_clients()",
            )
        if callable(steps):
            steps = _checked(self._watched(steps, where), _steps, where)
        elif steps is not None:
            steps = _steps(steps, where)
        if deadline_ns is not None:
            deadline_ns = _instant(deadline_ns, "dispatches with deadline_ns =", where)
        if on_dispatched is not None:
            _check_callback(on_dispatched, "dispatch", where)
            on_dispatched = functools.partial(self._announce, self._watched(on_dispatched, where))
        self._calls = 0
        self._standstill.count(self._server.now_ns)
        return self._dispatch(
            client, steps=steps, deadline_ns=deadline_ns, on_dispatched=on_dispatched
        )

    def _announce(self, on_dispatched: Callable[[Dispatch], None], dispatch: Dispatch) -> None:
        outer, self._announced = self._announced, dispatch
        on_dispatched(dispatch)
        self._announced = outer

    def query(self, name: str) -> Callable[[int], Any]:
        """A function of the server that returns a fact of a client."""
        answer: Callable[[int], Any] = getattr(self._server, name)

        def ask(client: int) -> Any:
            if type(client) is not int or not 0 <= client < self._server.clients:
                client = _client(client, self._server.clients, f"calls {name} for", self._where())
            return answer(client)

        ask.__qualname__ = f"self.server.{name}"
        return ask

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        where, now_ns = self._where(), self._server.now_ns
        time_ns = _instant(time_ns, "requests a call at", where)
        if time_ns < now_ns:
            message = f"requests a call at {time_ns} ns, before the current time, {now_ns} ns"
            raise UserError(message, where=where, hint=_TIMES)
        _check_callback(callback, "call_at", where)
        if time_ns == now_ns:
            self._count_call(now_ns, where)
        self._idle_calls += 1
        if self._idle_calls > self.IDLE_CALLS:
            raise UserError(
                f"has requested {format_count(self._idle_calls)} calls without dispatching anything, up to "
                f"{format_duration(to_s(now_ns))}, so the run may never end",
                where=where,
                hint="dispatch work, or give stop.simulated_time",
            )
        return self._call_at(time_ns, self._watched(callback, where))

    def _count_call(self, now_ns: int, where: str) -> None:
        if now_ns != self._instant_ns:
            self._instant_ns, self._calls = now_ns, 0
        self._calls += 1
        if self._calls > self.CALLS + 2 * self._server.clients:
            raise UserError(
                f"requests a call at the current time, {format_duration(to_s(now_ns))}, for the "
                f"{format_count(self._calls)}th time without dispatching anything, so the run may never end",
                where=where,
                hint="request a call at a later time, or wait for a client with self.server.call_when_available",
            )

    def call_when_available(self, callback: Callable[[], None]) -> None:
        where = self._where()
        _check_callback(callback, "call_when_available", where)
        self._call_when_available(self._watched(callback, where))

    def discard(self, dispatch: Dispatch, *, late: bool = False) -> None:
        self._check_arrived(dispatch, "discards", self._where())
        self._discard(dispatch, late=late)

    def cut(self, dispatch: Dispatch) -> None:
        where = self._where()
        _check_dispatch(dispatch, "cuts", where)
        if dispatch in self._held:
            raise UserError(
                f"cuts dispatch {dispatch.dispatch_id}, whose update has arrived",
                where=where,
                hint="aggregate or discard the update",
            )
        if dispatch is self._announced:
            raise UserError(
                f"cuts dispatch {dispatch.dispatch_id} while it is being handed out",
                where=where,
                hint="cut it later: self.server.call_at(self.server.now_ns, lambda: self.server.cut(dispatch))",
            )
        self._cut(dispatch)

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        *,
        groups: Sequence[int] | None = None,
        attributes: Mapping[str, float] | None = None,
        closes_round: bool = False,
    ) -> int:
        where = self._where()
        if not isinstance(dispatches, Iterable):
            message = f"aggregates {_shown(dispatches)}, not a list of dispatches"
            raise UserError(message, where=where, hint="self.server.aggregate([dispatch])")
        dispatches, seen = list(dispatches), set[Dispatch]()
        for dispatch in dispatches:
            self._check_arrived(dispatch, "aggregates", where)
            if dispatch in seen:
                message = f"aggregates dispatch {dispatch.dispatch_id} twice in one version"
                raise UserError(message, where=where, hint="list every dispatch once")
            seen.add(dispatch)
        if groups is not None:
            groups = list(groups) if isinstance(groups, Iterable) else [groups]
            if len(groups) != len(dispatches) or not all(map(_is_whole, groups)):
                raise UserError(
                    f"aggregates {len(dispatches)} dispatches with groups = {reprlib.repr(groups)}",
                    where=where,
                    hint="give one whole number per dispatch",
                )
            groups = [int(group) for group in groups]
        if attributes is not None and not (
            isinstance(attributes, Mapping)
            and all(isinstance(name, str) for name in attributes)
            and all(isinstance(value, Real) for value in attributes.values())
        ):
            raise UserError(
                f"aggregates with attributes = {reprlib.repr(attributes)}",
                where=where,
                hint="give numbers by name: attributes={'weight': 0.5}",
            )
        return self._aggregate(
            dispatches, groups=groups, attributes=attributes, closes_round=closes_round
        )

    def _check_arrived(self, dispatch: Dispatch, action: str, where: str) -> None:
        _check_dispatch(dispatch, action, where)
        if dispatch in self._held:
            return
        if dispatch.used:
            state = "which a version contains already"
        elif dispatch.open:
            state = "whose update has not arrived"
        elif dispatch.arrived_ns >= 0:
            state = "whose update has been discarded"
        else:
            state = "whose work was cut or lost, so that it has no update"
        raise UserError(
            f"{action} dispatch {dispatch.dispatch_id} (client {dispatch.client}), {state}",
            where=where,
            hint="aggregate or discard every update once, when on_arrival has received it or later",
        )

    def _watched(self, callback: Callable[..., _Result], where: str) -> Callable[..., _Result]:
        """The callback of a user's schedule, which must not draw from a global generator either."""
        if self._schedule_is_bundled:
            return callback
        code = getattr(inspect.unwrap(getattr(callback, "__func__", callback)), "__code__", None)
        if code is not None and code.co_filename in self._files:
            function = code.co_qualname.partition(".<locals>")[0]
            where = f"{code.co_filename}:{code.co_firstlineno}: {function}"

        def call(*args: Any) -> _Result:
            with unmoved(where, random_numbers("schedule")):
                return callback(*args)

        return call

    def _where(self) -> str:
        """The user's function that makes the request."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if code.co_filename in self._files:
                function = code.co_qualname.partition(".<locals>")[0]
                return f"{code.co_filename}:{frame.f_lineno}: {function}"
            frame = frame.f_back
        return self._otherwise


for _name in _Requests.NAMES:
    # How a TypeError names the function that a user's code called with wrong arguments.
    getattr(_Requests, _name).__qualname__ = f"self.server.{_name}"


def _checked(
    function: Callable[..., Any], check: Callable[[Any, str], Any], where: str
) -> Callable[..., Any]:
    """The function, whose return values pass through ``check``."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return check(function(*args, **kwargs), where)

    return call


def _available(
    draw: Callable[..., list[int]],
    selection: Selection,
    where: str,
    on_empty: Callable[[], None],
) -> Callable[..., list[int]]:
    """The function ``draw`` of a selection, which must not return more clients than are requested, or others than
    those that are available; ``on_empty`` is called if it returns none of them."""

    @functools.wraps(draw)
    def call(count: int, *args: Any, **kwargs: Any) -> list[int]:
        available = set(selection.available().tolist())
        drawn = draw(count, *args, **kwargs)
        if not drawn and available and count > 0:
            on_empty()
        absent = next((one for one in drawn if one not in available), None)
        if absent is not None and not selection.with_replacement:
            raise UserError(
                f"draws client {absent}, which is offline or busy now", where=where, hint=_CLIENTS
            )
        if len(drawn) > count:
            raise UserError(
                f"draws {len(drawn)} clients: {reprlib.repr(drawn)}, but count is {count}",
                where=where,
                hint="return at most count clients; the size of a round is that of cohort_size()",
            )
        return drawn

    return call


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _client(value: Any, clients: int, action: str, where: str, hint: str | None = None) -> int:
    if not _is_whole(value):
        message = f"{action} {_shown(value)}, which is not a client number"
    elif not 0 <= value < clients:
        message = f"{action} client {value}; clients are 0 to {clients - 1}"
    else:
        return int(value)
    raise UserError(message, where=where, hint=hint or "give the number of a client as an int")


def _steps(value: Any, where: str) -> int:
    if not _is_whole(value) or value < 0:
        message = f"dispatches with steps = {_shown(value)}, which is not a number of local steps"
        hint = (
            "give a whole number of at least 0, such as max(1, int(steps)), or None for all steps"
        )
        raise UserError(message, where=where, hint=hint)
    return int(value)


def _instant(value: Any, action: str, where: str) -> int:
    """A time in whole nanoseconds."""
    if not _is_whole(value):
        message = f"{action} {_shown(value)}, which is not a time in whole nanoseconds"
        raise UserError(message, where=where, hint=_TIMES)
    return int(value)


def _check_callback(callback: Any, name: str, where: str) -> None:
    if not callable(callback):
        message = f"gives {name} {_shown(callback)} instead of a function"
        raise UserError(message, where=where, hint=_CALLBACK)


def _check_dispatch(dispatch: Any, action: str, where: str) -> None:
    if not isinstance(dispatch, Dispatch):
        raise UserError(
            f"{action} {_shown(dispatch)}, which is not a dispatch",
            where=where,
            hint="dispatches come from on_arrival, on_failure and on_dispatched",
        )


def _shown(value: Any) -> str:
    return f"{reprlib.repr(value)} ({type(value).__name__})"
