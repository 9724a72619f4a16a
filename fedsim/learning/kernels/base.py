"""The interface of a gradient kernel: mini-batch gradients of many clients, each at its own model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedsim.learning.kernels.corrections import Correction

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
        self,
        weights: Tensor,
        rates: Tensor,
        active: IntArray,
        correction: Correction | None = None,
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
        largest_group: largest group for a model of this size.
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
