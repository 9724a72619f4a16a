"""A few entries of a vector, and the positions at which they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedsim.learning.compression import Draws, FeedbackParams, WithFeedback

if TYPE_CHECKING:
    from torch import Tensor

# SparseLoCo's codes, and the standard deviations that they span.
_CODES = 4
_SIGMAS = 6
# The groups of entries whose maxima bound the largest entries have at most as many.
_MOST_PER_GROUP = 16


def _count(elements: int, share: float) -> int:
    """Entries that are sent of a vector."""
    return max(1, round(share * elements))


def _index_bits(elements: int) -> int:
    """Bits of a position among ``elements``."""
    return math.ceil(math.log2(elements))


def _only(rows: Tensor, positions: Tensor) -> Tensor:
    """The rows with zeros except at ``positions`` (B, k)."""
    return rows.new_zeros(rows.shape).scatter_(1, positions, rows.gather(1, positions))


def _largest(rows: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` entries of largest magnitude of each row, (B, count)."""
    import torch

    elements = rows.shape[1]
    groups = min(_MOST_PER_GROUP, elements // (2 * count)) if rows.device.type == "cpu" else 0
    if groups < 2:
        return rows.abs().topk(count, dim=1, sorted=False).indices
    magnitudes = np.abs(rows.numpy())
    # As many groups have a maximum of this or more, so no smaller entry is among the largest.
    grouped = magnitudes[:, : elements - elements % groups].reshape(len(rows), groups, -1).max(1)
    bounds = np.partition(grouped, -count, axis=1)[:, -count, None]
    candidate = ~(magnitudes < np.maximum(bounds, np.finfo(bounds.dtype).smallest_subnormal))
    # Where zeros are among the largest, any will do.
    candidate[:, :count] |= bounds == 0
    found = np.flatnonzero(candidate)
    row, position = np.divmod(found, elements)
    ends = np.bincount(row, minlength=len(rows)).cumsum()
    # The candidates of each row, filled up with an entry that is smaller than all.
    column = np.arange(len(found)) - np.r_[0, ends][row]
    candidates = np.full((len(rows), column.max() + 1), -1, magnitudes.dtype)
    candidates[row, column] = magnitudes.reshape(-1)[found]
    positions = np.empty(candidates.shape, np.int64)
    positions[row, column] = position
    chosen = np.argpartition(candidates, -count, axis=1)[:, -count:]
    return torch.from_numpy(np.take_along_axis(positions, chosen, axis=1))


class TopK(WithFeedback):
    """The entries of largest magnitude; the receiver takes zero for the others.

    A contraction: ||x - C(x)||^2 <= (1 - k/d) ||x||^2. Biased, so it converges only with error feedback.
    """

    name = "topk"

    class Params(FeedbackParams):
        share: float = Field(default=0.01, gt=0, le=1)
        """Share of the entries that are sent: at least one entry, and the vector itself if it is 1."""

    def bits(self, elements: int, entry_bits: float) -> float:
        """A number and a position per entry that is sent; no positions if all are."""
        count = _count(elements, self.params.share)
        return count * (entry_bits + (_index_bits(elements) if count < elements else 0))

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        count = _count(rows.shape[1], self.params.share)
        if count == rows.shape[1]:
            return rows
        return _only(rows, _largest(rows, count))


class RandK(WithFeedback):
    """Entries at random positions, drawn afresh for every dispatch; the receiver takes zero for the others.

    Without error feedback, entries are multiplied by d/k, so that the mean over draws is the vector (unbiased); with
    it, which downloads also need, they are sent as they are (a contraction in expectation).
    """

    name = "randk"

    class Params(TopK.Params):
        shared_seed: bool = False
        """Whether the receiver draws the positions itself, from a seed that both sides know, so that none are sent."""

    def bits(self, elements: int, entry_bits: float) -> float:
        """A number and, unless they follow from a shared seed, a position per entry that is sent."""
        count = _count(elements, self.params.share)
        with_positions = count < elements and not self.params.shared_seed
        return count * (entry_bits + (_index_bits(elements) if with_positions else 0))

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        elements = rows.shape[1]
        count = _count(elements, self.params.share)
        if count == elements:
            return rows
        chosen = _only(rows, draws.positions(count, elements))
        return chosen if self.params.error_feedback else chosen.mul_(elements / count)


class SparseLoCo(WithFeedback):
    """The entries of largest magnitude of every chunk, in 2 bits, with errors that decay (SparseLoCo).

    With the mean and the standard deviation s of the entries that are sent, an entry's code is its distance from the
    mean in units of 1.5 s, plus 2, rounded and cut to 0, ..., 3; the receiver takes the mean of the entries with this
    code. The paper's outer step is that of ``diloco`` without momentum: ``{name: diloco, momentum: 0}``.
    """

    name = "sparseloco"

    class Params(FeedbackParams):
        share: float = Field(default=0.03125, gt=0, le=1)
        """Share of the entries of every chunk that are sent."""
        chunk: int = Field(default=4096, ge=2)
        """Entries per chunk; the last may be shorter."""
        decay: float = Field(default=0.95, gt=0, le=1)
        """Factor on the error of the last upload before it is added."""

    @property
    def error_decay(self) -> float | None:
        return self.params.decay if self.params.error_feedback else None

    def bits(self, elements: int, entry_bits: float) -> float:
        """2 bits and a position within the chunk per entry that is sent, and the four values."""
        chunk, share = self.params.chunk, self.params.share
        whole, rest = divmod(elements, chunk)
        count = whole * _count(chunk, share) + (_count(rest, share) if rest else 0)
        return float(count * (2 + _index_bits(chunk)) + _CODES * entry_bits)

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        import torch

        chunk, (count, elements) = self.params.chunk, rows.shape
        positions = []
        within = elements - elements % chunk
        for first, last, size in ((0, within, chunk), (within, elements, elements - within)):
            if first < last:
                kept = _count(size, self.params.share)
                largest = _largest(rows[:, first:last].reshape(-1, size), kept)
                largest = largest.view(count, -1, kept)
                starts = torch.arange(first, last, size, device=rows.device).view(1, -1, 1)
                positions.append((largest + starts).view(count, -1))
        sent = torch.cat(positions, 1)
        decoded = [_in_two_bits(row) for row in rows.gather(1, sent)]
        return torch.zeros_like(rows).scatter_(1, sent, torch.stack(decoded))


def _in_two_bits(values: Tensor) -> Tensor:
    """What the receiver decodes of values (k,)."""
    import torch

    centered = values - values.mean()
    spread = torch.linalg.vector_norm(centered) / math.sqrt(max(1, len(values) - 1))
    unit = spread.mul_(_SIGMAS / _CODES).clamp_min_(torch.finfo(values.dtype).tiny)
    codes = (centered / unit + _CODES // 2).round_().long().clamp_(0, _CODES - 1)
    same = (codes == torch.arange(_CODES, device=codes.device).unsqueeze(1)).to(values.dtype)
    means: Tensor = (same @ values) / same.sum(1)
    return means[codes]
