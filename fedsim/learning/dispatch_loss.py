"""The loss that a dispatch reports, which its selection chooses: one term per mini-batch, summed over the steps."""

from __future__ import annotations

from torch import Tensor

from fedsim.vocabulary.metrics import DispatchLoss


def of_batch(
    kind: DispatchLoss, mean: Tensor, losses: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The term of a mini-batch: its ``mean`` loss with the penalty, (...), or the sum of squares without it, (...).

    Args:
        losses: those of the samples, (..., width).
        weights: 0 for padding, (..., width); None without padding.
    """
    if kind == "mean":
        return mean
    squares = losses.square()
    return (squares if weights is None else squares * weights.sign()).sum(-1)


def of_dispatch(kind: DispatchLoss, terms: Tensor, steps: Tensor, samples: Tensor) -> Tensor:
    """The loss of each of B dispatches, (B,).

    Args:
        terms: sums over the steps, (B,).
        steps: their number, (B,).
        samples: samples in the mini-batches, counted every time they are visited, (B,).
    """
    return terms / steps if kind == "mean" else (terms / samples).sqrt()
