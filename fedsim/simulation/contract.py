"""Checks what a user's selection draws and what a user's schedule requests of the server.

Parts that ship with fedsim are not checked, so that they cost nothing.
"""

from __future__ import annotations

import functools
import operator
import reprlib
from collections.abc import Callable
from typing import Any

from fedsim.errors import UserError
from fedsim.parts.component import is_bundled, place
from fedsim.scheduling.base import Dispatch, Schedule, Selection, ServerPort, Timer


def check_draws(selection: Selection, clients: int, on_empty: Callable[[], None]) -> None:
    """Let a user's selection raise an error if it draws anything but different available clients, or too many.

    Arrays of clients become lists. A selection that ships with fedsim is left alone.

    Args:
        selection: the selection.
        clients: number of clients.
        on_empty: called when it draws nobody although clients are available.
    """

    def checked(name: str) -> Callable[..., list[int]]:
        function = getattr(selection, name)
        where = place(type(selection), name)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> list[int]:
            available = set(selection.available().tolist())
            drawn = _drawn(function(*args, **kwargs), clients, where)
            if name == "cohort":
                return drawn
            count = args[0] if args else kwargs["count"]
            if not drawn and available and count > 0:
                on_empty()
            absent = next((client for client in drawn if client not in available), None)
            if absent is not None and not selection.with_replacement:
                raise _wrong_draw(f"draws client {absent}, which is offline or busy now", where)
            if len(drawn) > count:
                raise _wrong_draw(
                    f"draws {len(drawn)} clients, {reprlib.repr(drawn)}, but count is {count}",
                    where,
                )
            return drawn

        return call

    for name in ("draw", "draw_among", "cohort"):
        if not is_bundled(getattr(selection, name)):
            setattr(selection, name, checked(name))


def _drawn(value: Any, clients: int, where: str) -> list[int]:
    """The clients that a selection has returned."""
    try:
        drawn = [operator.index(client) for client in value]
    except TypeError:
        raise _wrong_draw(f"returns {reprlib.repr(value)}, not a list of clients", where) from None
    for client in drawn:
        if not 0 <= client < clients:
            raise _wrong_draw(f"draws client {client}; clients are 0 to {clients - 1}", where)
    if len(set(drawn)) < len(drawn):
        raise UserError(
            f"draws a client more than once: {reprlib.repr(drawn)}",
            where=where,
            hint="return different clients; to draw some more than once, derive the class from "
            "fedsim.scheduling.drawing.Replacing and return self.counted(drawn)",
        )
    return drawn


def _wrong_draw(message: str, where: str) -> UserError:
    hint = "return a list of at most count clients, such as self.available()[:count].tolist()"
    return UserError(message, where=where, hint=hint)


def check_requests(server: ServerPort, schedule: Schedule) -> None:
    """Let ``server`` check the arguments of a user's schedule that would pass silently otherwise.

    The user's traceback shows the line that gave a wrong one.
    """
    if is_bundled(type(schedule)):
        return
    dispatch, call_at = server.dispatch, server.call_at

    def checked_dispatch(
        client: int,
        *,
        steps: int | Callable[[], int] | None = None,
        deadline_ns: int | None = None,
        on_dispatched: Callable[[Dispatch], None] | None = None,
    ) -> Timer:
        if not 0 <= (number := operator.index(client)) < server.clients:
            raise ValueError(f"client {client}; clients are 0 to {server.clients - 1}")
        if not (steps is None or callable(steps)) and (steps := operator.index(steps)) < 0:
            raise ValueError(f"steps = {steps}, not a whole number of at least 0")
        if deadline_ns is not None:
            deadline_ns = _instant(deadline_ns)
        return dispatch(number, steps=steps, deadline_ns=deadline_ns, on_dispatched=on_dispatched)

    def checked_call_at(time_ns: int, callback: Callable[[], None]) -> Timer:
        if not callable(callback):
            raise TypeError(f"not a function: {callback!r}; write self.begin, not self.begin()")
        return call_at(_instant(time_ns), callback)

    # How a TypeError names the function that a user's code called with wrong arguments.
    checked_dispatch.__qualname__ = "self.server.dispatch"
    checked_call_at.__qualname__ = "self.server.call_at"
    vars(server).update(dispatch=checked_dispatch, call_at=checked_call_at)


def _instant(time_ns: int) -> int:
    try:
        return operator.index(time_ns)
    except TypeError:
        raise TypeError(
            f"{time_ns!r} is not a time in whole nanoseconds; one minute from now is self.server.now_ns + 60 * 10**9"
        ) from None
