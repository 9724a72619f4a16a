"""Vectors in a floating-point type of 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fedsim.learning.compression.base import Compression, CompressionParams, Draws

if TYPE_CHECKING:
    from torch import Tensor


class CastParams(CompressionParams):
    """Parameters of a cast."""

    dtype: Literal["float16", "bfloat16"] = "bfloat16"
    """Type in which entries are sent: float16 has 11 significant bits and ends at 65,504, bfloat16 has 8 and the range
    of float32."""


class Cast(Compression):
    """Entries rounded to the nearest number of a 16-bit floating-point type."""

    name = "cast"
    Params = CastParams
    block = 1

    def bits(self, elements: int, entry_bits: float) -> float:
        """16 per entry."""
        return 16 * elements

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        """The rounded rows."""
        import torch

        return rows.to(getattr(torch, self.params.dtype)).to(rows.dtype)
