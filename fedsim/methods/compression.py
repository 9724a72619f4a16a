"""What becomes of a method's vectors on the way between server and clients (``server.compression``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from fedsim.errors import UserError
from fedsim.learning.compression import Compression, Draws
from fedsim.methods.base import (
    Cohort,
    Factor,
    LocalUpdate,
    Memory,
    Method,
    Prologue,
    ServerState,
    Tensor,
    Trainer,
    Vector,
)
from fedsim.methods.mixins import STATE
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.formatting import format_names

Way = Literal["up", "down"]
# Entries that are compressed at once: on a CPU, as many as its caches hold.
_CPU_ENTRIES = 1 << 18
_CUDA_ENTRIES = 1 << 27

# Memories by vector: the error of an upload, what a compression keeps between uploads, and what was received last.
_ERROR, _KEPT, _REFERENCE = (
    "error of {}".format,
    "compression of {}".format,
    "reference of {}".format,
)
_SOME = "compress uploads only, or name other vectors in vectors"
_VARIES = "it changes with every dispatch, so nothing of earlier dispatches can be used"
_FOLLOWS = "give its Memory follows={} if it does not, or else the vectors with which it moves: follows={'delta': 1.0}"


class Compressed(Method):
    """A method whose vectors are compressed on the way.

    A client replaces what it sends, and the errors that it keeps for its next upload are a memory, as is its reference:
    what it received last, to which compressed downloads are differences.

    Attributes:
        ways: the compression of uploads and of downloads.
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
        up, down, errors = self.upload(), self.download(), self._with_feedback()
        for way, lossy, why, hint in (
            ("up", errors, lambda one: one.varies and _VARIES, "set error_feedback: false"),
            ("up", errors, self._unsteady, "set error_feedback: false"),
            ("down", down, lambda one: one.varies and _VARIES, "compress uploads only"),
            ("down", down, lambda one: self.needs_exact.get(one.name), _SOME),
            ("up", up, lambda one: self.needs_exact_uploads, "compress downloads only"),
            ("up", up, self._undeclared, _FOLLOWS),
        ):
            for vector in lossy:
                if vector.is_lossy and (reason := why(vector)):
                    # Parts that move make every method's vectors change.
                    moves = self.parts is not None and self.parts.submodels.moves
                    subject = self.parts.submodels.name if self.parts and moves else self.title
                    raise UserError(
                        f"{subject or self.name} does not work with a lossy compression of '{vector.name}': {reason}",
                        where=f"server.compression.{way}",
                        hint=hint,
                    )

    def _unsteady(self, vector: Vector) -> str:
        """A memory that moves with the vector by a factor of the dispatch."""
        for name, factor in self._followers(vector).items():
            if callable(factor):
                return f"an error of an earlier dispatch would count in '{name}' with the factor of a later one"
        return ""

    def _undeclared(self, vector: Vector) -> str:
        """A memory whose relation to uploads is unknown."""
        for name, memory in super().memories().items():
            if memory.keeper == "client" and memory.follows is None:
                return f"it does not declare whether the server depends on what clients keep as '{name}'"
        return ""

    def download(self) -> Sequence[Vector]:
        return self._on_the_way("down", super().download())

    def upload(self) -> Sequence[Vector]:
        return self._on_the_way("up", super().upload())

    def prologue(self) -> Prologue | None:
        """That of the method; its downloads are complete, because they are the first."""
        prologue = super().prologue()
        if prologue is None:
            return None
        return replace(prologue, upload=self._on_the_way("up", prologue.upload))

    def memories(self) -> Mapping[str, Memory]:
        up = self.ways["up"]
        kept = {
            _KEPT(vector.name): Memory(up.kept(vector.elements - vector.exact))
            for vector in self.upload()
            if vector.is_lossy and up.kept(vector.elements - vector.exact)
        }
        # Rows that are compressed one by one.
        errors = {
            _ERROR(vector.name): Memory(
                vector.elements, in_place=self.parts is None and vector.elements > _CPU_ENTRIES // 2
            )
            for vector in self._with_feedback()
        }
        references = {
            _REFERENCE(vector.name): Memory(
                vector.elements, partial(lambda name, _: self._initial[name], vector.name)
            )
            for vector in self.download()
            if vector.is_lossy
        }
        return {**super().memories(), **errors, **kept, **references}

    def initial_state(self, model: Tensor) -> ServerState:
        """That of the method, from which the clients' references start."""
        self._initial = super().initial_state(model)
        return self._initial

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method, from what the client decodes; sent is what the server decodes, which memories follow."""
        import torch

        down, memory = dict(cohort.down), {}
        complete = cohort.in_full.nonzero()[0]
        for number, vector in enumerate(self.download()):
            if vector.is_lossy:
                exact, reference = cohort.down[vector.name], cohort.memory[_REFERENCE(vector.name)]
                received = self._passed("down", number, exact, cohort, base=reference)
                received[complete] = exact[complete]
                down[vector.name] = memory[_REFERENCE(vector.name)] = received
        cohort = replace(cohort, down=down)
        update = super().local_update(cohort, trainer)
        vectors, memory = dict(update.vectors), {**update.memory, **memory}
        # Not all are those of a round.
        declared = [*self.upload(), *self.sent_at(0)]
        for number, vector in enumerate({one.name: one for one in declared}.values()):
            if not vector.is_lossy or vector.name not in vectors:
                continue
            exact, kept = vectors[vector.name], cohort.memory.get(_KEPT(vector.name))
            error = cohort.memory.get(_ERROR(vector.name))
            rows = cohort.in_place.get(_ERROR(vector.name), error)
            followers = self._followers(vector)
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
                moved = factor(cohort) if callable(factor) else factor
                memory[name] = memory[name] + moved * missed
            if kept is not None:
                memory[_KEPT(vector.name)] = kept
            if error is not None:
                memory[_ERROR(vector.name)] = error
        return replace(update, vectors=vectors, memory=memory)

    def _followers(self, vector: Vector) -> dict[str, Factor]:
        return {
            name: memory.follows[vector.name]
            for name, memory in super().memories().items()
            if memory.follows and vector.name in memory.follows
        }

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
        feedback = self.ways["up"].error_decay is not None
        return [vector for vector in self.upload() if feedback and vector.is_lossy]

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
