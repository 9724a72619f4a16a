"""Adam and AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedsim.learning.optimizers import Optimizer, OptimizerParams

if TYPE_CHECKING:
    from torch import Tensor


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); moments start at zero with every dispatch."""

    name = "adam"
    decoupled: ClassVar[bool] = False
    """Whether weight decay shrinks the weights directly instead of entering the moments."""

    class Params(OptimizerParams):
        lr: float = Field(default=0.001, gt=0)
        """Learning rate of a local step."""
        beta1: float = Field(default=0.9, ge=0, lt=1)
        """Decay of the first moment."""
        beta2: float = Field(default=0.999, ge=0, lt=1)
        """Decay of the second moment."""
        eps: float = Field(default=1e-8, gt=0)
        """Constant added to the square root of the second moment."""
        weight_decay: float = Field(default=0.0, ge=0)
        """L2 penalty added to the gradient."""

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._steps: int | Tensor = 0
        self._first: Tensor | None = None
        self._second: Tensor | None = None

    @property
    def penalty(self) -> float:
        return 0.0 if self.decoupled else float(self.params.weight_decay)

    @property
    def buffers(self) -> int:
        return 2

    def load(self, state: Tensor) -> None:
        size = (state.shape[1] - 1) // 2
        self._first, self._second = state[:, :size], state[:, size:-1]
        self._steps = state[:, -1:]

    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        params = self.params
        if isinstance(self._steps, int):
            self._steps += 1
        else:  # the rows may have begun with different numbers
            self._steps = self._steps[: len(direction)].add_(1)
        if params.weight_decay and not self.decoupled:
            direction.add_(weights, alpha=params.weight_decay)
        elif params.weight_decay:
            if moved is None:
                weights.mul_(1 - rates * params.weight_decay)
            else:
                moved.addcmul_(weights, rates, value=-params.weight_decay)
        if self._first is None or self._second is None:
            self._first = direction.new_zeros(direction.shape)
            self._second = direction.new_zeros(direction.shape)
        self._first, self._second = self._first[: len(direction)], self._second[: len(direction)]
        self._first.lerp_(direction, 1 - params.beta1)
        self._second.mul_(params.beta2).addcmul_(direction, direction, value=1 - params.beta2)
        correction_1 = 1 - params.beta1**self._steps
        correction_2 = 1 - params.beta2**self._steps
        denominator = (self._second.sqrt() / correction_2**0.5).add_(params.eps)
        target = weights if moved is None else moved
        target.sub_((self._first / denominator).mul_(rates / correction_1))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name = "adamw"
    decoupled = True

    class Params(Adam.Params):
        weight_decay: float = Field(default=0.01, ge=0)
        """Decoupled weight decay."""
