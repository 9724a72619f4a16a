"""Checks what a user's selection draws; one that ships with fedsim is not checked, so that it costs nothing."""

from __future__ import annotations

import functools
import operator
import reprlib
from collections.abc import Callable
from typing import Any

from fedsim.errors import UserError
from fedsim.parts.component import is_bundled, place
from fedsim.scheduling.base import Selection


def check_draws(selection: Selection, clients: int, on_empty: Callable[[], None]) -> None:
    """Let a user's selection raise an error if it draws anything but different available clients, or too many.

    Arrays of clients become lists. A selection that ships with fedsim is left alone.

    Args:
        selection: the selection.
        clients: number of clients.
        on_empty: called when it draws nobody although clients are available.
    """

    def checked(name: str, function: Callable[..., Any]) -> Callable[..., list[int]]:
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
            absent = set(drawn) - available
            if absent and not selection.with_replacement:
                raise _wrong_draw(
                    f"draws client {min(absent)}, which is offline or busy now", where
                )
            if len(drawn) > count:
                raise _wrong_draw(f"draws {len(drawn)} clients, but count is {count}", where)
            return drawn

        return call

    for name in ("draw", "draw_among", "cohort"):
        function = getattr(selection, name)
        if not is_bundled(function):
            setattr(selection, name, checked(name, function))


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
