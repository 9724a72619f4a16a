"""FedDyn: dynamic regularization of the local objectives."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    Corrected,
    LocalUpdate,
    Memory,
    Method,
    ServerState,
    Trainer,
    Updates,
    averaging_weights,
)
from fedsim.parts.component import Parameters


class FedDynParams(Parameters):
    """Parameters of FedDyn."""

    alpha: float = Field(default=0.1, gt=0)
    """Strength of the regularization."""


class FedDyn(Method):
    """Local objectives are shifted so that their minima coincide with that of the mean objective.

    Client i descends along its gradient minus g_i plus alpha (w - w_received); then g_i decreases by alpha times its
    change. The server keeps h, the mean of all g_i, and its new model is the mean of the received models minus
    h / alpha. In the paper's analysis clients solve their problem exactly; here, as in its experiments, they do the
    scenario's local steps.
    """

    name = "feddyn"
    title = "FedDyn"
    paper = "Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021, Algorithm 1 and equation 1"
    paper_schedules = ("sync",)
    only_synchronous = "the server averages models that were trained from one version"
    server_vectors = ("h",)
    Params = FedDynParams

    def memories(self) -> Mapping[str, Memory]:
        """g_i, the gradient of the client's objective at its last model."""
        return {"gradient": Memory(self.context.layout.size, follows={"delta": -self.params.alpha})}

    def vector_operations(self) -> float:
        """The pull (a difference, a product, a sum) and g_i."""
        return 4.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Steps on the regularized objective, and the new g_i."""
        start, gradient = cohort.down["model"], cohort.memory["gradient"]
        alpha, trainable = self.params.alpha, self.context.layout.trainable
        # A pull toward this anchor is alpha (w - w_received) - g_i.
        anchor = start.add(gradient, alpha=1 / alpha)
        trained = trainer.run(cohort, start, rule=Corrected(pull=alpha, anchor=anchor))
        delta = trained.model.sub_(start)
        gradient[:, :trainable].sub_(delta[:, :trainable], alpha=alpha)
        return LocalUpdate({"delta": delta}, trained.loss, {"gradient": gradient})

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """h and the model; unchanged without contributions."""
        if not len(updates):
            return server
        alpha, layout = self.params.alpha, self.context.layout
        # A client drawn twice still has one g_i.
        shares = [1 / self.context.clients] * len(updates)
        h = server["h"] - alpha * updates.weighted_sum("delta", shares)
        h[layout.trainable :] = 0
        mean = updates.weighted_sum("delta", averaging_weights(updates, "uniform"))
        return {"model": server["model"] + mean - h / alpha, "h": h}
