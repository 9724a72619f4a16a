"""Checks what a user's selection draws; one that ships with fedsim is not checked, so that it costs nothing."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fedsim.errors import UserError
from fedsim.parts.component import is_bundled, place
from fedsim.scheduling.base import Selection

if TYPE_CHECKING:
    from fedsim.simulation.story import Server


def check_draws(selection: Selection, server: Server) -> None:
    """Let a user's selection raise an error if it draws anything but different available clients, or too many.

    Arrays of clients become lists. ``server.empty_draws`` counts draws of nobody although clients are available.
    """
    for name in ("draw", "draw_among", "cohort"):
        function = getattr(selection, name)
        if not is_bundled(function):
            setattr(selection, name, partial(_checked, selection, server, function))


def _checked(
    selection: Selection,
    server: Server,
    draw: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> list[int]:
    available = set(selection.available().tolist())
    value = draw(*args, **kwargs)
    clients, is_cohort = server.clients, draw.__name__ == "cohort"
    count = clients if is_cohort else args[0] if args else kwargs["count"]
    problem, drawn = "", []
    hint = "return a list of at most count clients, such as self.available()[:count].tolist()"
    try:
        drawn = [operator.index(client) for client in value]
    except TypeError:
        problem = f"returns {reprlib.repr(value)}, not a list of clients"
    outside = [client for client in drawn if not 0 <= client < clients]
    absent = set() if is_cohort or selection.with_replacement else set(drawn) - available
    if outside:
        problem = f"draws client {outside[0]}; clients are 0 to {clients - 1}"
    elif len(set(drawn)) < len(drawn):
        problem = f"draws a client more than once: {reprlib.repr(drawn)}"
        hint = (
            "return different clients; to draw some more than once, derive the class from "
            "fedsim.scheduling.drawing.Replacing and return self.counted(drawn)"
        )
    elif absent:
        problem = f"draws client {min(absent)}, which is offline or busy now"
    elif len(drawn) > count:
        problem = f"draws {len(drawn)} clients, but count is {count}"
    if problem:
        raise UserError(problem, where=place(type(selection), draw.__name__), hint=hint)
    if not drawn and available and count > 0 and not is_cohort:
        server.empty_draws += 1
    return drawn
