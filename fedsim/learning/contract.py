"""Checks the return values of a method's functions against the method's declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from fedsim.errors import UserError, nearest_or_all
from fedsim.methods.base import LocalUpdate, Method, ServerState, Vector
from fedsim.parts.component import place

T = TypeVar("T")


class Contract:
    """Refuses values that torch would accept silently: an undeclared vector, or one that would be broadcast.

    Args:
        method: the method, after its :meth:`fedsim.methods.base.Method.initial_state`.
    """

    def __init__(self, method: Method) -> None:
        self._class = type(method)
        self._dtype = method.context.dtype
        self._sent_down = _elements(method.download())
        self._sent_up = _elements(method.upload())
        self._sent_first = None if method.prologue() is None else _elements(method.sent_at(0))
        self._state: list[str] = []
        memories = {
            name: memory for name, memory in method.memories().items() if memory.keeper == "client"
        }
        self._memories = {name: memory.elements for name, memory in memories.items()}
        self._returned = [name for name, memory in memories.items() if not memory.in_place]

    def check_update(self, update: LocalUpdate, rows: int, version: int) -> None:
        """Check the result of ``local_update`` for ``rows`` dispatches of a version, or of several from 1 on."""
        first = None if version else self._sent_first
        vectors, memories = (
            {name: (rows, elements) for name, elements in declared.items()}
            for declared in (self._sent_up if first is None else first, self._memories)
        )
        further = f", {memories}" if memories else ""
        expected = f"LocalUpdate({vectors}, loss of shape ({rows},){further}), one row per dispatch"
        error = partial(self._error, "local_update", expected)
        if not isinstance(update, LocalUpdate):
            raise error(f"returns {type(update).__name__}, not a LocalUpdate")
        _require(error, "vectors", update.vectors, vectors, vectors)
        _require(error, "memories", update.memory, memories, () if first else self._returned)
        _require(error, "tensors", {"loss": update.loss}, {"loss": (rows,)}, ())

    def check_state(self, state: ServerState, function: str) -> None:
        """Check the server state that a ``function`` of the method returned; the first one declares the names."""
        sent = {name: (elements,) for name, elements in self._sent_down.items()}
        others = dict.fromkeys(name for name in self._state if name not in sent)
        further = f", and {', '.join(others)} as initially" if others else ""
        expected = f"the server's tensors, with {sent}{further}"
        error = partial(self._error, function, expected)
        if not isinstance(state, Mapping):
            raise error(f"returns {type(state).__name__}, not tensors by name")
        declared = dict.fromkeys(self._state or state) | sent
        _require(error, "tensors", state, declared, ["model", *sent, *others])
        self._state = list(state)
        if state["model"].dtype != self._dtype:
            raise error(
                f"returns 'model' as {state['model'].dtype}, not {self._dtype}; convert it with "
                ".to(self.context.dtype)"
            )

    @contextmanager
    def unchanged(self, state: ServerState) -> Iterator[None]:
        """Refuse an ``aggregate`` that changes tensors of ``state`` in place: earlier versions share them."""
        counts = {name: tensor._version for name, tensor in state.items()}
        yield
        for name, count in counts.items():
            if state[name]._version != count:
                raise UserError(
                    f"changes '{name}' of the server state in place, which earlier versions share",
                    where=place(self._class, "aggregate"),
                    hint=f"compute a new tensor: {{'{name}': server['{name}'] + ...}}, or change a clone()",
                )

    def _error(self, function: str, expected: str, message: str) -> UserError:
        hint = f"expected: {expected}\n  a method to start from: fedsim init --template own-method"
        return UserError(message, where=place(self._class, function), hint=hint)


class Named(dict[str, T]):
    """Values by name, as a method's functions receive them; the error for any other name lists those that there are."""

    def __missing__(self, name: str) -> T:
        """Refuse an unknown name."""
        every = ", ".join(map(repr, self)) or "none"
        raise KeyError(f"{name}: {nearest_or_all(str(name), self, f'there is {every}')}")


def _require(
    error: Callable[[str], UserError],
    kind: str,
    given: Mapping[str, Any],
    declared: Mapping[str, tuple[int, ...] | None],
    required: Iterable[str],
) -> None:
    """Refuse all but tensors of the declared names and shapes (any shape if None), and the lack of required ones."""
    shapes = {
        name: tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        for name, value in given.items()
    }
    fits = (
        isinstance(shape, tuple) and name in declared and declared[name] in (None, shape)
        for name, shape in shapes.items()
    )
    if not all(fits) or not shapes.keys() >= set(required):
        raise error(f"returns the {kind} {shapes}")


def _elements(vectors: Iterable[Vector]) -> dict[str, int]:
    return {vector.name: vector.elements for vector in vectors}
