"""Quantization after a random rotation."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedsim.learning.compression import Compression, CompressionParams, Draws
from fedsim.vocabulary.arrays import Floats

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_BLOCK_BITS = 12
_LLOYD_ITERATIONS = 2000


class Eden(Compression):
    """Entries quantized after a random rotation, which makes them nearly normal (EDEN, nearly unbiased).

    Blocks of 4,096 entries (of the next power of two, if the vector is shorter) are multiplied by random signs and by a
    Hadamard matrix, and each entry by the best quantizer of a standard normal number with 2^bits values; 1 bit is
    DRIVE. The scale ||x||^2 / <R x, Q(R x)> of a block, which is sent with it, makes the mean over uniform rotations x,
    and over these nearly x. Signs follow from a seed that both sides know.
    """

    name = "eden"

    class Params(CompressionParams):
        bits: int = Field(default=1, ge=1, le=4)
        """Bits per entry."""

    @property
    def block(self) -> int:
        """Those that are rotated together."""
        return 1 << _BLOCK_BITS

    def bits(self, elements: int, entry_bits: float) -> float:
        """The bits of every entry of the blocks, and a scale per block."""
        blocks, size = _blocks(elements)
        return float(blocks * (size * self.params.bits + entry_bits))

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        import torch

        elements = rows.shape[1]
        blocks, size = _blocks(elements)
        values, bounds = normal_quantizer(self.params.bits)
        signs = draws.signs(elements, rows.dtype)
        rotated = rows * signs
        if missing := blocks * size - elements:
            rotated = torch.nn.functional.pad(rotated, (0, missing))
        smallest = torch.finfo(rows.dtype).tiny
        # Row by row: products of matrices in a batch may depend on its length.
        for row in rotated.view(len(rows), blocks, size):
            turned = _hadamard(row)
            norms = torch.linalg.vector_norm(turned, dim=1, keepdim=True)
            magnitudes, levels = turned.abs(), 1.0
            # Relative to the smallest value, which the scale makes up for.
            for bound, difference in zip(bounds, np.diff(values) / values[0], strict=True):
                levels = levels + (magnitudes > norms * (bound / math.sqrt(size))) * difference
            products = magnitudes.mul_(levels).sum(1, keepdim=True).clamp_min_(smallest)
            scales = norms.square_().div_(products) * levels
            _hadamard(torch.copysign(scales, turned, out=turned), out=row)
        return rotated[:, :elements].mul_(signs)


def _blocks(elements: int) -> tuple[int, int]:
    """Number of blocks, and entries per block."""
    size = 1 << min(_BLOCK_BITS, (elements - 1).bit_length())
    return -(-elements // size), size


def _hadamard(rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Rows (m, size) times the orthonormal Hadamard matrix, as a Kronecker product of two; (m, size)."""
    import torch

    size = rows.shape[1]
    left = 1 << (size.bit_length() - 1) // 2
    first, second = (_matrix(one, rows.dtype, rows.device) for one in (left, size // left))
    halfway = torch.mm(rows.view(-1, size // left), second).view(-1, left, size // left)
    target = None if out is None else out.view(halfway.shape)
    return torch.matmul(first, halfway, out=target).view(rows.shape)


@functools.cache
def _matrix(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The orthonormal Hadamard matrix, (size, size)."""
    import torch
    from scipy.linalg import hadamard

    return torch.from_numpy(hadamard(size) / math.sqrt(size)).to(device, dtype)


@functools.cache
def normal_quantizer(bits: int) -> tuple[Floats, Floats]:
    """The positive values of the best quantizer of a standard normal number with 2**bits, and the bounds between them.

    Lloyd's iteration: a value is the mean of the numbers nearest to it, (pdf(a) - pdf(b)) / (cdf(b) - cdf(a)).
    """
    from scipy.special import ndtr, ndtri

    values = ndtri((np.arange(2**bits) + 0.5) / 2**bits)
    for _ in range(_LLOYD_ITERATIONS):
        bounds = (values[1:] + values[:-1]) / 2
        ends = np.concatenate([[-np.inf], bounds, [np.inf]])
        density = np.exp(-(ends**2) / 2) / math.sqrt(2 * math.pi)
        values = -np.diff(density) / np.diff(ndtr(ends))
    half = len(values) // 2
    return values[half:], bounds[half:]
