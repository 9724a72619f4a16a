"""Stochastic rounding to a few levels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedsim.learning.compression.base import Compression, CompressionParams, Draws

if TYPE_CHECKING:
    from torch import Tensor


class QsgdParams(CompressionParams):
    """Parameters of QSGD."""

    levels: int = Field(default=7, ge=1, le=2**16)
    """Levels s above zero: an entry is sent as one of 0, 1/s, ..., 1 times the norm of its bucket, with its sign. 7
    levels are 4 bits per entry."""
    bucket: int = Field(default=512, ge=1)
    """Entries that share a norm; the last bucket may be shorter."""
    norm: Literal["l2", "max"] = "l2"
    """Norm of a bucket: Euclidean, as in the theory, or the largest magnitude, as in the paper's experiments."""


class Qsgd(Compression):
    """Entries rounded at random to one of two neighboring levels, so that the mean is the entry (QSGD, unbiased).

    Entry v of a bucket with norm n becomes n sign(v) l / s, where l is the integer below or above s |v| / n. Codes
    have a fixed width: a sign and a level per entry, and a number per bucket.
    """

    name = "qsgd"
    Params = QsgdParams

    @property
    def block(self) -> int:
        """A bucket."""
        return int(self.params.bucket)

    def bits(self, elements: int, entry_bits: float) -> float:
        """A sign and a level per entry, and a norm per bucket."""
        level_bits = self.params.levels.bit_length()
        buckets = math.ceil(elements / self.params.bucket)
        return float(elements * (1 + level_bits) + buckets * entry_bits)

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        """The rounded rows."""
        import torch

        count, elements = rows.shape
        bucket, levels = min(self.params.bucket, elements), self.params.levels
        noise = draws.centered(elements, rows.dtype)
        if missing := -elements % bucket:
            rows, noise = (torch.nn.functional.pad(each, (0, missing)) for each in (rows, noise))
        buckets, scaled = rows.reshape(count, -1, bucket), noise.view(count, -1, bucket)
        order = 2 if self.params.norm == "l2" else math.inf
        steps = torch.linalg.vector_norm(buckets, order, 2, keepdim=True).div_(levels)
        inverse = steps.clamp_min(torch.finfo(rows.dtype).tiny).reciprocal_()
        # Rounded after adding a number between -1/2 and 1/2.
        torch.addcmul(scaled, buckets, inverse, out=scaled).round_()
        return scaled.clamp_(-levels, levels).mul_(steps).view(count, -1)[:, :elements]
