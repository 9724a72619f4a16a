"""The interface of compressions, which replace vectors by what the receiver decodes, for a group of clients at once.

The size of a compressed vector follows from its length alone, so that transfers are timed before anything is trained.
Row i of a result depends on row i and its random numbers alone, never on the group.
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedsim.parts.component import Component
from fedsim.parts.parameters import Parameters

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedsim.tasks.layout import Layout


# Words per table of hashes.
_TABLE = 1 << 10
# Numbers per word, their random bits, and their other ones: the exponent of 1 and the lowest bit.
_SIGNIFICANDS = {
    "torch.float32": (2, 0x007F_FFFE_007F_FFFE, 0x3F80_0001_3F80_0001),
    "torch.float64": (1, 0x000F_FFFF_FFFF_FFFE, 0x3FF0_0000_0000_0001),
}


class CompressionParams(Parameters):
    """Parameters of every compression."""

    vectors: list[str] | None = None
    """Names of the vectors that are compressed, such as ``[delta]``; by default all that the method sends in this
    direction. ``fedsim describe NAME`` lists them."""


class Compression(Component, ABC):
    """Compresses vectors.

    Attributes:
        lossy: whether it changes values; otherwise it changes sizes alone.
        sums: whether compressed vectors can be added without decompressing them.
        by_tensor: whether it needs to know which entries belong to which tensor of the model.
        layout: names, shapes and offsets of the model's parameter vector.
    """

    Params: ClassVar[type[Parameters]] = CompressionParams
    lossy: ClassVar[bool] = True
    sums: ClassVar[bool] = False
    by_tensor: ClassVar[bool] = False

    def __init__(self, params: Any, layout: Layout) -> None:
        super().__init__(params)
        self.layout = layout

    @property
    def changes_nothing(self) -> bool:
        """Whether neither values nor sizes change."""
        return False

    @property
    def error_decay(self) -> float | None:
        """Factor on the error of a client's last upload, which is added to its next one; None without error feedback.

        Downloads need none: they are differences to what the client has, which contain earlier errors.
        """
        return None

    @property
    def block(self) -> int | None:
        """Number of entries that do not depend on others: a vector is compressed block by block; None if it is one."""
        return None

    def kept(self, elements: int) -> int:
        """Numbers that a client keeps from one upload to the next besides its error: zeros at first."""
        return 0

    @abstractmethod
    def bits(self, elements: int, entry_bits: float) -> float:
        """Bits of a compressed vector.

        Args:
            elements: its length.
            entry_bits: bits per entry without compression: those of ``training.dtype``, unless the method declares
                others.
        """

    @abstractmethod
    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        """What the receiver decodes, (B, elements).

        Args:
            rows: one vector per client, (B, elements); read-only.
            draws: random numbers of each row, and what its client has kept.
        """


class FeedbackParams(CompressionParams):
    """Parameters of compressions with error feedback."""

    error_feedback: bool = True
    """Whether a client keeps the error of an upload, if the upload is used, and adds it to its next one."""


class WithFeedback(Compression):
    """A compression whose parameters choose error feedback."""

    Params: ClassVar[type[Parameters]] = FeedbackParams

    @property
    def error_decay(self) -> float | None:
        return 1.0 if self.params.error_feedback else None


class Draws:
    """Random numbers of B rows, from counters; the same on every device.

    Args:
        keys: the stream of each row, (B,) int64.
        elements: length of the vectors.
        kept: :meth:`Compression.kept` numbers per row, which a compression changes in place; None in downloads.
    """

    def __init__(self, keys: Tensor, elements: int, kept: Tensor | None = None) -> None:
        from fedsim.learning.batches import fold

        self._keys = keys
        self._first = 0
        self._hashes = fold(
            keys.unsqueeze(1), _counted(_TABLE + elements // _TABLE + 1, keys.device)
        )
        self.kept = kept

    def piece(self, rows: slice, first: int) -> Draws:
        """Those of some rows, from entry ``first`` of their vectors, a multiple of 64."""
        result = copy.copy(self)
        result._keys, result._hashes, result._first = self._keys[rows], self._hashes[rows], first
        result.kept = None if self.kept is None else self.kept[rows]
        return result

    def signs(self, count: int, dtype: torch.dtype) -> Tensor:
        """-1 or 1 with equal probability, (B, count)."""
        import torch

        octets = self._words(count, 64).view(torch.uint8)
        table = _signs_of_octets(dtype, octets.device)
        return table.index_select(0, octets.reshape(-1).int()).view(len(octets), -1)[:, :count]

    def centered(self, count: int, dtype: torch.dtype) -> Tensor:
        """Uniform numbers between -1/2 and 1/2, odd multiples of the spacing of numbers above 1, (B, count)."""
        # Random significands with the exponent of 1 are numbers between 1 and 2.
        per_word, random, fixed = _SIGNIFICANDS[str(dtype)]
        return self._words(count, per_word, random, fixed).view(dtype)[:, :count].sub_(1.5)

    def uniform(self, count: int, dtype: torch.dtype) -> Tensor:
        """Uniform numbers between 0 and 1, (B, count)."""
        return self.centered(count, dtype).add_(0.5)

    def positions(self, count: int, elements: int) -> Tensor:
        """``count`` of ``elements`` positions, all subsets with equal probability, (B, count)."""
        import torch

        drawn = [
            np.random.Generator(np.random.Philox(key=key)).choice(
                elements, count, replace=False, shuffle=False
            )
            for key in self._keys.cpu().numpy().view(np.uint64).tolist()
        ]
        return torch.from_numpy(np.stack(drawn)).to(self._keys.device)

    def _words(self, count: int, per_word: int, random: int = -1, fixed: int = 0) -> Tensor:
        """A word of ``random`` and ``fixed`` bits for every ``per_word`` entries, (B, count / per_word) int64.

        Each combines an entry of either of two tables of hashes (simple tabulation; Patrascu and Thorup, JACM 2012). So
        any three of a vector are independent, which is enough for the mean and variance of ``qsgd``, and all of 1,024
        aligned ones, among them the signs of each rotation of ``eden``.
        """
        block, skipped = divmod(self._first // per_word, _TABLE)
        words = skipped - (-count // per_word)
        blocks = slice(_TABLE + block, _TABLE + block - (-words // _TABLE))
        low = (self._hashes[:, :_TABLE] & random).bitwise_or_(fixed)
        combined = (self._hashes[:, blocks] & random).unsqueeze(2) ^ low.unsqueeze(1)
        return combined.view(len(low), -1)[:, skipped:words]


@functools.lru_cache(8)
def _counted(count: int, device: torch.device) -> Tensor:
    """The first numbers, (count,)."""
    import torch

    return torch.arange(count, device=device)


@functools.cache
def _signs_of_octets(dtype: torch.dtype, device: torch.device) -> Tensor:
    """-1 for a bit of 1, and 1 for one of 0, (256, 8)."""
    import torch

    octets = torch.arange(256, device=device).unsqueeze(1)
    return (1 - 2 * ((octets >> torch.arange(8, device=device)) & 1)).to(dtype)
