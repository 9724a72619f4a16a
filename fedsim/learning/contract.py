"""Checks the return values of a method's functions against the method's declarations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

from torch import Tensor

from fedsim.errors import UserError
from fedsim.methods.base import LocalUpdate, Method, ServerState


class Contract:
    """Refuses values that torch would accept silently: an undeclared vector, or one that would be broadcast.

    Args:
        method: the method, after its :meth:`fedsim.methods.base.Method.initial_state`.
    """

    def __init__(self, method: Method) -> None:
        self._class = type(method)
        self._sent_down = {vector.name: vector.elements for vector in method.download()}
        self._sent_up = {vector.name: vector.elements for vector in method.upload()}
        prologue = method.prologue()
        self._sent_up_first = {
            vector.name: vector.elements for vector in (prologue.upload if prologue else ())
        }
        self._memories = {
            name: memory.elements
            for name, memory in method.memories().items()
            if memory.keeper == "client"
        }

    def check_update(self, update: LocalUpdate, rows: int, *, in_prologue: bool = False) -> None:
        """Check the result of ``local_update`` for ``rows`` dispatches of the prologue or of a round.

        Raises:
            UserError: a vector is missing, is not declared or has another shape.
        """
        place = "local_update"
        if not isinstance(update, LocalUpdate):
            raise self._error(place, f"returns {type(update).__name__}, not a LocalUpdate")
        sent_up = self._sent_up_first if in_prologue else self._sent_up
        source = "prologue()" if in_prologue else "upload()"
        self._check_names(place, update.vectors, sent_up, "vector", source)
        for name in sent_up:
            if name not in update.vectors:
                raise self._error(
                    place,
                    f"returns no vector '{name}', which {source} declares",
                    f"given: {_listed(update.vectors)}",
                )
        self._check_names(place, update.memory, self._memories, "memory", "memories()")
        for vectors, lengths in ((update.vectors, sent_up), (update.memory, self._memories)):
            for name, value in vectors.items():
                self._check_shape(place, name, value, (rows, lengths[name]), "(B, elements)")
        self._check_shape(place, "loss", update.loss, (rows,), "(B,)")

    def check_state(self, state: ServerState, place: str) -> None:
        """Check the server state that ``place``, a function of the method, returned.

        Raises:
            UserError: a vector that clients are sent is missing or has another shape.
        """
        if not isinstance(state, Mapping):
            raise self._error(
                place,
                f"returns {type(state).__name__}, not the server's tensors by name",
                "return {'model': ...}, or the given state if nothing changes",
            )
        for name, elements in self._sent_down.items():
            if name not in state:
                raise self._error(
                    place,
                    f"returns no '{name}', which clients are sent",
                    f"given: {_listed(state)}",
                )
            self._check_shape(place, name, state[name], (elements,), "(elements,)")

    def _check_names(
        self,
        place: str,
        given: Mapping[str, Tensor],
        declared: Mapping[str, int],
        kind: str,
        where: str,
    ) -> None:
        for name in given:
            if name not in declared:
                raise self._error(
                    place,
                    f"returns the {kind} '{name}', which {where} does not declare",
                    f"declared: {_listed(declared)}",
                )

    def _check_shape(
        self, place: str, name: str, value: Tensor, shape: tuple[int, ...], words: str
    ) -> None:
        if not isinstance(value, Tensor):
            raise self._error(place, f"returns {type(value).__name__} as '{name}', not a tensor")
        if tuple(value.shape) != shape:
            raise self._error(
                place,
                f"returns '{name}' of shape {tuple(value.shape)}, not {shape}",
                f"it must be {words}",
            )

    def _error(self, place: str, message: str, hint: str | None = None) -> UserError:
        where = f"{inspect.getfile(self._class)}: {self._class.__name__}.{place}"
        return UserError(message, where=where, hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
