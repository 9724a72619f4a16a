"""MIFA: the server remembers every client's latest update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedsim.components import Parameters
from fedsim.methods.aggregation import local_rate, with_mean_buffers
from fedsim.methods.base import Memory, Method, Prologue, ServerState, Tensor, Updates


class MifaParams(Parameters):
    """Parameters of MIFA."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 is the paper's rule."""
    remembers: Literal["gradients", "changes"] = "gradients"
    """The value remembered of each update: the change of the model divided by the learning rate at the time, as in the
    paper, or the change itself, as in other implementations. With a constant learning rate, the two are equivalent."""
    first_round: Literal["sampled", "all"] = "sampled"
    """``all``: before the first round all clients train once, as in the paper; a client that is offline at that time
    counts as zero, like one not seen yet. ``sampled``: the first round is like any other."""


class Mifa(Method):
    """The model moves by the mean, over all clients, of the latest update of each.

    Updates of absent clients are used again in every round; those of clients never seen are zero. With full
    participation it is FedAvg with uniform weights. Under a schedule that updates the model after empty rounds, the
    model also moves without contributions.
    """

    name = "mifa"
    title = "MIFA"
    paper = (
        "Gu et al., Fast Federated Learning in the Presence of Arbitrary Device Unavailability, NeurIPS 2021, "
        "Algorithm 1"
    )
    paper_schedules = ("sync",)
    Params = MifaParams

    def prologue(self) -> Prologue | None:
        """All clients once, if ``first_round`` is ``all``."""
        if self.params.first_round == "sampled":
            return None
        return Prologue(self.download(), self.upload())

    def memories(self) -> Mapping[str, Memory]:
        """The latest update of each client, at the server."""
        return {"latest": Memory(self.context.layout.trainable, keeper="server")}

    def initial_state(self, model: Tensor) -> ServerState:
        """Model and mean of the latest updates."""
        return {"model": model, "mean": model.new_zeros(model.shape)}

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Refresh the mean, then step along it."""
        layout = self.context.layout
        mean = server["mean"].clone()
        trainable = mean[: layout.trainable]
        for index in range(len(updates)):
            latest = updates.row("delta", index)[: layout.trainable]
            if self.params.remembers == "gradients":
                latest = latest / updates.learning_rates[index]
            trainable.add_(latest - updates.memory("latest", index), alpha=1 / self.context.clients)
            updates.remember("latest", index, latest)
        step = self.params.server_lr
        if self.params.remembers == "gradients":
            step *= local_rate(self.context, updates)
        model = server["model"] + step * mean
        return {"model": with_mean_buffers(model, server, updates, layout), "mean": mean}
