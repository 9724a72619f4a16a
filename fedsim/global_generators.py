"""Refuses users' parts that draw from a global random generator, or keep one: its numbers depend on everything that
was drawn before.

Only parts from outside the package are watched, so that those that ship with fedsim cost nothing.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import numpy as np

from fedsim.errors import UserError
from fedsim.parts.component import is_bundled, place

_Part = TypeVar("_Part")
_MT19937_BYTES = 625 * 4
"""Bytes of the state of NumPy's MT19937: 624 words and the position in them."""
_BUILT: frozenset[str] = frozenset({"method", "dataset", "model", "metric", "task"})
"""Kinds of parts that may draw from the global generators while they are built."""

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
        "optimizer": (
            "draw from self.context.generator(...), in a method of your own; a step must depend on its arguments "
            "and on the attributes of its optimizer alone"
        ),
        "task": "draw from the stream that initial and noise are given",
    }
)
"""Where the parts of a kind get their random numbers; parts of other kinds need none."""
_WATCHED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "selection": (
            *("draw", "draw_among", "cohort", "cohort_size", "multiplicity", "next_change_ns"),
            *("on_arrival", "on_failure"),
        ),
        "schedule": ("start", "on_arrival", "on_failure"),
        "compute": ("step_s", "redrawn_step_s"),
        "availability": ("offset_ns", "index"),
        "network": ("build",),
        "transport": ("course",),
        "partition": ("assign", "assign_test"),
        "lr_schedule": ("factor",),
    }
)
"""Functions of the parts of a kind that must not draw from a global generator.

Methods and metrics are watched by those that call them, on several threads.
"""


def random_numbers(kind: str) -> str:
    """A hint that says where a part of this kind gets its random numbers."""
    fallback = f"the result of a {kind} must depend on its parameters and arguments alone"
    return RANDOM_NUMBERS.get(kind, fallback)


def build_watched(build: Callable[..., _Part], kind: str, *arguments: Any) -> _Part:
    """A user's part of this kind, built from ``arguments``, which is :func:`watched`.

    Parts that only build something before the run, such as data sets, may draw from the global generators: these are
    :func:`isolated`.

    Raises:
        UserError: it draws from a global generator when it is built.
    """
    functions, hint = _WATCHED.get(kind), random_numbers(kind)
    if is_bundled(build):
        return build(*arguments)
    if functions is None:
        seed = next((one.seed for one in arguments if hasattr(one, "seed")), 0)
        with isolated(seed) if kind in _BUILT else nullcontext():
            return build(*arguments)
    user_class: Any = build
    with unmoved(place(user_class, "__init__"), hint):
        part = build(*arguments)
    return watched(part, *functions, hint=hint)


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
                hint=random_numbers(kind),
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
    watch = _Watch(where, hint)
    _WATCHES.active.append(watch)
    try:
        yield
    finally:
        _WATCHES.active.pop()
    watch.check()


@contextmanager
def unwatched() -> Iterator[None]:
    """Context for functions that may draw, such as trackers, and that a watched function reaches through fedsim."""
    for watch in _WATCHES.active:
        watch.check()
    yield
    for watch in _WATCHES.active:
        watch.restart()


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Context in which the global generators start from ``seed``; afterward, they have their former states.

    For users' functions that build something before the run: what they draw is the same in every run, also if they are
    the first to import torch.
    """
    former, numpy_former = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one is meant
    torch = sys.modules.get("torch")
    on_cuda = torch is not None and torch.cuda.is_initialized()
    torch_former = None if torch is None else torch.default_generator.get_state()
    cuda_former = torch.cuda.get_rng_state_all() if torch is not None and on_cuda else None
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    if torch is not None:
        torch.default_generator.manual_seed(seed)
        if on_cuda:
            torch.cuda.manual_seed_all(seed)
    first_import = _SeededTorch(seed)
    sys.meta_path.insert(0, first_import)
    try:
        yield
    finally:
        sys.meta_path.remove(first_import)
        random.setstate(former)
        np.random.set_state(numpy_former)  # noqa: NPY002
        if torch is not None:
            torch.default_generator.set_state(torch_former)
            if on_cuda:
                torch.cuda.set_rng_state_all(cuda_former)


class _SeededTorch(MetaPathFinder):
    """Seeds torch's global generator when torch is imported; otherwise, it starts from a state that nobody chose."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place from which torch is imported, with a loader that seeds it; None for all other modules."""
        if fullname != "torch":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def seeded(module: ModuleType) -> None:
            execute(module)
            module.default_generator.manual_seed(self._seed)

        spec.loader.exec_module = seeded  # type: ignore[method-assign]
        return spec


class _Watch:
    """Compares the states of the global generators with those at its beginning.

    Args:
        where, hint: those of the error.
    """

    def __init__(self, where: str, hint: str) -> None:
        self._where, self._hint = where, hint
        self._before = _states()

    def restart(self) -> None:
        """Compare with the current states from now on."""
        self._before = _states()

    def check(self) -> None:
        """Raise an error if a generator has moved."""
        # A library imported in the meantime has no earlier state.
        before = self._before
        moved = [name for name, state in _states().items() if before.get(name, state) != state]
        if moved:
            raise UserError(
                f"draws from or seeds the global random generator of {' and '.join(moved)}, so a run could not be "
                "repeated",
                where=self._where,
                hint=self._hint,
            )


class _Watches(threading.local):
    """The watches of each thread's calls, outermost first."""

    def __init__(self) -> None:
        self.active: list[_Watch] = []


_WATCHES = _Watches()


def _states() -> dict[str, object]:
    """The state of each global generator, by the name of its library (NumPy's without a stored normal number)."""
    states: dict[str, object] = {"random": random.getstate(), "numpy": _numpy_state()}
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.default_generator.get_state().numpy().tobytes()
        if torch.cuda.is_initialized():
            generators = torch.cuda.get_rng_state_all()
            states["torch.cuda"] = [state.numpy().tobytes() for state in generators]
    return states


def _numpy_state() -> object:
    """The state of NumPy's global generator; ``numpy.random.get_state`` takes fifty times as long."""
    generator = np.random.mtrand.get_bit_generator()
    if type(generator) is not np.random.MT19937:
        return repr(generator.state)
    return ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)
