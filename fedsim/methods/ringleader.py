"""Ringleader ASGD: a table of every client's gradients."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.methods.base import Memory, Method, ServerState, Updates
from fedsim.methods.rennala import GradientParams


class Ringleader(Method):
    """Every update moves the model by the mean over all clients of their mean updates in this round.

    The table holds for each client the sum G_i and the number b_i of its updates in the round of the schedule; the
    model moves by 1/n sum_i G_i / b_i. So clients with different data count the same, whatever their speed. Under a
    synchronous schedule with full participation it is FedAvg with uniform weights.
    """

    name = "ringleader"
    title = "Ringleader ASGD"
    paper = (
        "Maranjyan and Richtarik, Ringleader ASGD: The First Asynchronous SGD with Optimal Time Complexity under Data "
        "Heterogeneity, ICLR 2026, Algorithm 1"
    )
    paper_schedules = ("ringleader",)
    server_vectors = ("mean",)
    Params = GradientParams

    def memories(self) -> Mapping[str, Memory]:
        """The mean of each client's updates in the round, followed by their number; at the server."""
        return {"table": Memory(self.context.layout.size + 1, keeper="server")}

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Enter the updates into the table, which is emptied first if a round begins, and step."""
        import torch

        if not len(updates):
            return server
        restarts = bool(updates.attributes.get("restart", 1))
        mean = torch.zeros_like(server["mean"]) if restarts else server["mean"].clone()
        entered: set[int] = set()
        for index, client in enumerate(updates.clients.tolist()):
            entry = updates.memory("table", index)
            if restarts and client not in entered:
                entry = entry.new_zeros(entry.shape)
            entered.add(client)
            before, count = entry[:-1], entry[-1:]
            after = before + (updates.row("delta", index) - before) / (count + 1)
            mean += (after - before) / self.context.clients
            updates.remember("table", index, torch.cat([after, count + 1]))
        return {"model": server["model"] + self.params.server_lr * mean, "mean": mean}
