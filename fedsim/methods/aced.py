"""ACED: ACE without cached updates that are too old."""

from __future__ import annotations

from pydantic import Field

from fedsim.methods.base import Method, ServerState, Tensor, Updates
from fedsim.methods.rennala import GradientParams


class AcedParams(GradientParams):
    """Parameters of ACED."""

    delay: int = Field(default=10, ge=1)
    """Number of the last arrivals whose updates are used (tau)."""


class Aced(Method):
    """Every arriving update moves the model by the mean of the latest updates of the clients seen lately.

    Those are the clients of the last ``delay`` arrivals. With a delay of one it is asynchronous SGD; if every client
    is among them, it is ACE.
    """

    name = "aced"
    title = "ACED"
    paper = (
        "Chang et al., Mitigating Participation Imbalance Bias in Asynchronous Federated Learning, "
        "arXiv:2511.19066, ACED"
    )
    paper_schedules = ("async",)
    needs_whole_model = "its server averages the latest updates of clients as they are"
    Params = AcedParams

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, and the updates of the last arrivals, latest last, with their clients (-1 if there is none)."""
        import torch

        delay = self.params.delay
        return {
            "model": model,
            "recent": model.new_zeros((delay, len(model))),
            "recent_clients": torch.full((delay,), -1, device=model.device),
        }

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Enter the updates one by one, and step along the mean after the last one."""
        import torch

        if not len(updates):
            return server
        rows = [updates.row("delta", index) for index in range(len(updates))]
        delay = self.params.delay
        recent = torch.cat([server["recent"], torch.stack(rows)])[-delay:]
        arrived = torch.as_tensor(updates.clients, device=recent.device)
        clients = torch.cat([server["recent_clients"], arrived])[-delay:]
        # The last row of each client.
        latest = {client: row for row, client in enumerate(clients.tolist()) if client >= 0}
        mean = recent[sorted(latest.values())].mean(dim=0)
        return {
            "model": server["model"] + self.params.server_lr * mean,
            "recent": recent,
            "recent_clients": clients,
        }
