"""Matrices of low rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from fedsim.learning.compression import Draws, FeedbackParams, WithFeedback

if TYPE_CHECKING:
    from torch import Tensor


class PowerSgd(WithFeedback):
    """Each matrix as a product of two narrow ones, by a step of the power iteration (PowerSGD).

    An n x m matrix M becomes P P^T M, where the columns of P are the orthonormal basis of M Q. P and P^T M are sent,
    and the client keeps M^T P as Q for its next upload (warm start); at first, and in downloads, the m x rank numbers
    of Q are normal. A tensor of more dimensions is a matrix with its first dimension as rows. Vectors, matrices that
    would not become smaller, and vectors of the method that have another length than the parameters are sent as they
    are. A contraction; biased.
    """

    name = "powersgd"
    by_tensor = True

    class Params(FeedbackParams):
        rank: int = Field(default=2, ge=1)
        """Rank of what is sent of a matrix."""

    def kept(self, elements: int) -> int:
        """Q of every matrix."""
        return sum(m * self.params.rank for *_, m in self._matrices(elements))

    def bits(self, elements: int, entry_bits: float) -> float:
        """The entries of the narrow matrices, and of what is sent as it is."""
        rank = self.params.rank
        saved = sum(n * m - (n + m) * rank for _, n, m in self._matrices(elements))
        return float((elements - saved) * entry_bits)

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        import torch

        rank, result = self.params.rank, torch.empty_like(rows)
        matrices = list(self._matrices(rows.shape[1]))
        starts = torch.special.ndtri(draws.uniform(self.kept(rows.shape[1]), rows.dtype))
        if draws.kept is not None:
            starts = draws.kept.where(draws.kept != 0, starts)
        # Row by row: products of matrices in a batch may depend on its length.
        for row, sent, start in zip(rows, result, starts, strict=True):
            end = 0
            for offset, n, m in matrices:
                sent[end:offset] = row[end:offset]
                end = offset + n * m
                matrix = row[offset:end].view(n, m)
                factor = start[: m * rank].view(m, rank)
                basis = torch.linalg.qr(matrix @ factor).Q
                transposed = basis.mT @ matrix
                torch.mm(basis, transposed, out=sent[offset:end].view(n, m))
                factor.copy_(transposed.mT)
                start = start[m * rank :]
            sent[end:] = row[end:]
        if draws.kept is not None:
            draws.kept.copy_(starts)
        return result

    def _matrices(self, elements: int) -> Iterator[tuple[int, int, int]]:
        """Offset, rows and columns of each matrix that becomes smaller."""
        if elements not in (self.layout.trainable, self.layout.size):
            return
        for offset, shape in zip(self.layout.offsets, self.layout.shapes, strict=False):
            n, m = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, 1)
            if offset < elements and (n + m) * self.params.rank < n * m:
                yield offset, n, m
