"""MIFA: the server remembers every client's latest update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from fedsim.methods.aggregation import local_rate
from fedsim.methods.base import Memory, Method, Prologue, ServerState, Tensor, Updates
from fedsim.parts.component import Parameters


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


class LatestUpdates(Method):
    """The server remembers the latest update of each client, and their ``mean``.

    Parameters of subclasses have ``server_lr`` and ``remembers``.
    """

    paper_schedules = ("sync",)
    server_vectors = ("mean",)

    def memories(self) -> Mapping[str, Memory]:
        """The latest update of each client, at the server."""
        return {"latest": Memory(self.context.layout.trainable, keeper="server")}

    def refreshed(self, updates: Updates) -> Iterator[Tensor]:
        """The difference of each update from its client's remembered one, which it replaces; (trainable,) each."""
        for index in range(len(updates)):
            latest = updates.row("delta", index)[: self.context.layout.trainable]
            before = updates.memory("latest", index)
            if self.params.remembers == "gradients":
                # At rate 0, where a decay may end, a client does not move and shows no gradient.
                rate = updates.learning_rates[index]
                latest = latest / rate if rate else before
            fresh = latest - before
            updates.remember("latest", index, latest)
            yield fresh

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Refresh the mean, then step along it."""
        mean = server["mean"].clone()
        for fresh in self.refreshed(updates):
            mean[: len(fresh)].add_(fresh, alpha=1 / self.context.clients)
        return self.stepped(server, updates, mean, mean)

    def stepped(
        self, server: ServerState, updates: Updates, change: Tensor, mean: Tensor
    ) -> ServerState:
        """The state after a step along ``change`` (P,), with the new mean (P,)."""
        step = self.params.server_lr
        if self.params.remembers == "gradients":
            step *= local_rate(self.context, updates)
        return {"model": server["model"] + step * change, "mean": mean}


class Mifa(LatestUpdates):
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
    Params = MifaParams

    def prologue(self) -> Prologue | None:
        """All clients once, if ``first_round`` is ``all``."""
        if self.params.first_round == "sampled":
            return None
        return Prologue(self.download(), self.upload())
