"""Checks the return values of a method's functions against the method's declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from fedsim.errors import UserError, nearest_or_all
from fedsim.methods.base import LocalUpdate, Method, ServerState, Vector
from fedsim.parts.component import is_bundled, place
from fedsim.vocabulary.formatting import format_count

_BITS_OF_FLOAT32 = 32
_ROWS_TO_COUNT = 3


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
        # Vectors of a user's method that are charged at fewer bits than they may need.
        self._coarse = {
            vector.name: vector.bits
            for vector in method.upload()
            if vector.bits is not None
            and vector.bits < _BITS_OF_FLOAT32
            and vector.elements > 2**vector.bits
            and not is_bundled(self._class)
        }
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
        sent_up, source = self._sent_up, "upload()"
        if in_prologue:
            sent_up, source = self._sent_up_first, "prologue()"
        try:
            if not isinstance(update, LocalUpdate):
                raise self._error(
                    "local_update", f"returns {type(update).__name__}, not a LocalUpdate"
                )
            self._check_rows("vector", update.vectors, sent_up, source, rows)
            self._check_rows("memory", update.memory, self._memories, "memories()", rows)
            self._check_given("vector", update.vectors, sent_up, source)
            if not in_prologue:
                self._check_given("memory", update.memory, self._memories, "memories()")
            self._check_shape("local_update", "loss", update.loss, (rows,), "(B,)")
        except UserError as error:
            expected = f"LocalUpdate({_shapes(sent_up, rows)}, loss of shape ({rows},)"
            if self._memories:
                expected += f", {_shapes(self._memories, rows)}"
            raise _explained(error, f"{expected}), one row per dispatch") from None

    def doubts(self, update: LocalUpdate) -> Iterator[UserError]:
        """Warnings about vectors of the first update with more different values than their bits can tell apart.

        A vector that is mostly zero may be sent as its other entries alone, so those count at 32 bits each.
        """
        coarse, self._coarse = self._coarse, {}
        for name, bits in coarse.items():
            if name not in update.vectors:
                self._coarse[name] = bits  # Work of a prologue sends other vectors.
                continue
            for row in update.vectors[name][:_ROWS_TO_COUNT]:
                values = row.unique().numel()
                sparse = _BITS_OF_FLOAT32 * int(row.count_nonzero()) <= bits * len(row)
                if values > 2**bits and not sparse:
                    yield self._error(
                        "local_update",
                        f"returns '{name}' with {format_count(values)} different values in a row, but upload() charges "
                        f"{bits:g} bits per entry, which hold {format_count(2**bits)}: its uploads are too small and "
                        "too fast",
                        "quantize the vector (docs: Bits per entry), or state the bits that it needs",
                    )
                    break

    def check_state(self, state: ServerState, function: str) -> None:
        """Check the server state that a ``function`` of the method returned; the first one declares the names.

        Raises:
            UserError: a vector that clients receive is missing or has the wrong shape, or the names are not those of
                the first state.
        """
        try:
            if not isinstance(state, Mapping):
                raise self._error(
                    function,
                    f"returns {type(state).__name__}, not the server's tensors by name",
                    "return {'model': ...}, or the given state if nothing changes",
                )
            self._check_values(function, state)
            for name, elements in self._sent_down.items():
                if name not in state:
                    raise self._error(
                        function,
                        f"returns no '{name}', which clients receive",
                        f"given: {_listed(state)}",
                    )
                self._check_shape(function, name, state[name], (elements,), "(elements,)")
            self._check_model(function, state)
            self._check_names(function, state)
        except UserError as error:
            expected = f"the server's tensors, with {_shapes(self._sent_down)}"
            raise _explained(error, expected) from None

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

    def _check_values(self, function: str, state: Mapping[str, object]) -> None:
        """Refuse values that are not tensors, which a checkpoint would not contain."""
        for name, value in state.items():
            if not isinstance(value, Tensor):
                tensor = f"torch.tensor({value})" if isinstance(value, int | float) else "a tensor"
                raise self._error(
                    function,
                    f"returns {type(value).__name__} as '{name}', not a tensor",
                    f"state values must be tensors: {tensor}",
                )

    def _check_names(self, function: str, state: ServerState) -> None:
        """Refuse a state whose names differ from those of the first one: a checkpoint would not restore the same run,
        and a name that is written differently would be a tensor that never changes."""
        self._state = self._state or list(state)
        for name in state:
            if name not in self._state:
                every = f"initial_state() returns: {_listed(self._state)}"
                raise self._error(
                    function,
                    f"returns '{name}', which initial_state() does not",
                    f"{nearest_or_all(name, self._state, every)}; give it a first value in initial_state()",
                )
        for name in self._state:
            if name not in state:
                raise self._error(
                    function,
                    f"returns no '{name}', which initial_state() does",
                    f"return '{name}': server['{name}'] if it has not changed; given: {_listed(state)}",
                )

    def _check_model(self, function: str, state: ServerState) -> None:
        if "model" not in state:
            raise self._error(
                function, "returns no 'model', which is evaluated", f"given: {_listed(state)}"
            )
        dtype = state["model"].dtype
        if dtype != self._dtype:
            raise self._error(
                function,
                f"returns 'model' as {dtype}, not {self._dtype}",
                "convert it with .to(self.context.dtype)",
            )

    def _check_given(
        self, kind: str, given: Mapping[str, Tensor], declared: Mapping[str, int], source: str
    ) -> None:
        for name in declared:
            if name not in given:
                hint = f"given: {_listed(given)}"
                if kind == "memory":
                    hint = f"return '{name}': cohort.memory['{name}'] if it has not changed; {hint}"
                message = f"returns no {kind} '{name}', which {source} declares"
                raise self._error("local_update", message, hint)

    def _check_rows(
        self,
        kind: str,
        given: Mapping[str, Tensor],
        declared: Mapping[str, int],
        source: str,
        rows: int,
    ) -> None:
        for name, value in given.items():
            if name not in declared:
                raise self._error(
                    "local_update",
                    f"returns the {kind} '{name}', which {source} does not declare",
                    nearest_or_all(name, declared, f"declared: {_listed(declared)}"),
                )
            shape = (rows, declared[name])
            self._check_shape("local_update", name, value, shape, "(B, elements)")

    def _check_shape(
        self, function: str, name: str, value: Tensor, shape: tuple[int, ...], words: str
    ) -> None:
        if not isinstance(value, Tensor):
            raise self._error(function, f"returns {type(value).__name__} as '{name}', not a tensor")
        if tuple(value.shape) != shape:
            raise self._error(
                function,
                f"returns '{name}' of shape {tuple(value.shape)}, not {shape}",
                f"it must be {words}",
            )

    def _error(self, function: str, message: str, hint: str | None = None) -> UserError:
        return UserError(message, where=place(self._class, function), hint=hint)


def _explained(error: UserError, expected: str) -> UserError:
    """The error with a hint about the expected return value."""
    start = "a method to start from: fedsim init --template own-method"
    hints = filter(None, (error.hint, f"expected: {expected}", start))
    return UserError(error.message, where=error.where, hint="\n  ".join(hints))


def _elements(vectors: Iterable[Vector]) -> dict[str, int]:
    return {vector.name: vector.elements for vector in vectors}


def _shapes(vectors: Mapping[str, int], *rows: int) -> str:
    """Vectors with their shapes: ``{'delta': (3, 7850)}``."""
    return str({name: (*rows, elements) for name, elements in vectors.items()})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
