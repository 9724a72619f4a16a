"""The interface of a gradient kernel: mini-batch gradients of many clients, each at its own model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.device import uploaded
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.metrics import DispatchLoss


class Session(ABC):
    """The mini-batches of one group of dispatches in one phase.

    Rows of all matrices are the group's dispatches, in order.
    """

    @abstractmethod
    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        """Write the mini-batch gradients of local step ``step`` of the first b dispatches.

        Args:
            step: number of the step; steps are requested in ascending order.
            weights: local models, (b, P); entries without a gradient (buffers) may be updated in place.
            out: receives the gradients, (b, P), zero for entries without a gradient.

        Returns:
            What the mini-batches contribute to the losses, :meth:`Kernel.reported`, (b,).
        """

    def descend(
        self, weights: Tensor, rates: Tensor, active: Ints, correction: Correction | None = None
    ) -> Tensor:
        """Take all local steps in place: at each, ``weights -= rates x gradients`` for the working dispatches.

        Only on kernels that are :attr:`Kernel.fused`.

        Args:
            weights: local models, (B, P).
            rates: learning rates, (B,).
            active: number of dispatches, from the first on, that perform local step 0, 1, ...
            correction: added to the gradients; only if :attr:`Kernel.corrects`.

        Returns:
            Sums of what :meth:`gradients` returns, at the models before each step, (B,).
        """
        raise NotImplementedError


class Kernel(ABC):
    """Computes gradients for groups of dispatches. One kernel object is used by one thread at a time.

    Attributes:
        name: name in ``run.json``.
        revision: number that is increased whenever the kernel's bits change.
        group_invariant: whether a dispatch's result is bitwise the same in every group (on CPU; a test checks it).
        fused: whether sessions have :meth:`Session.descend`.
        recorded: whether its sessions' steps go through :class:`fedsim.learning.kernels.replay.Replay`.
        dispatch_loss: the loss that dispatches report, which their selection chooses.
    """

    name: ClassVar[str]
    revision: ClassVar[int]
    group_invariant: ClassVar[bool]
    fused: bool = False
    recorded: bool = False
    dispatch_loss: DispatchLoss

    @abstractmethod
    def replica(self) -> Kernel:
        """A kernel for another thread, which shares the data but not the work space."""

    @abstractmethod
    def session(self, clients: Ints, sequences: Ints, steps: Ints, phase: int) -> Session:
        """Mini-batches for dispatches sorted by ``steps`` (most first), all of one :meth:`shape_class`."""

    @abstractmethod
    def largest_group(self) -> int:
        """The number of dispatches to train together on this hardware."""

    def limit_group(self, rows: int) -> None:  # noqa: B027 - most kernels have no such limit
        """Record that larger groups do not fit into the device's memory."""

    @abstractmethod
    def visited(self, clients: Ints, steps: Ints) -> Ints:
        """Samples in all mini-batches of dispatches with these steps, counted every time they are visited, (B,)."""

    def reported(self, mean: Tensor, losses: Tensor, weights: Tensor | None = None) -> Tensor:
        """What a mini-batch contributes: its ``mean`` loss with the penalty, (...), or the sum of squares without it.

        Args:
            mean: the mean loss.
            losses: those of the samples, (..., width).
            weights: 0 for padding, (..., width); None without padding.
        """
        if self.dispatch_loss == "mean":
            return mean
        squares = losses.square()
        return (squares if weights is None else squares * weights.sign()).sum(-1)

    def loss(self, sums: Tensor, clients: Ints, steps: Ints) -> Tensor:
        """The loss of each of B dispatches, (B,), from the sums over its steps of :meth:`reported`, (B,)."""
        if self.dispatch_loss == "mean":
            return sums / uploaded(np.maximum(steps, 1), sums.device).to(sums.dtype)
        samples = np.maximum(self.visited(clients, steps), 1)
        return (sums / uploaded(samples, sums.device).to(sums.dtype)).sqrt()

    @property
    def corrects(self) -> bool:
        """Whether its sessions' :meth:`Session.descend` takes a correction."""
        return False

    @property
    def fixed_memory(self) -> bool:
        """Whether models and gradients must lie in the same memory for every group."""
        return False

    def notes(self) -> Mapping[str, str]:
        """Deviations from the scenario that have no effect on the results, by topic."""
        return {}

    def shape_class(self, clients: Ints) -> Ints:
        """A number for each client; only clients with equal numbers may share a group."""
        return np.zeros(len(clients), dtype=np.int64)


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

    def of(self, rows: slice | int) -> Correction:
        """The correction of some clients, or of one, without the first axis."""
        target = None if self.target is None else self.target[rows]
        constant = None if self.constant is None else self.constant[rows]
        return Correction(self.start[rows], self.change[rows], target, self.strength, constant)

    def pull(self, models: Tensor, factors: Tensor) -> None:
        """Between a step's backward pass and its change: move ``models`` toward the target.

        ``factors`` are minus the learning rates, (B, 1).
        """
        if self.target is not None:
            models.lerp_(self.target, factors * -self.strength)

    def shift(self, models: Tensor, factors: Tensor) -> None:
        """After a step: add its share of the constant to ``change``, and set ``models`` to the result."""
        if self.constant is not None:
            self.change.addcmul_(self.constant, factors)
            torch.add(self.start, self.change, out=models)
