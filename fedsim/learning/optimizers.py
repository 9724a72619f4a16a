"""Optimizers of local steps, for all rows of a group at once.

The formulas are those of ``torch.optim``; states start at zero with every run of local training. Entries beyond the
trainable part (buffers) never get here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from fedsim.scenario.training import Adam, AdamW, Optimizer, Sgd


class Stepper(ABC):
    """One run's optimizer. Rows leave from the end: later steps have fewer rows, never more."""

    @abstractmethod
    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        """Make a step from ``weights`` (b, p), in place.

        Args:
            weights: trainable part of the local models.
            direction: gradient, or what a rule made of it, (b, p); used up.
            rates: learning rate of each row and perhaps of each entry, (b, 1) or (b, p).
            moved: move this (b, p) in place of ``weights``, which then stay as they are.
        """


class _SgdStepper(Stepper):
    def __init__(self, params: Sgd) -> None:
        self._params = params
        self._momentum: Tensor | None = None

    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        params = self._params
        if params.weight_decay:
            direction.add_(weights, alpha=params.weight_decay)
        if params.momentum:
            if self._momentum is None:
                self._momentum = direction.clone()
            else:
                self._momentum = self._momentum[: len(direction)]
                self._momentum.mul_(params.momentum).add_(direction)
            if params.nesterov:
                direction.add_(self._momentum, alpha=params.momentum)
            else:
                direction = self._momentum
        (weights if moved is None else moved).addcmul_(direction, rates, value=-1)


class _AdamStepper(Stepper):
    def __init__(self, params: Adam | AdamW) -> None:
        self._params = params
        self._decoupled = isinstance(params, AdamW)
        self._steps = 0
        self._first: Tensor | None = None
        self._second: Tensor | None = None

    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        params = self._params
        self._steps += 1
        if params.weight_decay:
            if not self._decoupled:
                direction.add_(weights, alpha=params.weight_decay)
            elif moved is None:
                weights.mul_(1 - rates * params.weight_decay)
            else:
                moved.addcmul_(weights, rates, value=-params.weight_decay)
        if self._first is None or self._second is None:
            self._first, self._second = torch.zeros_like(direction), torch.zeros_like(direction)
        self._first, self._second = self._first[: len(direction)], self._second[: len(direction)]
        self._first.lerp_(direction, 1 - params.beta1)
        self._second.mul_(params.beta2).addcmul_(direction, direction, value=1 - params.beta2)
        correction_1 = 1 - params.beta1**self._steps
        correction_2 = 1 - params.beta2**self._steps
        denominator = (self._second.sqrt() / correction_2**0.5).add_(params.eps)
        target = weights if moved is None else moved
        target.sub_((self._first / denominator).mul_(rates / correction_1))


def stepper(optimizer: Optimizer) -> Stepper:
    """A fresh optimizer for one run of local training."""
    return _SgdStepper(optimizer) if isinstance(optimizer, Sgd) else _AdamStepper(optimizer)


def is_plain(optimizer: Optimizer) -> bool:
    """Whether a step is ``weights -= rate x gradient`` and nothing else."""
    return isinstance(optimizer, Sgd) and not optimizer.momentum and not optimizer.weight_decay
