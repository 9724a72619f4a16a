"""FedSim: partial personalization with simultaneous steps."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedsim.methods._split import SplitMethod, SplitParams
from fedsim.methods.base import ServerState, Updates, averaging_weights


class FedSimParams(SplitParams):
    """Parameters of FedSim."""

    weights: Literal["samples", "uniform"] = "uniform"
    """Weight of a client in the average: its number of training samples, or equal for all clients."""


class FedSim(SplitMethod):
    """Clients step their shared and personal parts together; the server averages the shared parts.

    Both gradients of a step come from one backward pass at the same point. With ``personal: none`` it is FedAvg; with
    ``personal: all`` every client trains alone. It is FedAvg-P with outer step sizes 1.
    """

    name = "fedsim"
    title = "FedSim"
    paper = "Pillutla et al., Federated Learning with Partial Model Personalization, ICML 2022, Algorithms 1 and 3"
    Params: ClassVar[type[FedSimParams]] = FedSimParams
    params: FedSimParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The mean change of the shared part; unchanged without contributions."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, self.params.weights)
        return self.moved(server, updates.weighted_sum("delta", weights))
