"""FedAvgM: federated averaging with server momentum."""

from __future__ import annotations

from pydantic import Field

from fedsim.methods.base import ServerState, Tensor, WeightedParams
from fedsim.methods.fedavg import FedAvg


class FedAvgMParams(WeightedParams):
    """Parameters of FedAvgM."""

    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Server momentum (beta)."""
    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""


class FedAvgM(FedAvg):
    """Server momentum on the weighted mean of the changes: v = beta v + mean, model + server_lr x v.

    With ``momentum: 0`` it is FedAvg.
    """

    name = "fedavgm"
    title = "FedAvgM"
    paper = (
        "Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
        "Classification, arXiv:1909.06335, section 4"
    )
    server_vectors = ("momentum",)
    Params = FedAvgMParams

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """v first, then the model with the new v."""
        momentum = self.params.momentum * server["momentum"] + change
        return {"model": server["model"] + self.params.server_lr * momentum, "momentum": momentum}
