"""Corrections of plain steps, as compiled functions take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class ClientCorrection(NamedTuple):
    """The correction of one client's steps: vectors (P,), for :func:`pull` and :func:`shift`."""

    target: Tensor | None
    share: float
    constant: Tensor | None
    rate: float
    start: Tensor
    change: Tensor


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction of the gradients of B clients by ``strength x (weights - target) + constant``.

    Attributes:
        start: models before the first step, (B, P).
        change: what the steps are added to, (B, P): the models, or, with a constant, zeros, so that steps below the
            models' rounding are not lost.
        target: (B, P); None without.
        strength: strength of the pull toward the target.
        constant: (B, P); None without.
    """

    start: Tensor
    change: Tensor
    target: Tensor | None = None
    strength: float = 0.0
    constant: Tensor | None = None

    def of_client(self, row: int, rate: float) -> ClientCorrection:
        """The correction of the dispatch ``row`` with its learning rate."""
        target = None if self.target is None else self.target[row]
        constant = None if self.constant is None else self.constant[row]
        start, change = self.start[row], self.change[row]
        return ClientCorrection(target, rate * self.strength, constant, rate, start, change)


def pull(model: Tensor, target: Tensor | None, share: float) -> None:
    """Between a step's backward pass and its change: move ``model`` toward ``target`` by a ``share`` of the way."""
    if target is not None:
        model.lerp_(target, share)


def shift(
    model: Tensor, constant: Tensor | None, rate: float, start: Tensor, change: Tensor
) -> None:
    """After a step: add its share of ``constant`` to ``change``, the sum of steps, and set ``model`` to the result."""
    if constant is not None:
        change.add_(constant, alpha=-rate)
        torch.add(start, change, out=model)
