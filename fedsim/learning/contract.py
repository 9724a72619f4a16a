"""Checks the return values of a method's functions against the method's declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from fedsim.errors import UserError, nearest_or_all
from fedsim.methods.base import LocalUpdate, Method, ServerState, Vector
from fedsim.parts.component import place


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

    def check_update(self, update: LocalUpdate, rows: int, *, in_prologue: bool = False) -> None:
        """Check the result of ``local_update`` for ``rows`` dispatches of the prologue or of a round.

        Raises:
            UserError: a vector is missing, is not declared or has the wrong shape.
        """
        function = "local_update"
        sent_up = self._sent_up_first if in_prologue else self._sent_up
        source = "prologue()" if in_prologue else "upload()"
        expected = (
            f"LocalUpdate({_shapes(sent_up, rows)}, loss of shape ({rows},)"
            + (f", {_shapes(self._memories, rows)}" if self._memories else "")
            + "), one row per dispatch"
        )
        with self._explained(expected):
            if not isinstance(update, LocalUpdate):
                raise self._error(function, f"returns {type(update).__name__}, not a LocalUpdate")
            required = {} if in_prologue else self._memories
            self._check_rows("vector", update.vectors, sent_up, sent_up, source, rows)
            self._check_rows("memory", update.memory, self._memories, required, "memories()", rows)
            self._check_shape(function, "loss", update.loss, (rows,))

    def check_state(self, state: ServerState, function: str) -> None:
        """Check the server state that a ``function`` of the method returned; the first one declares the names.

        Raises:
            UserError: a vector that clients receive is missing or has the wrong shape, or the names are not those of
                the first state.
        """
        with self._explained(f"the server's tensors, with {_shapes(self._sent_down)}"):
            if not isinstance(state, Mapping):
                raise self._error(function, f"returns {type(state).__name__}, not tensors by name")
            for name, value in state.items():
                if not isinstance(value, Tensor):
                    message = f"returns {type(value).__name__} as '{name}', not a tensor"
                    raise self._error(function, message, f"torch.tensor({value!r})")
            for name, elements in self._sent_down.items():
                if name not in state:
                    message = f"returns no '{name}', which clients receive"
                    raise self._error(function, message, f"given: {_listed(state)}")
                self._check_shape(function, name, state[name], (elements,))
            if "model" not in state:
                raise self._error(function, "returns no 'model', which is evaluated")
            if state["model"].dtype != self._dtype:
                message = f"returns 'model' as {state['model'].dtype}, not {self._dtype}"
                raise self._error(function, message, "convert it with .to(self.context.dtype)")
            self._check_names(function, state)

    @contextmanager
    def unchanged(self, state: ServerState) -> Iterator[None]:
        """Refuse an ``aggregate`` that changes tensors of ``state`` in place: earlier versions share them.

        Raises:
            UserError: a tensor has changed.
        """
        counts = {name: tensor._version for name, tensor in state.items()}
        yield
        changed = [name for name, count in counts.items() if state[name]._version != count]
        if changed:
            raise self._error(
                "aggregate",
                f"changes '{changed[0]}' of the server state in place, which earlier versions share",
                f"compute a new tensor: {{'{changed[0]}': server['{changed[0]}'] + ...}}, "
                "or change a clone()",
            )

    def _check_names(self, function: str, state: ServerState) -> None:
        """Refuse a state whose names differ from those of the first one: a checkpoint would not restore the same run,
        and a name that is written differently would be a tensor that never changes."""
        self._state = self._state or list(state)
        for name in state:
            if name not in self._state:
                known = nearest_or_all(name, self._state, f"it returns: {_listed(self._state)}")
                hint = f"{known}; give it a first value in initial_state()"
                message = f"returns '{name}', which initial_state() does not"
                raise self._error(function, message, hint)
        for name in self._state:
            if name not in state:
                raise self._error(
                    function,
                    f"returns no '{name}', which initial_state() does",
                    f"return '{name}': server['{name}'] if it has not changed",
                )

    def _check_rows(
        self,
        kind: str,
        given: Mapping[str, Tensor],
        declared: Mapping[str, int],
        required: Iterable[str],
        source: str,
        rows: int,
    ) -> None:
        for name, value in given.items():
            if name not in declared:
                message = f"returns the {kind} '{name}', which {source} does not declare"
                hint = nearest_or_all(name, declared, f"declared: {_listed(declared)}")
                raise self._error("local_update", message, hint)
            self._check_shape("local_update", name, value, (rows, declared[name]))
        for name in required:
            if name not in given:
                message = f"returns no {kind} '{name}', which {source} declares"
                unchanged = f"return '{name}': cohort.memory['{name}'] if it has not changed"
                hint = unchanged if kind == "memory" else f"given: {_listed(given)}"
                raise self._error("local_update", message, hint)

    def _check_shape(self, function: str, name: str, value: Tensor, shape: tuple[int, ...]) -> None:
        if not isinstance(value, Tensor):
            raise self._error(function, f"returns {type(value).__name__} as '{name}', not a tensor")
        if tuple(value.shape) != shape:
            message = f"returns '{name}' of shape {tuple(value.shape)}, not {shape}"
            raise self._error(function, message)

    def _error(self, function: str, message: str, hint: str | None = None) -> UserError:
        return UserError(message, where=place(self._class, function), hint=hint)

    @contextmanager
    def _explained(self, expected: str) -> Iterator[None]:
        """Context that adds the expected return value to the hint of an error."""
        try:
            yield
        except UserError as error:
            start = "a method to start from: fedsim init --template own-method"
            hints = filter(None, (error.hint, f"expected: {expected}", start))
            raise UserError(error.message, where=error.where, hint="\n  ".join(hints)) from None


def _elements(vectors: Iterable[Vector]) -> dict[str, int]:
    return {vector.name: vector.elements for vector in vectors}


def _shapes(vectors: Mapping[str, int], *rows: int) -> str:
    """Vectors with their shapes: ``{'delta': (3, 7850)}``."""
    return str({name: (*rows, elements) for name, elements in vectors.items()})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
