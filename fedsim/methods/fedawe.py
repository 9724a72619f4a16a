"""FedAWE: clients continue from their own stale models and compensate for missed rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    ServerState,
    Trainer,
    Updates,
    Vector,
    averaging_weights,
)
from fedsim.parts.component import Parameters


class FedAweParams(Parameters):
    """Parameters of FedAWE."""

    server_lr: float = Field(default=1.0, gt=0)
    """Global learning rate eta_g."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Largest Euclidean norm of the mean amplified change (0.5 in the authors' code); unlimited when null, as in the
    paper."""
    evaluated: Literal["newest", "client_average"] = "newest"
    """The model to evaluate: the newest one, or the mean of all clients' own models, as in the authors' code."""


class FedAwe(Method):
    """Adaptive innovation echoing and implicit gossiping.

    A client starts from the result of the last aggregation that used its update, not from the newest model. Its change
    is multiplied by the number of server updates since then (1 if it contributed to the previous one):
    w_i + eta_g (t - last_i) change_i. The mean of these over the participants is the new model, which only the
    participants receive. With full participation it is FedAvg with uniform weights and server learning rate eta_g.

    The paper sends the new model to the participants after the aggregation. Here it is sent with the client's next
    dispatch: the same model and the same bytes.
    """

    name = "fedawe"
    title = "FedAWE"
    paper = (
        "Xiang et al., Efficient Federated Learning against Heterogeneous and Non-stationary Client Unavailability, "
        "NeurIPS 2024, Algorithm 1"
    )
    paper_schedules = ("sync",)
    Params = FedAweParams
    only_synchronous = "clients wait for the model that contains their update"
    needs_exact = MappingProxyType({"model": "the server keeps the model of each client"})

    def upload(self) -> Sequence[Vector]:
        """The change, amplified by the client, which knows when it last participated."""
        return (Vector("amplified", self.context.layout.size),)

    def memories(self) -> Mapping[str, Memory]:
        """Each client's own model and its version (0 before the client participates)."""
        import torch

        return {
            "own": Memory(self.context.layout.size, lambda model: model, "shared"),
            "version": Memory(1, keeper="shared", dtype=torch.int64),
        }

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Local training from the client's own model."""
        start = cohort.memory["own"]
        trained = trainer.run(cohort, start)
        amplified = trained.model.sub_(start)
        trainable = self.context.layout.trainable
        missed = cohort.column(cohort.versions, amplified) - cohort.memory["version"]
        amplified[:, :trainable] *= self.params.server_lr * (missed + 1)
        return LocalUpdate({"amplified": amplified}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The participants' mean, which becomes each participant's model; unchanged without contributions."""
        import torch

        if not len(updates):
            return server
        trainable = self.context.layout.trainable
        weights = averaging_weights(updates, "uniform")
        mean = server["model"].new_zeros(server["model"].shape)
        for index, weight in enumerate(weights.tolist()):
            mean.add_(updates.memory("own", index), alpha=weight)
        change = updates.weighted_sum("amplified", weights)
        if self.params.clip_norm is not None:
            norm = torch.linalg.vector_norm(change[:trainable])
            change[:trainable] *= (self.params.clip_norm / norm).clamp_(max=1)
        newest = model = mean + change
        version = torch.tensor([updates.version], device=newest.device)
        if self.params.evaluated == "client_average":
            model = server["model"].clone()
            for index in range(len(updates)):
                moved = newest - updates.memory("own", index)
                model.add_(moved, alpha=1 / self.context.clients)
        for index in range(len(updates)):
            updates.remember("own", index, newest)
            updates.remember("version", index, version)
        return {"model": model}
