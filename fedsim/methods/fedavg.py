"""FedAvg: federated averaging."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedsim.methods.base import (
    Method,
    ServerState,
    Updates,
    WeightedParams,
    averaging_weights,
)


class FedAvgParams(WeightedParams):
    """Parameters of FedAvg."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 is the average of the clients' models."""


class FedAvg(Method):
    """Federated averaging: local SGD, then the weighted mean of the clients' changes.

    With K = 1 local step, full participation and uniform weights it is gradient descent with step ``server_lr`` x
    ``lr``.
    """

    name: ClassVar[str] = "fedavg"
    title: ClassVar[str] = "FedAvg"
    paper: ClassVar[str] = (
        "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017, "
        "Algorithm 1 (server learning rate: Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 1)"
    )
    Params = FedAvgParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Model + server_lr x weighted mean of the changes; unchanged where nobody contributed."""
        if not len(updates):
            return server
        change = updates.weighted_sum("delta", averaging_weights(updates, self.params.weights))
        return {"model": server["model"] + self.params.server_lr * change}
