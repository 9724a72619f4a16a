"""The interface of a gradient kernel: mini-batch gradients of many clients, each at its own model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

IntArray = npt.NDArray[np.int64]


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
            Mini-batch losses, (b,); sums of squared losses of their samples with :attr:`Kernel.squared_losses`.
        """

    def descend(
        self, weights: Tensor, rates: Tensor, active: IntArray, correction: Correction | None = None
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
        squared_losses: whether sessions return sums of squared losses of the samples, without a penalty, instead of
            mini-batch losses.
    """

    name: ClassVar[str]
    revision: ClassVar[int]
    group_invariant: ClassVar[bool]
    fused: bool = False
    recorded: bool = False
    squared_losses: bool

    @abstractmethod
    def replica(self) -> Kernel:
        """A kernel for another thread, which shares the data but not the work space."""

    @abstractmethod
    def session(
        self, clients: IntArray, sequences: IntArray, steps: IntArray, phase: int
    ) -> Session:
        """Mini-batches for dispatches sorted by ``steps`` (most first), all of one :meth:`shape_class`."""

    @abstractmethod
    def largest_group(self) -> int:
        """The number of dispatches to train together on this hardware."""

    def limit_group(self, rows: int) -> None:  # noqa: B027 - most kernels have no such limit
        """Record that larger groups do not fit into the device's memory."""

    @abstractmethod
    def visited(self, clients: IntArray, steps: IntArray) -> IntArray:
        """Samples in all mini-batches of dispatches with these steps, counted every time they are visited, (B,)."""

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

    def shape_class(self, clients: IntArray) -> IntArray:
        """A number for each client; only clients with equal numbers may share a group."""
        return np.zeros(len(clients), dtype=np.int64)


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
