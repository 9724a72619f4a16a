"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from fedsim.learning.optimizers import Optimizer, OptimizerParams

if TYPE_CHECKING:
    from torch import Tensor


class Sgd(Optimizer):
    """Stochastic gradient descent with optional momentum (without dampening) and L2 penalty, as in torch.optim.SGD."""

    name = "sgd"

    class Params(OptimizerParams):
        momentum: float = Field(default=0.0, ge=0, lt=1)
        """Momentum; its buffer starts at zero with every dispatch."""
        nesterov: bool = False
        """Nesterov's form of momentum."""
        weight_decay: float = Field(default=0.0, ge=0)
        """L2 penalty added to the gradient."""

        @model_validator(mode="after")
        def _nesterov_has_momentum(self) -> Sgd.Params:
            if self.nesterov and not self.momentum:
                raise ValueError(
                    "nesterov needs momentum, which is 0; give momentum: 0.9, or remove nesterov"
                )
            return self

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._momentum: Tensor | None = None

    @property
    def is_plain(self) -> bool:
        return not self.params.momentum and not self.params.weight_decay

    @property
    def penalty(self) -> float:
        return float(self.params.weight_decay)

    @property
    def buffers(self) -> int:
        return int(self.params.momentum > 0)

    def load(self, state: Tensor) -> None:
        """Continue with this momentum; its steps need not be counted."""
        self._momentum = state[:, :-1]

    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        params = self.params
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
