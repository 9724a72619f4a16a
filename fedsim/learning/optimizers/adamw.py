"""AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fedsim.learning.optimizers.adam import Adam, AdamParams

if TYPE_CHECKING:
    from torch import Tensor


class AdamWParams(AdamParams):
    """Parameters of AdamW."""

    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled weight decay."""


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name = "adamw"
    Params = AdamWParams

    def _decay(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None
    ) -> None:
        """Shrink the weights."""
        if moved is None:
            weights.mul_(1 - rates * self.params.weight_decay)
        else:
            moved.addcmul_(weights, rates, value=-self.params.weight_decay)
