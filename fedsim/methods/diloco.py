"""DiLoCo: Nesterov momentum at the server of few and long rounds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsim.methods.base import ServerState, Tensor
from fedsim.methods.fedavgm import FedAvgM, FedAvgMParams


class DiLoCoParams(FedAvgMParams):
    """Parameters of DiLoCo."""

    weights: Literal["samples", "uniform"] = "uniform"
    """Weight of a client's update: equal for all clients, as in the paper, or its number of training samples."""
    server_lr: float = Field(default=0.7, gt=0)
    """Outer learning rate."""


class DiLoCo(FedAvgM):
    """The outer optimizer is SGD with Nesterov momentum on the mean change: v = beta v + D, model + lr (D + beta v).

    The inner optimizer is the scenario's ``training.optimizer``, AdamW in the paper. With ``momentum: 0`` and
    ``server_lr: 1`` it is FedAvg with that optimizer. Running statistics of normalization layers move by the mean
    alone.
    """

    name = "diloco"
    title = "DiLoCo"
    paper = (
        "Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models, arXiv:2311.08105, "
        "Algorithm 1"
    )
    paper_schedules = ("sync",)
    Params = DiLoCoParams

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """v first, then the model along D + beta v."""
        momentum = self.params.momentum * server["momentum"] + change
        step = change + self.params.momentum * momentum
        return {"model": server["model"] + self.params.server_lr * step, "momentum": momentum}
