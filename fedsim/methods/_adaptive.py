"""Adaptive optimizers at the server: the common part of FedAdagrad, FedAdam and FedYogi."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedsim.methods.aggregation import with_mean_buffers
from fedsim.methods.base import (
    Method,
    ServerState,
    Updates,
    WeightedParams,
    averaging_weights,
)

if TYPE_CHECKING:
    from torch import Tensor

ADAPTIVE_PAPER = "Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2"


class AdaptiveParams(WeightedParams):
    """Parameters of methods with an adaptive optimizer at the server."""

    server_lr: float = Field(default=0.01, gt=0)
    """Server learning rate (eta)."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of the changes."""
    tau: float = Field(default=1e-3, gt=0)
    """Degree of adaptivity: smaller values amplify coordinates with small changes more."""


class AdaptiveServer(Method):
    """The clients' mean change D is a pseudo-gradient: m = beta1 m + (1 - beta1) D, x + eta m / (sqrt(v) + tau).

    v starts at tau^2 and follows D^2 as the optimizer prescribes. m starts at zero without bias correction, as in the
    paper. Running statistics of normalization layers are averaged plainly.
    """

    paper: ClassVar[str] = ADAPTIVE_PAPER
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

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """One step of the server's optimizer; unchanged without contributions."""
        if not len(updates):
            return server
        params = self.params
        weights = averaging_weights(updates, params.weights)
        mean = updates.weighted_sum("delta", weights)
        momentum = params.beta1 * server["momentum"] + (1 - params.beta1) * mean
        v = self.second_moment(server["second_moment"], mean.square())
        model = server["model"] + params.server_lr * momentum / (v.sqrt() + params.tau)
        layout = self.context.layout
        return {
            "model": with_mean_buffers(model, server, updates, layout, weights=params.weights),
            "momentum": momentum,
            "second_moment": v,
        }


class DecayParams(AdaptiveParams):
    """Parameters of optimizers whose second moment decays."""

    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the second moment v."""
