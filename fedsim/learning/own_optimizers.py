"""A check of users' optimizers; those that ship with fedsim are tested instead."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.learning.optimizers import Optimizer
from fedsim.signatures import place

_TOLERANCE = 1e-3
"""Largest difference of an entry that counts as rounding, relative to the largest entry of its row."""
_STEPS = 2


def refuse_mixed_rows(new_optimizer: Callable[[], Optimizer], like: Tensor) -> None:
    """Check that an optimizer moves each row by its own direction and rate alone.

    Two rows with different weights, directions and rates make a few steps; the second one then makes them by itself.

    Args:
        new_optimizer: returns a new optimizer.
        like: the trainable part of local models, (b, p), which has the run's data type and device.

    Raises:
        UserError: the second row depends on the first.
    """
    places = torch.arange(1, like.shape[1] + 1, dtype=torch.float64)
    weights = torch.stack([3 * places.cos(), places.sin()]).to(like)
    direction = torch.stack([2 * places.sin(), (places / 2).cos()]).to(like)
    rates = torch.tensor([[1.0], [0.5]]).to(like)
    together = _stepped(new_optimizer(), weights, direction, rates)[1:]
    alone = _stepped(new_optimizer(), weights[1:], direction[1:], rates[1:])
    gap = float((together - alone).abs().max() / alone.abs().max())
    if gap > _TOLERANCE:
        optimizer = type(new_optimizer())
        raise UserError(
            "computes rows that depend on one another: with the same gradients, the weights of a client differ by "
            f"{gap:.2g} of their largest entry if it is trained together with another one",
            where=place(optimizer, "step"),
            hint="compute each row from that row alone, with dim=1, keepdim=True in norms, means and maxima",
        )


def _stepped(optimizer: Optimizer, weights: Tensor, direction: Tensor, rates: Tensor) -> Tensor:
    weights = weights.clone()
    for _ in range(_STEPS):
        optimizer.step(weights, direction.clone(), rates)
    return weights
