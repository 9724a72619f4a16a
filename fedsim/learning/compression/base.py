"""The interface of compressions, which replace vectors by what the receiver decodes, for a group of clients at once.

The size of a compressed vector follows from its length alone, so that transfers are timed before anything is trained.
Row i of a result depends on row i and its random numbers alone, never on the group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from fedsim.parts.component import Component
from fedsim.parts.parameters import Parameters

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedsim.tasks.layout import Layout


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
    """

    def __init__(self, keys: Tensor, kept: Tensor | None = None) -> None:
        self._keys = keys
        self.kept = kept

    def bits(self, count: int) -> Tensor:
        """32 random bits for each of ``count`` entries per row, (B, count) int32."""
        import torch

        from fedsim.learning.batches import fold

        counters = torch.arange((count + 1) // 2, device=self._keys.device)
        return fold(self._keys.unsqueeze(1), counters).view(torch.int32)[:, :count]

    def signs(self, count: int, dtype: torch.dtype) -> Tensor:
        """-1 or 1 with equal probability, (B, count)."""
        import torch

        words = self.bits(-(-count // 32)).contiguous().view(torch.uint8)
        masks = 2 ** torch.arange(8, dtype=torch.uint8, device=words.device)
        ones = words.unsqueeze(2).bitwise_and(masks).ne(0).view(len(words), -1)
        return ones[:, :count].to(dtype).mul_(-2).add_(1)

    def uniform(self, count: int, dtype: torch.dtype) -> Tensor:
        """Uniform numbers: multiples of 2**-24 from 0 to below 1, (B, count)."""
        return self.bits(count).bitwise_and(0xFFFFFF).to(dtype).mul_(2.0**-24)
