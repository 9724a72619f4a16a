"""FedVARP: variance reduction with every client's latest update."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsim.methods.base import ServerState, Updates, averaging_weights
from fedsim.methods.mifa import LatestUpdates
from fedsim.parts.component import Parameters


class FedVarpParams(Parameters):
    """Parameters of FedVARP and ACE."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 applies the mean change as it is."""
    remembers: Literal["gradients", "changes"] = "changes"
    """The value remembered of each update: the change of the model, as in the paper, or the change divided by the
    learning rate at the time, so that old and new entries have the same unit while the rate decays. With a constant
    learning rate, the two are equivalent."""


class FedVarp(LatestUpdates):
    """MIFA with weight 1 / |S| for fresh updates, so that the model's change is unbiased under uniform participation.

    The model moves by mean over participants of (change - remembered change) + mean over all clients of the remembered
    changes; then the participants' changes are remembered. With full participation it is FedAvg with uniform weights.
    """

    name = "fedvarp"
    title = "FedVARP"
    paper = (
        "Jhunjhunwala et al., FedVARP: Tackling the Variance Due to Partial Client Participation in Federated "
        "Learning, UAI 2022, Algorithm 2"
    )
    Params = FedVarpParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Step, then remember; unchanged without contributions."""
        if not len(updates):
            return server
        change, mean = server["mean"].clone(), server["mean"].clone()
        weights = averaging_weights(updates, "uniform").tolist()
        for weight, fresh in zip(weights, self.refreshed(updates), strict=True):
            change[: len(fresh)].add_(fresh, alpha=weight)
            mean[: len(fresh)].add_(fresh, alpha=1 / self.context.clients)
        return self.stepped(server, updates, change, mean)
