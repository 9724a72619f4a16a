"""FADAS: AMSGrad at the server of buffered asynchronous updates, with steps that adapt to the delay."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import Method, ServerState, Updates, averaging_weights
from fedsim.parts.component import Parameters


class FadasParams(Parameters):
    """Parameters of FADAS."""

    server_lr: float = Field(default=0.01, gt=0)
    """Server learning rate (eta)."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of the changes."""
    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the mean of their squares."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    delay: int | None = Field(default=None, ge=1)
    """Delay threshold (tau_c): if the largest delay in a buffer exceeds it, the rate is min(server_lr, 1 / that delay).
    Default: the rate does not depend on the delay."""


class Fadas(Method):
    """m and v are exponential means of the buffer's mean change D and of D^2; the model moves by eta m / sqrt(v_max).

    v_max is the largest v so far, in every coordinate (AMSGrad). With ``beta1: 0`` and ``beta2: 0`` the model moves by
    eta D / max |D|.
    """

    name = "fadas"
    title = "FADAS"
    paper = (
        "Wang et al., FADAS: Towards Federated Adaptive Asynchronous Optimization, ICML 2024, Algorithm 1 and its "
        "delay-adaptive learning rate"
    )
    paper_schedules = ("buffered",)
    server_vectors = ("momentum", "second_moment", "largest")
    Params = FadasParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """One step of AMSGrad along the mean change; unchanged without contributions."""
        import torch

        if not len(updates):
            return server
        params = self.params
        change = updates.weighted_sum("delta", averaging_weights(updates, "uniform"))
        momentum = params.beta1 * server["momentum"] + (1 - params.beta1) * change
        second = params.beta2 * server["second_moment"] + (1 - params.beta2) * change.square()
        largest = torch.maximum(server["largest"], second)
        step = self.rate(updates.staleness) * momentum / (largest.sqrt() + params.epsilon)
        return {
            "model": server["model"] + step,
            "momentum": momentum,
            "second_moment": second,
            "largest": largest,
        }

    def rate(self, staleness: npt.NDArray[np.int64]) -> float:
        """The server learning rate for a buffer with these delays."""
        rate: float = self.params.server_lr
        longest = int(staleness.max())
        if self.params.delay is None or longest <= self.params.delay:
            return rate
        return min(rate, 1 / longest)
