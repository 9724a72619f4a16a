"""FedAvg: federated averaging."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import (
    Method,
    ServerState,
    Tensor,
    Updates,
    WeightedParams,
    averaging_weights,
)
from fedsim.parts.component import Parameters


class FedAvgParams(WeightedParams):
    """Parameters of FedAvg."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 is the average of the clients' models."""
    partial: Literal["average", "drop", "zero"] = "average"
    """Treatment of updates from clients that did fewer steps than assigned: averaged like all others, left out of the
    average, or averaged as if the client had not moved."""


class FedAvg(Method):
    """Federated averaging: local SGD, then the weighted mean of the clients' changes.

    With K = 1 local step, full participation and uniform weights it is gradient descent with step ``server_lr`` x
    ``lr``.
    """

    name = "fedavg"
    title = "FedAvg"
    paper = (
        "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017, "
        "Algorithm 1 (server learning rate: Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 1)"
    )
    paper_schedules = ("sync",)
    Params: ClassVar[type[Parameters]] = FedAvgParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """A :meth:`step` along the :meth:`change`; unchanged without contributions."""
        if not len(updates):
            return server
        return self.step(server, self.change(updates))

    def buffer_weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """Those of the method; updates that do not count have none."""
        weights = super().buffer_weights(updates)
        if not isinstance(self.params, FedAvgParams) or self.params.partial == "average":
            return weights
        weights = weights * (updates.steps >= updates.steps_assigned)
        return weights / (weights.sum() or 1.0)

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """The state after a step of the server's optimizer along ``change`` (P,): model + server_lr x change."""
        return {"model": server["model"] + self.params.server_lr * change}

    def change(self, updates: Updates) -> Tensor:
        """The sum of the clients' changes times their weights and factors, (P,)."""
        return updates.weighted_sum("delta", self.weights(updates), self.factors(updates))

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """Weights of the clients in the average, (C,); they sum to 1 unless every update is dropped."""
        weights = averaging_weights(updates, self.params.weights)
        if not isinstance(self.params, FedAvgParams) or self.params.partial != "drop":
            return weights
        weights = weights * (updates.steps >= updates.steps_assigned)
        return weights / (weights.sum() or 1.0)

    def factors(self, updates: Updates) -> npt.NDArray[np.float64]:
        """Multiples of the clients' changes that are averaged, (C,): 1 unless ``partial`` is zero."""
        if not isinstance(self.params, FedAvgParams) or self.params.partial != "zero":
            return np.ones(len(updates))
        return (updates.steps >= updates.steps_assigned).astype(np.float64)
