"""What becomes of a method's vectors on the way between server and clients (``server.compression``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from fedsim.errors import UserError
from fedsim.learning.compression import Compression, Draws
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    Prologue,
    ServerState,
    Tensor,
    Trainer,
    Vector,
    with_mixin,
)
from fedsim.methods.optimizer_state import STATE
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.formatting import format_names

Way = Literal["up", "down"]
# Entries that are compressed at once: on a CPU, as many as its caches hold.
_CPU_ENTRIES = 1 << 18
_CUDA_ENTRIES = 1 << 27

_SOME = "compress uploads only, or name other vectors in vectors"
_FOLLOWS = "give its Memory follows={} if it does not, or else the vectors with which it moves: follows={'delta': 1.0}"


class _Compressed(Method):
    """A method whose vectors are compressed on the way.

    A client replaces what it sends, and the errors that it keeps for its next upload are a memory, as is its reference:
    what it received last, to which compressed downloads are differences.
    """

    ways: ClassVar[Mapping[Way, Compression]]

    def __init__(self, params: Any, context: Any) -> None:
        super().__init__(params, context)
        self._initial: ServerState = {}
        vectors = {"up": super().upload(), "down": super().download()}
        for way, compression in self.ways.items():
            sent = [vector.name for vector in vectors[way]]
            for name in compression.params.vectors or ():
                if name not in sent:
                    raise UserError(
                        f"{self.title or self.name} sends no vector '{name}' {way}",
                        where=f"server.compression.{way}.vectors",
                        hint=f"it sends {format_names(sent)}",
                    )
        for why in (self._changing, self._unsteady):
            self._refuse("up", self._with_feedback(), why, "set error_feedback: false")
        self._refuse("down", self.download(), self._changing, "compress uploads only")
        self._refuse("down", self.download(), lambda one: self.needs_exact.get(one.name), _SOME)
        self._refuse(
            "up", self.upload(), lambda one: self.needs_exact_uploads, "compress downloads only"
        )
        self._refuse("up", self.upload(), lambda one: self._undeclared, _FOLLOWS)

    def _refuse(
        self, way: Way, vectors: Sequence[Vector], why: Callable[[Vector], str | None], hint: str
    ) -> None:
        """Refuse a lossy compression of one of these vectors for a reason."""
        for vector in vectors:
            if _is_lossy(vector) and (reason := why(vector)):
                raise UserError(
                    f"{self.title or self.name} does not work with a lossy compression of '{vector.name}': {reason}",
                    where=f"server.compression.{way}",
                    hint=hint,
                )

    def _changing(self, vector: Vector) -> str | None:
        if not vector.varies:
            return None
        return "it changes with every dispatch, so nothing of earlier dispatches can be used"

    def _unsteady(self, vector: Vector) -> str | None:
        """A memory that moves with the vector by a factor of the dispatch."""
        for name, memory in super().memories().items():
            if callable((memory.follows or {}).get(vector.name)):
                return f"an error of an earlier dispatch would count in '{name}' with the factor of a later one"
        return None

    @property
    def _undeclared(self) -> str | None:
        """A memory whose relation to uploads is unknown."""
        for name, memory in super().memories().items():
            if memory.keeper == "client" and memory.follows is None:
                return f"it does not declare whether the server depends on what clients keep as '{name}'"
        return None

    # -- traffic and memories -----------------------------------------------------------------------------------------

    def download(self) -> Sequence[Vector]:
        """Those of the method, compressed."""
        return self._on_the_way("down", super().download())

    def upload(self) -> Sequence[Vector]:
        """Those of the method, compressed."""
        return self._on_the_way("up", super().upload())

    def prologue(self) -> Prologue | None:
        """That of the method; its downloads are complete, because they are the first."""
        prologue = super().prologue()
        if prologue is None:
            return None
        return replace(prologue, upload=self._on_the_way("up", prologue.upload))

    def memories(self) -> Mapping[str, Memory]:
        """Those of the method, the errors of uploads, what compressions keep, and the references of downloads."""
        up = self.ways["up"]
        kept = {
            _kept(vector): Memory(up.kept(vector.elements - vector.exact))
            for vector in self.upload()
            if _is_lossy(vector) and up.kept(vector.elements - vector.exact)
        }
        # Rows that are compressed one by one.
        errors = {
            _error(vector): Memory(
                vector.elements, in_place=self.parts is None and vector.elements > _CPU_ENTRIES // 2
            )
            for vector in self._with_feedback()
        }
        references = {
            _reference(vector): Memory(vector.elements, partial(self._initial_row, vector.name))
            for vector in self.download()
            if _is_lossy(vector)
        }
        return {**super().memories(), **errors, **kept, **references}

    def initial_state(self, model: Tensor) -> ServerState:
        """That of the method, from which the clients' references start."""
        self._initial = super().initial_state(model)
        return self._initial

    # -- the rules ----------------------------------------------------------------------------------------------------

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method, from what the client decodes; sent is what the server decodes, which memories follow."""
        import torch

        down, memory = dict(cohort.down), {}
        complete = cohort.in_full.nonzero()[0]
        for number, vector in enumerate(self.download()):
            if _is_lossy(vector):
                exact, reference = cohort.down[vector.name], cohort.memory[_reference(vector)]
                received = self._passed("down", number, exact, cohort, base=reference)
                received[complete] = exact[complete]
                down[vector.name] = memory[_reference(vector)] = received
        cohort = replace(cohort, down=down)
        update = super().local_update(cohort, trainer)
        vectors, memory = dict(update.vectors), {**update.memory, **memory}
        # Not all are those of a round.
        prologue = super().prologue()
        declared = [*self.upload(), *(self._on_the_way("up", prologue.upload) if prologue else ())]
        for number, vector in enumerate({one.name: one for one in declared}.values()):
            if not _is_lossy(vector) or vector.name not in vectors:
                continue
            exact, kept = vectors[vector.name], cohort.memory.get(_kept(vector))
            error = cohort.memory.get(_error(vector))
            rows = cohort.in_place.get(_error(vector), error)
            followers = self._followers(vector, cohort)
            before = torch.stack(list(rows)) if followers and rows is not None else None
            vectors[vector.name] = sent = self._passed(
                "up",
                number,
                exact,
                cohort,
                base=self.start(cohort) if vector.name == "model" else None,
                error=rows,
                kept=kept,
            )
            for name, factor in followers.items():
                # A memory and what is still to be sent add up to what the server has.
                decay = self.ways["up"].error_decay or 0.0
                missed = sent - exact if before is None else (decay - 1) * before
                memory[name] = memory[name] + factor * missed
            if kept is not None:
                memory[_kept(vector)] = kept
            if error is not None:
                memory[_error(vector)] = error
        return replace(update, vectors=vectors, memory=memory)

    def _followers(self, vector: Vector, cohort: Cohort) -> dict[str, float | Tensor]:
        """Memories that move with a vector, and their factors."""
        factors = {
            name: memory.follows[vector.name]
            for name, memory in super().memories().items()
            if memory.follows and vector.name in memory.follows
        }
        return {name: one(cohort) if callable(one) else one for name, one in factors.items()}

    def _initial_row(self, name: str, model: Tensor) -> Tensor:
        return self._initial[name]

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _on_the_way(self, way: Way, vectors: Sequence[Vector]) -> list[Vector]:
        compression = self.ways[way]
        names = compression.params.vectors
        layout = self.context.layout
        return [
            replace(vector, compression=compression, exact=self.buffers_in(vector.elements, layout))
            if (vector.name != STATE if names is None else vector.name in names)
            else vector
            for vector in vectors
        ]

    def _with_feedback(self) -> list[Vector]:
        """Vectors whose errors a client keeps."""
        feedback = self.ways["up"].error_decay is not None
        return [vector for vector in self.upload() if feedback and _is_lossy(vector)]

    def _passed(
        self,
        way: Way,
        number: int,
        rows: Tensor,
        cohort: Cohort,
        *,
        base: Tensor | None = None,
        error: Tensor | list[Tensor] | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """What the receiver decodes, (B, elements); buffers at the end are sent as they are.

        Args:
            way, number: which vector it is.
            rows: the vectors of the clients, (B, elements).
            cohort: the clients.
            base: what the receiver has, to which a difference is sent; zero if None.
            error, kept: errors of the last uploads, as a matrix or as rows, and what the compression keeps; changed in
                place.
        """
        import torch

        compression = self.ways[way]
        stream = Stream(self.context.seed, Purpose.COMPRESSION, way == "down", number)
        keys = stream.keys(cohort.clients, cohort.sequences).view(np.int64)
        layout = self.layout_of(int(cohort.clients[0]))
        length = rows.shape[1] - self.buffers_in(rows.shape[1], layout)
        draws = Draws(torch.from_numpy(keys).to(rows.device), length, kept)
        received = torch.empty_like(rows)
        received[:, length:] = rows[:, length:]
        for piece, columns in _pieces(rows[:, :length], compression.block):
            at = piece, columns
            value = rows[at]
            if error is not None:
                old = error[piece.start][None, columns] if isinstance(error, list) else error[at]
                value = torch.add(value, old, alpha=compression.error_decay, out=old)
            difference = value if base is None else value - base[at]
            decoded = compression.compress(difference, draws.piece(piece, columns.start))
            received[at] = decoded if base is None else base[at] + decoded
            if base is not None:
                for row, (sent, meant) in enumerate(zip(decoded, difference, strict=True)):
                    # The rounding of two sums must not change what is sent exactly.
                    if torch.equal(sent, meant):
                        received[at][row] = value[row]
            if error is not None:
                old.sub_(received[at])
        return received


def _pieces(rows: Tensor, block: int | None) -> Iterator[tuple[slice, slice]]:
    """The rows and columns that are compressed at once; columns depend on the length of rows alone."""
    count, elements = rows.shape
    most = _CPU_ENTRIES if rows.device.type == "cpu" else _CUDA_ENTRIES
    # Draws begin at multiples of 64.
    unit = math.lcm(block or elements, 64)
    width = min(elements, max(1, most // unit) * unit)
    height = max(1, most // elements)
    for first in range(0, count, height):
        for left in range(0, elements, width):
            yield slice(first, first + height), slice(left, left + width)


def _is_lossy(vector: Vector) -> bool:
    return vector.compression is not None and vector.compression.lossy


def _error(vector: Vector) -> str:
    """Name of the memory that holds the error of an upload."""
    return f"error of {vector.name}"


def _kept(vector: Vector) -> str:
    """Name of the memory that holds what a compression keeps between uploads."""
    return f"compression of {vector.name}"


def _reference(vector: Vector) -> str:
    """Name of the memory that holds what was received last."""
    return f"reference of {vector.name}"


def with_compression(method: type[Method], up: Compression, down: Compression) -> type[Method]:
    """The method whose uploads and downloads are compressed."""
    return with_mixin(method, _Compressed, ways={"up": up, "down": down})
