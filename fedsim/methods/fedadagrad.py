"""FedAdagrad: Adagrad at the server."""

from __future__ import annotations

from pydantic import Field

from fedsim.methods._adaptive import AdaptiveParams, AdaptiveServer
from fedsim.methods.base import Tensor


class FedAdagradParams(AdaptiveParams):
    """Parameters of FedAdagrad."""

    server_lr: float = Field(default=0.1, gt=0)
    """Server learning rate (eta)."""
    beta1: float = Field(default=0.0, ge=0, lt=1)
    """Decay of the mean of the changes; 0 in the paper's experiments."""


class FedAdagrad(AdaptiveServer):
    """Adagrad at the server, on the clients' weighted mean change D: v = v + D^2.

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedadagrad"
    title = "FedAdagrad"
    Params = FedAdagradParams

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Sum of D^2."""
        return v + squared
