"""The interface of optimizers, which perform the local steps of all clients of a group at once.

An instance belongs to one run of local training of one group: its state starts at zero with every dispatch. Rows
are removed from the end, so that later steps have fewer rows, never more. Entries beyond the trainable part (buffers)
are not passed to an optimizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Component
from fedsim.parts.parameters import Parameters

if TYPE_CHECKING:
    from torch import Tensor


class OptimizerParams(Parameters):
    """Parameters of every optimizer."""

    lr: float = Field(default=0.05, gt=0)
    """Learning rate of a local step."""


class Optimizer(Component, ABC):
    """Performs local steps."""

    Params: ClassVar[type[Parameters]] = OptimizerParams

    @property
    def is_plain(self) -> bool:
        """Whether a step is ``weights -= rate x gradient`` and nothing else."""
        return False

    @property
    def penalty(self) -> float:
        """Coefficient of the L2 penalty whose gradient a step adds to the direction; 0 if there is none."""
        return 0.0

    @property
    def buffers(self) -> int:
        """Numbers per parameter that a device stores between steps; determines the memory that training needs."""
        return 0

    def load(self, state: Tensor) -> None:
        """Continue from ``state`` (b, :attr:`buffers` x p + 1): the buffers in turn, and the number of steps.

        Every step updates ``state`` in place; it is zero in a client's first dispatch. Called before the first step, if
        ``training.optimizer_state`` is not ``reset``.

        Raises:
            UserError: the optimizer does not define it.
        """
        raise UserError(
            f"the optimizer {type(self).__name__} cannot continue from an earlier state",
            where="training.optimizer_state",
            hint="use optimizer_state: reset, or define the method load of the optimizer",
        )

    @abstractmethod
    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        """Make a step from ``weights`` (b, p), in place.

        Args:
            weights: trainable part of the local models.
            direction: gradient, perhaps changed by a rule, (b, p); may be overwritten.
            rates: learning rate of each row, (b, 1), or of each entry, (b, p).
            moved: changed instead of ``weights``, (b, p), which then stay unchanged.
        """
