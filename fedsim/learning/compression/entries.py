"""Compressions entry by entry: fewer bits per entry, or sizes alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedsim.learning.compression import (
    Compression,
    CompressionParams,
    Draws,
    FeedbackParams,
    WithFeedback,
)

if TYPE_CHECKING:
    from torch import Tensor


class NoCompression(Compression):
    """No compression."""

    name = "none"
    sums = True
    lossy = False

    @property
    def changes_nothing(self) -> bool:
        return True

    def bits(self, elements: int, entry_bits: float) -> float:
        return elements * entry_bits

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        return rows


class Factor(NoCompression):
    """A factor on the size of vectors, whose values do not change."""

    name = "factor"

    class Params(CompressionParams):
        factor: float = Field(default=1.0, gt=0, le=1)
        """Size of a compressed vector as a share of its size without compression."""

    @property
    def changes_nothing(self) -> bool:
        return bool(self.params.factor == 1)

    def bits(self, elements: int, entry_bits: float) -> float:
        return float(elements * entry_bits * self.params.factor)


class Cast(Compression):
    """Entries rounded to the nearest number of a 16-bit floating-point type."""

    name = "cast"
    sums = True
    block = 1

    class Params(CompressionParams):
        dtype: Literal["float16", "bfloat16"] = "bfloat16"
        """Type in which entries are sent: float16 has 11 significant bits and ends at 65,504, bfloat16 has 8 and the
        range of float32."""

    def bits(self, elements: int, entry_bits: float) -> float:
        return 16 * elements

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        import torch

        return rows.to(getattr(torch, self.params.dtype)).to(rows.dtype)


class Qsgd(Compression):
    """Entries rounded at random to one of two neighboring levels, so that the mean is the entry (QSGD, unbiased).

    Entry v of a bucket with norm n becomes n sign(v) l / s, where l is the integer below or above s |v| / n. Codes
    have a fixed width: a sign and a level per entry, and a number per bucket.
    """

    name = "qsgd"

    class Params(CompressionParams):
        levels: int = Field(default=7, ge=1, le=2**16)
        """Levels s above zero: an entry is sent as one of 0, 1/s, ..., 1 times the norm of its bucket, with its sign. 7
        levels are 4 bits per entry."""
        bucket: int = Field(default=512, ge=1)
        """Entries that share a norm; the last bucket may be shorter."""
        norm: Literal["l2", "max"] = "l2"
        """Norm of a bucket: Euclidean, as in the theory, or the largest magnitude, as in the paper's experiments."""

    @property
    def block(self) -> int:
        return int(self.params.bucket)

    def bits(self, elements: int, entry_bits: float) -> float:
        """A sign and a level per entry, and a norm per bucket."""
        level_bits = self.params.levels.bit_length()
        buckets = math.ceil(elements / self.params.bucket)
        return float(elements * (1 + level_bits) + buckets * entry_bits)

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
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


class SignSgd(WithFeedback):
    """The sign of every entry, times one magnitude (signSGD; with error feedback and the mean magnitude, EF-signSGD).

    With the mean magnitude it is a contraction by 1 - ||x||_1^2 / (d ||x||_2^2). Biased. The sign of zero is positive.
    """

    name = "signsgd"

    class Params(FeedbackParams):
        magnitude: float | None = Field(default=None, gt=0)
        """Magnitude of every entry at the receiver, as in signSGD, where the step size plays this role; by default the
        mean magnitude of the vector's entries, which is sent with the signs."""

    def bits(self, elements: int, entry_bits: float) -> float:
        """A bit per entry, and a number unless the magnitude is given."""
        return elements + (entry_bits if self.params.magnitude is None else 0)

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        import torch

        magnitudes, given = rows.abs(), self.params.magnitude
        means = magnitudes.mean(1, keepdim=True)
        if given is not None:
            means.fill_(given)
        return torch.copysign(means, rows, out=magnitudes)
