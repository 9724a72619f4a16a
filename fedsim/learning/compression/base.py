"""The interface of compressions, which replace vectors by what the receiver decodes, for a group of clients at once.

The size of a compressed vector follows from its length alone, so that transfers are timed before anything is trained.
Row i of a result depends on row i and its random numbers alone, never on the group.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedsim.parts.component import Component
from fedsim.parts.parameters import Parameters
from fedsim.randomness import GOLDEN

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedsim.tasks.layout import Layout


# The lowest bit of each of the four numbers of 16 bits in a word.
_ODD = 0x0001_0001_0001_0001


class CompressionParams(Parameters):
    """Parameters of every compression."""

    vectors: list[str] | None = None
    """Names of the vectors that are compressed, such as ``[delta]``; by default all that the method sends in this
    direction. ``fedsim methods show NAME`` lists them."""


class Compression(Component, ABC):
    """Compresses vectors.

    Attributes:
        lossy: whether it changes values; otherwise it changes sizes alone.
        by_tensor: whether it needs to know which entries belong to which tensor of the model.
        layout: names, shapes and offsets of the model's parameter vector.
    """

    Params: ClassVar[type[Parameters]] = CompressionParams
    lossy: ClassVar[bool] = True
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
        """1 with error feedback."""
        return 1.0 if self.params.error_feedback else None


class Draws:
    """Random numbers of B rows, from counters; the same on every device.

    Args:
        keys: the stream of each row, (B,) int64.
        kept: :meth:`Compression.kept` numbers per row, which a compression changes in place; None in downloads.
        first: number of the first of these entries in the vector, a multiple of 64.
    """

    def __init__(self, keys: Tensor, kept: Tensor | None = None, first: int = 0) -> None:
        self._keys = keys
        self.kept = kept
        self._first = first

    def signs(self, count: int, dtype: torch.dtype) -> Tensor:
        """-1 or 1 with equal probability, (B, count)."""
        import torch

        octets = self._words(count, 64).view(torch.uint8)
        table = _signs_of_octets(dtype, octets.device)
        return table.index_select(0, octets.view(-1).int()).view(len(octets), -1)[:, :count]

    def odd(self, count: int, dtype: torch.dtype) -> Tensor:
        """Odd numbers from -32,767 to 32,767 with equal probability, (B, count)."""
        import torch

        words = self._words(count, 4).bitwise_or_(_ODD).view(torch.int16)
        return words[:, :count].to(dtype)

    def uniform(self, count: int, dtype: torch.dtype) -> Tensor:
        """Uniform numbers: odd multiples of 2**-16 between 0 and 1, (B, count)."""
        return self.odd(count, dtype).mul_(2.0**-16).add_(0.5)

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

    def _words(self, count: int, per_word: int) -> Tensor:
        """64 random bits for every ``per_word`` entries, (B, count / per_word) int64."""
        from fedsim.learning.batches import mix, signed

        first = self._first // per_word
        keys = self._keys + signed(first * GOLDEN % 2**64)
        return mix(_counted(-(-count // per_word), self._keys.device) + keys.unsqueeze(1))


@functools.lru_cache(8)
def _counted(count: int, device: torch.device) -> Tensor:
    """The first counters as they enter the hash of a :class:`fedsim.randomness.Stream`, (count,)."""
    import torch

    from fedsim.learning.batches import signed

    return torch.arange(1, count + 1, device=device).mul_(signed(GOLDEN))


@functools.cache
def _signs_of_octets(dtype: torch.dtype, device: torch.device) -> Tensor:
    """-1 for a bit of 1, and 1 for one of 0, (256, 8)."""
    import torch

    octets = torch.arange(256, device=device).unsqueeze(1)
    return (1 - 2 * ((octets >> torch.arange(8, device=device)) & 1)).to(dtype)
