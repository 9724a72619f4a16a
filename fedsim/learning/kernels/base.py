"""What a gradient kernel is: mini-batch gradients of many clients, each at its own model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
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
            step: number of the step; asked for in ascending order.
            weights: local models, (b, P); entries without gradient (buffers) may be updated in place.
            out: receives the gradients, (b, P), zero where there are none.

        Returns:
            Mini-batch losses, (b,).
        """

    def descend(self, weights: Tensor, rates: Tensor, active: IntArray) -> Tensor:
        """Take all local steps in place: at each, ``weights -= rates x gradients`` for those still at work.

        Only on kernels that are :attr:`Kernel.fused`, and in place of :meth:`gradients`.

        Args:
            weights: local models, (B, P).
            rates: learning rates, (B,).
            active: how many of the dispatches, from the first on, do local step 0, 1, ...

        Returns:
            Sums of the mini-batch losses at the models before each step, (B,).
        """
        raise NotImplementedError


class Kernel(ABC):
    """Computes gradients for groups of dispatches. One kernel object is used by one thread at a time.

    Attributes:
        name: for ``run.json``.
        revision: counted up whenever its bits change.
        group_invariant: whether a dispatch's result is bitwise the same in every group (on CPU; a test holds it).
        fused: whether :meth:`Session.descend` is there.
        recorded: whether its sessions' steps go through :class:`fedsim.learning.kernels.replay.Replay`.
        largest_group: most dispatches in a group for a model of this size.
    """

    name: ClassVar[str]
    revision: ClassVar[int]
    group_invariant: ClassVar[bool]
    fused: ClassVar[bool] = False
    recorded: ClassVar[bool] = False

    @abstractmethod
    def replica(self) -> Kernel:
        """A kernel for another thread; data are shared, work space is not."""

    @abstractmethod
    def session(
        self, clients: IntArray, sequences: IntArray, steps: IntArray, phase: int
    ) -> Session:
        """Mini-batches for dispatches sorted by ``steps`` (most first), all of one :meth:`shape_class`."""

    @abstractmethod
    def largest_group(self) -> int:
        """Dispatches that are best trained together on this hardware."""

    @property
    def fixed_memory(self) -> bool:
        """Whether models and gradients should lie in the same memory for every group."""
        return False

    def shape_class(self, clients: IntArray) -> IntArray:
        """A number for each client; only clients with equal numbers may share a group."""
        return np.zeros(len(clients), dtype=np.int64)
