"""Adaptive optimizers at the server: the common part of FedAdagrad, FedAdam and FedYogi."""

from __future__ import annotations

from abc import abstractmethod

from pydantic import Field

from fedsim.methods.base import ServerState, Tensor, WeightedParams
from fedsim.methods.fedavg import FedAvg

ADAPTIVE_PAPER = "Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2"


class AdaptiveParams(WeightedParams):
    """Parameters of methods with an adaptive optimizer at the server."""

    server_lr: float = Field(default=0.01, gt=0)
    """Server learning rate (eta)."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of the changes."""
    tau: float = Field(default=1e-3, gt=0)
    """Degree of adaptivity: smaller values amplify coordinates with small changes more."""


class AdaptiveServer(FedAvg):
    """The clients' mean change D is a pseudo-gradient: m = beta1 m + (1 - beta1) D, x + eta m / (sqrt(v) + tau).

    v starts at tau^2 and follows D^2 as the optimizer prescribes. m starts at zero without bias correction, as in the
    paper. Running statistics of normalization layers are averaged plainly.
    """

    paper = ADAPTIVE_PAPER
    params: AdaptiveParams

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new v from the old one and D^2, (P,)."""

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, m = 0 and v = tau^2."""
        return {
            "model": model,
            "momentum": model.new_zeros(model.shape),
            "second_moment": model.new_full(model.shape, self.params.tau**2),
        }

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """One step of the server's optimizer."""
        params = self.params
        momentum = params.beta1 * server["momentum"] + (1 - params.beta1) * change
        v = self.second_moment(server["second_moment"], change.square())
        model = server["model"] + params.server_lr * momentum / (v.sqrt() + params.tau)
        return {"model": model, "momentum": momentum, "second_moment": v}


class DecayParams(AdaptiveParams):
    """Parameters of optimizers whose second moment decays."""

    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the second moment v."""
