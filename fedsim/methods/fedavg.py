"""FedAvg: federated averaging."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.components import Parameters
from fedsim.methods.aggregation import with_mean_buffers
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
    plain_buffers: ClassVar[bool] = False
    """Whether buffers of the model are averaged plainly, whatever the coefficients and the server learning rate."""
    Params: ClassVar[type[Parameters]] = FedAvgParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Model + server_lr x sum of the changes times their coefficients; unchanged without contributions."""
        if not len(updates):
            return server
        change = updates.weighted_sum("delta", self.coefficients(updates))
        model = server["model"] + self.params.server_lr * change
        if self.plain_buffers:
            layout, weights = self.context.layout, self.params.weights
            model = with_mean_buffers(model, server, updates, layout, weights=weights)
        return {"model": model}

    def coefficients(self, updates: Updates) -> npt.NDArray[np.float64]:
        """Factors on the clients' changes, (C,): the weights of the average, which sum to 1."""
        return averaging_weights(updates, self.params.weights)
