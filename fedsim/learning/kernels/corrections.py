"""Corrections of plain steps, as compiled functions take them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedsim.learning.kernels.base import Correction, Pull, Shift


class ClientCorrection(NamedTuple):
    """A correction of one client's steps; by default, none.

    Attributes:
        target, share: as :func:`pull` takes them.
        constant, rate, start, change: as :func:`shift` takes them.
    """

    target: Tensor | None
    share: float
    constant: Tensor | None
    rate: float
    start: Tensor
    change: Tensor

    @classmethod
    def of(
        cls, correction: Correction | None, row: int, rate: float, model: Tensor
    ) -> ClientCorrection:
        """The correction of the dispatch ``row`` with its learning rate and local ``model`` (P,)."""
        if isinstance(correction, Pull):
            target = correction.target[row]
            return cls(target, rate * correction.strength, None, rate, model, model)
        if isinstance(correction, Shift):
            constant, start = correction.constant[row], correction.start[row]
            return cls(None, 0.0, constant, rate, start, correction.change[row])
        return cls(None, 0.0, None, rate, model, model)


class GroupCorrection(NamedTuple):
    """A correction of the steps of b clients that are trained together.

    Attributes:
        target: (b, P), toward which each model moves before a step by a share of the distance; None without.
        shares: these shares, (b, 1).
        constant: (b, P), added to every gradient; None without.
        start: models before the first step, (b, P).
        change: what the steps are added to, (b, P): the models, or, with a constant, the sum of the steps.
    """

    target: Tensor | None
    shares: Tensor
    constant: Tensor | None
    start: Tensor
    change: Tensor

    @classmethod
    def of(cls, correction: Correction, rates: Tensor, models: Tensor) -> GroupCorrection:
        """The correction of the first b dispatches with learning rates (b,) and local ``models`` (b, P)."""
        rows, shares = slice(0, len(models)), rates.unsqueeze(1)
        if isinstance(correction, Pull):
            shares = shares * correction.strength
            return cls(correction.target[rows], shares, None, models, models)
        constant, start = correction.constant[rows], correction.start[rows]
        return cls(None, shares, constant, start, correction.change[rows])


def pull(model: Tensor, target: Tensor | None, share: float) -> None:
    """Move ``model`` (P,) toward ``target`` (P,), if there is one, by a ``share`` of the distance.

    Called between the backward pass of a step and its change of the model.
    """
    if target is not None:
        model.lerp_(target, share)


def shift(
    model: Tensor, constant: Tensor | None, rate: float, start: Tensor, change: Tensor
) -> None:
    """If there is a ``constant`` (P,), set ``model`` to ``start + change`` after a step that was added to ``change``.

    Args:
        model: (P,).
        constant: added to every gradient.
        rate: learning rate.
        start: model before the first step, (P,).
        change: sum of the steps, (P,); this step's share of ``constant`` is added.
    """
    if constant is not None:
        change.add_(constant, alpha=-rate)
        torch.add(start, change, out=model)
