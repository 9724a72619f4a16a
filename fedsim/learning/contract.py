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
        prologue = method.prologue()
        self._sent_up_first = _elements(prologue.upload if prologue else ())
        self._state: list[str] = []
        self._memories = {
            name: memory.elements
            for name, memory in method.memories().items()
            if memory.keeper == "client"
        }
        self._returned = [name for name in self._memories if not method.memories()[name].in_place]

    def check_update(self, update: LocalUpdate, rows: int, *, in_prologue: bool = False) -> None:
        """Check the result of ``local_update`` for ``rows`` dispatches of the prologue or of a round.

        Raises:
            UserError: a vector is missing, is not declared or has the wrong shape.
        """
        sent_up = self._sent_up_first if in_prologue else self._sent_up
        memories = f", {_shapes(self._memories, rows)}" if self._memories else ""
        expected = f"LocalUpdate({_shapes(sent_up, rows)}, loss of shape ({rows},){memories})"
        error = partial(self._error, "local_update", f"{expected}, one row per dispatch")
        if not isinstance(update, LocalUpdate):
            raise error(f"returns {type(update).__name__}, not a LocalUpdate")
        required = [] if in_prologue else self._returned
        _require(error, "vector", update.vectors, sent_up, list(sent_up))
        _require(error, "memory", update.memory, self._memories, required)
        for given, declared in ((update.vectors, sent_up), (update.memory, self._memories)):
            for name, value in given.items():
                _require_shape(error, name, value, (rows, declared[name]))
        _require_shape(error, "loss", update.loss, (rows,))

    def check_state(self, state: ServerState, function: str) -> None:
        """Check the server state that a ``function`` of the method returned; the first one declares the names.

        Raises:
            UserError: a vector that clients receive is missing or has the wrong shape, or the names are not those of
                the first state, which a checkpoint could not restore.
        """
        expected = f"the server's tensors, with {_shapes(self._sent_down)}"
        error = partial(self._error, function, expected)
        if not isinstance(state, Mapping):
            raise error(f"returns {type(state).__name__}, not tensors by name")
        self._state = self._state or list(state)
        _require(error, "tensor", state, self._state, ["model", *self._sent_down, *self._state])
        for name, value in state.items():
            shape = (self._sent_down[name],) if name in self._sent_down else None
            _require_shape(error, name, value, shape)
        if state["model"].dtype != self._dtype:
            message = f"returns 'model' as {state['model'].dtype}, not {self._dtype}"
            raise error(message, "convert it with .to(self.context.dtype)")

    @contextmanager
    def unchanged(self, state: ServerState) -> Iterator[None]:
        """Refuse an ``aggregate`` that changes tensors of ``state`` in place: earlier versions share them.

        Raises:
            UserError: a tensor has changed.
        """
        counts = {name: tensor._version for name, tensor in state.items()}
        yield
        for name, count in counts.items():
            if state[name]._version != count:
                raise UserError(
                    f"changes '{name}' of the server state in place, which earlier versions share",
                    where=place(self._class, "aggregate"),
                    hint=f"compute a new tensor: {{'{name}': server['{name}'] + ...}}, or change a clone()",
                )

    def _error(
        self, function: str, expected: str, message: str, hint: str | None = None
    ) -> UserError:
        start = "a method to start from: fedsim init --template own-method"
        hints = filter(None, (hint, f"expected: {expected}", start))
        return UserError(message, where=place(self._class, function), hint="\n  ".join(hints))


class Named(dict[str, T]):
    """Values by name, as a method's functions receive them; the error for any other name lists those that there are."""

    def __missing__(self, name: str) -> T:
        """Refuse an unknown name."""
        raise KeyError(f"{name}: {nearest_or_all(str(name), self, f'there is {_listed(self)}')}")


def _require(
    error: Callable[..., UserError],
    kind: str,
    given: Iterable[str],
    declared: Iterable[str],
    required: Iterable[str],
) -> None:
    """Refuse names that are not declared, and the lack of required ones."""
    for name in given:
        if name not in declared:
            hint = nearest_or_all(name, declared, f"declared: {_listed(declared)}")
            raise error(f"returns the {kind} '{name}', which is not declared", hint)
    for name in required:
        if name not in given:
            hint = f"given: {_listed(given)}; return the old value if it has not changed"
            raise error(f"returns no {kind} '{name}'", hint)


def _require_shape(
    error: Callable[..., UserError], name: str, value: Any, shape: tuple[int, ...] | None
) -> None:
    """Refuse anything but a tensor of a shape, or of any shape."""
    if not isinstance(value, Tensor):
        raise error(f"returns {type(value).__name__} as '{name}', not a tensor")
    if shape is not None and tuple(value.shape) != shape:
        raise error(f"returns '{name}' of shape {tuple(value.shape)}, not {shape}")


def _elements(vectors: Iterable[Vector]) -> dict[str, int]:
    return {vector.name: vector.elements for vector in vectors}


def _shapes(vectors: Mapping[str, int], *rows: int) -> str:
    """Vectors with their shapes: ``{'delta': (3, 7850)}``."""
    return str({name: (*rows, elements) for name, elements in vectors.items()})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
