"""FedVARP: variance reduction with every client's latest update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedsim.components import Parameters
from fedsim.methods.aggregation import local_rate, with_mean_buffers
from fedsim.methods.base import Memory, Method, ServerState, Tensor, Updates, averaging_weights


class FedVarpParams(Parameters):
    """Parameters of FedVARP."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""
    remembers: Literal["gradients", "changes"] = "changes"
    """The value remembered of each update: the change of the model, as in the paper, or the change divided by the
    learning rate at the time, so that old and new entries have the same unit while the rate decays. With a constant
    learning rate, the two are equivalent."""


class FedVarp(Method):
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
    paper_schedules = ("sync",)
    Params = FedVarpParams

    def memories(self) -> Mapping[str, Memory]:
        """The latest change of each client, at the server."""
        return {"latest": Memory(self.context.layout.trainable, keeper="server")}

    def initial_state(self, model: Tensor) -> ServerState:
        """Model and mean of the remembered changes."""
        return {"model": model, "mean": model.new_zeros(model.shape)}

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Step, then remember; unchanged without contributions."""
        if not len(updates):
            return server
        layout = self.context.layout
        change, mean = server["mean"].clone(), server["mean"].clone()
        weights = averaging_weights(updates, "uniform").tolist()
        for index, weight in enumerate(weights):
            latest = updates.row("delta", index)[: layout.trainable]
            if self.params.remembers == "gradients":
                latest = latest / updates.learning_rates[index]
            fresh = latest - updates.memory("latest", index)
            change[: layout.trainable].add_(fresh, alpha=weight)
            mean[: layout.trainable].add_(fresh, alpha=1 / self.context.clients)
            updates.remember("latest", index, latest)
        step = self.params.server_lr
        if self.params.remembers == "gradients":
            step *= local_rate(self.context, updates)
        model = server["model"] + step * change
        return {"model": with_mean_buffers(model, server, updates, layout), "mean": mean}
