"""Refuses users' parts that draw from a global random generator, or keep one: its numbers depend on everything that
was drawn before.

Only parts from outside the package are watched, so that those that ship with fedsim cost nothing.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from fedsim.components import is_bundled
from fedsim.errors import UserError
from fedsim.signatures import place

_Part = TypeVar("_Part")

RANDOM_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "method": "draw from self.context.generator(...), keyed by version, or by client and sequence",
        "selection": "draw from self.generator(), which is different at every call and the same in every run",
        "schedule": "draw from self.selection.generator(), which is different at every call and the same in every run",
        "compute": "draw from np.random.default_rng(self.context.seed), made inside the function that uses it",
        "availability": "draw from np.random.default_rng(self.context.seed), made inside index",
        "network": "draw from np.random.default_rng(context.seed), made inside build",
        "partition": "draw from the generator rng that assign is given",
        "dataset": "draw from np.random.default_rng(0), made inside load",
        "task": "draw from the stream that initial and noise are given",
    }
)
"""Where the parts of a kind get their random numbers; parts of other kinds need none."""


def watched(part: _Part, *functions: str, hint: str) -> _Part:
    """The part, with ``functions`` that raise an error if they change the state of a global generator.

    The states of the global generators of torch, NumPy and ``random`` are compared before and after each call, so that
    seeding counts as drawing. Other threads must not draw during a call, except in functions of the same part.

    Args:
        part: a part of a scenario; returned as it is if its class ships with fedsim.
        functions: names of its methods.
        hint: where such a part gets its random numbers.
    """
    if is_bundled(type(part)):
        return part
    for name in functions:
        function = getattr(part, name)
        where = place(type(part), name)
        setattr(part, name, _checked(function, where, hint))
    return part


def _checked(function: Callable[..., Any], where: str, hint: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with unmoved(where, hint):
            return function(*args, **kwargs)

    return call


def refuse_kept_generators(part: Any, kind: str) -> None:
    """Refuse a user's part that keeps a random generator in an attribute.

    Raises:
        UserError: it does; the hint says where a part of this ``kind`` gets its random numbers.
    """
    if is_bundled(type(part)):
        return
    for name, value in getattr(part, "__dict__", {}).items():
        if is_generator(value):
            raise UserError(
                f"keeps a random generator in self.{name}: its numbers depend on everything drawn before, so a run "
                "could not be resumed or repeated",
                where=place(type(part)),
                hint=RANDOM_NUMBERS.get(
                    kind,
                    f"the result of a {kind} must depend on its parameters and arguments alone",
                ),
            )


def is_generator(value: Any) -> bool:
    """Whether a value is a random generator of NumPy, torch or ``random``."""
    torch = sys.modules.get("torch")
    return isinstance(
        value, np.random.Generator | np.random.RandomState | np.random.BitGenerator | random.Random
    ) or (torch is not None and isinstance(value, torch.Generator))


@contextmanager
def unmoved(where: str, hint: str) -> Iterator[None]:
    """Context that raises an error if a global generator has moved at its end; ``where`` and ``hint`` are the error's.

    Raises:
        UserError: the state of a generator has changed.
    """
    before = _states()
    yield
    # A library imported during the call has no earlier state.
    moved = [name for name, state in _states().items() if before.get(name, state) != state]
    if moved:
        raise UserError(
            f"draws from or seeds the global random generator of {' and '.join(moved)}, so a run could not be repeated",
            where=where,
            hint=hint,
        )


def _states() -> dict[str, object]:
    """The state of each global generator, by the name of its library."""
    _, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one is meant
    states: dict[str, object] = {
        "random": random.getstate(),
        "numpy": (np.asarray(keys).tobytes(), *rest),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            generators = torch.cuda.get_rng_state_all()
            states["torch.cuda"] = [state.numpy().tobytes() for state in generators]
    return states
