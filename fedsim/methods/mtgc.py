"""MTGC: gradient corrections at two levels, for runs with edge servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from fedsim.methods.base import (
    Cohort,
    Corrected,
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


class MtgcParams(Parameters):
    """Parameters of MTGC."""

    client_corrections: Literal["zero", "kept"] = "zero"
    """What z_i begins with after each model of the cloud: zero, as in the authors' code, whose limit is near the
    optimum but not at it; or its last value (``kept``)."""


class Mtgc(Method):
    """Each local gradient is corrected towards that of the client's edge server, and towards that of all of them.

    A local step is w - eta (g + z_i + y_j). After a round of an edge server, z_i grows by the difference between the
    client's mean step per unit of learning rate, (w_i - x_j) / (eta H), and the mean over the round's clients; after a
    round of the cloud, y_j grows likewise by that of the edge server, over all its local steps. In the paper's analysis
    z_i begins with gradients at every model of the cloud, which takes another exchange; see ``client_corrections``.
    Edge servers keep z_i and send z_i + y_j with the model, so that clients may miss rounds; with all clients in every
    round they could compute it. Without edge servers and with all clients it is SCAFFOLD.
    """

    name = "mtgc"
    title = "MTGC"
    paper = (
        "Fang et al., Hierarchical Federated Learning with Multi-Timescale Gradient Correction, NeurIPS 2024, "
        "Algorithm 1"
    )
    paper_schedules = ("sync",)
    server_vectors = ("correction",)
    Params = MtgcParams
    spans_edges = True
    needs_exact = MappingProxyType({"correction": "the server keeps a part of it for each client"})
    only_synchronous = "corrections are differences to the mean of a round"
    needs_no_momentum = "corrections are computed from the changes of models"

    def download(self) -> Sequence[Vector]:
        """The model, and z_i + y_j, or the y_j of an edge server."""
        size = self.context.layout.size
        return (Vector("model", size), Vector("correction", size))

    def memories(self) -> Mapping[str, Memory]:
        """z_i, or at the cloud y_j."""
        restarts = self.params.client_corrections == "zero"
        return {"correction": Memory(self.context.layout.size, keeper="shared", restarts=restarts)}

    def vector_operations(self) -> float:
        """The correction."""
        return 1.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Corrected local steps."""
        start = cohort.down["model"]
        rule = Corrected(cohort.down["correction"] + cohort.memory["correction"])
        trained = trainer.run(cohort, start, rule=rule)
        return LocalUpdate({"delta": trained.model.sub_(start)}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The mean model, and new corrections of the participants; unchanged without contributions."""
        if not len(updates):
            return server
        trainable = self.context.layout.trainable
        weights = averaging_weights(updates, "uniform")
        model = server["model"] + updates.weighted_sum("delta", weights)
        lengths = updates.learning_rates * updates.steps
        if not lengths.all():
            # At a rate of 0, the changes say nothing about the gradients.
            return {**server, "model": model}
        mean = updates.weighted_sum("delta", weights * (1 / lengths))
        for index, length in enumerate(lengths.tolist()):
            grown = updates.row("delta", index) * (1 / length) - mean
            grown[trainable:] = 0
            updates.remember("correction", index, updates.memory("correction", index) + grown)
        return {**server, "model": model}
