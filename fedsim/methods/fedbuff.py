"""FedBuff: buffered asynchronous aggregation."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import MethodContext, Updates
from fedsim.methods.fedavg import FedAvg
from fedsim.methods.staleness import POPULATION_WEIGHTS, StalenessParams, population_weights


class FedBuffParams(StalenessParams):
    """Parameters of FedBuff."""

    alpha: float = Field(default=1.0, gt=0, le=1)
    """Weight of a fresh update."""
    scale: Literal["mean", "population"] = "mean"
    """Average over the buffer (1/K), or weight each update by its client's share p_i of the population."""
    weights: Literal["samples", "uniform"] = "uniform"
    """Weights of clients in that average or share: their numbers of training samples, or equal for all clients."""
    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""


class FedBuff(FedAvg):
    """The model moves by the mean of the buffered changes, each multiplied by its staleness weight, 1 / sqrt(s + 1).

    The staleness weights are not normalized: a buffer of stale updates moves the model less. With ``scale:
    population`` it is the baseline of the FedCompass paper.
    """

    name = "fedbuff"
    title = "FedBuff"
    paper = (
        "Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022, Algorithm 1; "
        "scale population: Li et al., FedCompass, ICLR 2024, App. E.2"
    )
    paper_schedules = ("buffered",)
    Params = FedBuffParams

    def __init__(self, params: FedBuffParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.weight_of_absent = POPULATION_WEIGHTS if params.scale == "population" else ""

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """Each client's share of the buffer, or of the population, (C,)."""
        if self.params.scale == "mean":
            return super().weights(updates)
        return population_weights(self.context, updates, self.params.weights)

    def factors(self, updates: Updates) -> npt.NDArray[np.float64]:
        """The discounts for staleness, (C,)."""
        discounts: npt.NDArray[np.float64] = self.params.weights_by_age(updates)
        return discounts
