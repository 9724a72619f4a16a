"""Sizes alone: a factor, or no compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fedsim.learning.compression.base import Compression, CompressionParams, Draws

if TYPE_CHECKING:
    from torch import Tensor


class FactorParams(CompressionParams):
    """Parameters of a factor on sizes."""

    factor: float = Field(default=1.0, gt=0, le=1)
    """Size of a compressed vector as a share of its size without compression."""


class Factor(Compression):
    """A factor on the size of vectors, whose values do not change."""

    name = "factor"
    Params = FactorParams
    lossy = False

    @property
    def changes_nothing(self) -> bool:
        """Whether the factor is 1."""
        return bool(self.params.factor == 1)

    def bits(self, elements: int, entry_bits: float) -> float:
        """The factor times the size without compression."""
        return float(elements * entry_bits * self.params.factor)

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        """The rows."""
        return rows


class NoCompression(Compression):
    """No compression."""

    name = "none"
    lossy = False

    @property
    def changes_nothing(self) -> bool:
        """Always."""
        return True

    def bits(self, elements: int, entry_bits: float) -> float:
        """The size without compression."""
        return elements * entry_bits

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        """The rows."""
        return rows
