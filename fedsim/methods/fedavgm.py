"""FedAvgM: federated averaging with server momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedsim.methods.base import Method, ServerState, Updates, WeightedParams, averaging_weights

if TYPE_CHECKING:
    from torch import Tensor


class FedAvgMParams(WeightedParams):
    """Parameters of FedAvgM."""

    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Server momentum (beta)."""
    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""


class FedAvgM(Method):
    """Server momentum on the weighted mean of the changes: v = beta v + mean, model + server_lr x v.

    With ``momentum: 0`` it is FedAvg.
    """

    name: ClassVar[str] = "fedavgm"
    title: ClassVar[str] = "FedAvgM"
    paper: ClassVar[str] = (
        "Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
        "Classification, arXiv:1909.06335, section 4"
    )
    Params = FedAvgMParams

    def initial_state(self, model: Tensor) -> ServerState:
        """``model`` and ``momentum``, (P,) each."""
        return {"model": model, "momentum": model.new_zeros(model.shape)}

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The state after this aggregation; unchanged without contributions."""
        if not len(updates):
            return server
        change = updates.weighted_sum("delta", averaging_weights(updates, self.params.weights))
        momentum = self.params.momentum * server["momentum"] + change
        return {"model": server["model"] + self.params.server_lr * momentum, "momentum": momentum}
