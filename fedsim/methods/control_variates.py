"""Local steps corrected by what clients remember of their gradients: SCAFFOLD, FedDyn, and MTGC for two levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    Corrected,
    LocalRule,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    ServerState,
    Trainer,
    Updates,
    averaging_weights,
)
from fedsim.parts.component import Parameters

NEEDS_RECEIVED = "with uplink: 1 the server needs the control variate that the client received"
"""Why a server that derives what clients do not send needs what they received."""


class ScaffoldParams(Parameters):
    """Parameters of SCAFFOLD."""

    server_lr: float = Field(default=1.0, gt=0)
    """Global learning rate eta_g."""
    uplink: Literal[1, 2] = 2
    """Number of vectors per upload: the changes of the model and of the control variate, or only the latter, from which
    the server derives the former. One vector needs plain SGD and a synchronous schedule."""


class Scaffold(Method):
    """Each local gradient is corrected by the difference between the server's and the client's control variates.

    A local step is w - eta_l (g - c_i + c). The client's new control variate is the mean of its gradients over the
    steps it did (option II; its form with models is equal for plain SGD). The model moves by ``server_lr`` times the
    mean change, and c by the sum of the changes of c_i over N, so that c stays the mean of all c_i. With full
    participation and one local step it is gradient descent; with all control variates zero it would be FedAvg with
    uniform weights.
    """

    name = "scaffold"
    title = "SCAFFOLD"
    paper = (
        "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020, Algorithm 1 "
        "(option II); one vector up: Huang, Li and Li, Stochastic Controlled Averaging for Federated Learning with "
        "Communication Compression, arXiv:2308.08165"
    )
    paper_schedules = ("sync",)
    downloads = ("model", "control")
    uploads: Sequence[str] = ("delta", "control")
    server_vectors = ("control",)
    Params = ScaffoldParams

    def __init__(self, params: ScaffoldParams, context: MethodContext) -> None:
        super().__init__(params, context)
        if params.uplink == 1:
            self.needs_plain_sgd = "with uplink: 1 the server derives the clients' models from it"
            self.only_synchronous, self.needs_exact = NEEDS_RECEIVED, {"control": NEEDS_RECEIVED}
            self.buffers_with, self.uploads = "control", ("control",)

    def memories(self) -> Mapping[str, Memory]:
        """c_i."""
        return {"control": Memory(self.context.layout.size, follows={"control": 1.0})}

    def vector_operations(self) -> float:
        """The correction, and the sum of the gradients."""
        return 2.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Corrected local steps."""
        start = cohort.down["model"]
        rule = Corrected(cohort.down["control"] - cohort.memory["control"])
        trained = trainer.run(cohort, start, rule=rule, collect=("mean_gradient",))
        mean = trained.mean_gradient
        assert mean is not None
        change = mean - cohort.memory["control"]
        delta = trained.model.sub_(start)
        trainable = self.context.layout.trainable
        change[:, trainable:] = delta[:, trainable:]
        vectors = {"control": change}
        if self.params.uplink == 2:
            vectors["delta"] = delta
        return LocalUpdate(vectors, trained.loss, {"control": mean})

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Model and c; unchanged without contributions."""
        if not len(updates):
            return server
        layout = self.context.layout
        weights = averaging_weights(updates, "uniform")
        if self.params.uplink == 2:
            moved = updates.weighted_sum("delta", weights)
        else:
            # w - x = -eta_l K (mean gradient - c_i + c); the client sent the difference of the first two terms.
            lengths = weights * updates.learning_rates * updates.steps
            sent = updates.weighted_sum("control", lengths)
            moved = -(sent + float(lengths.sum()) * server["control"])
        model = server["model"] + self.params.server_lr * moved
        # A client drawn twice has one control variate.
        change = updates.weighted_sum("control", [1 / self.context.clients] * len(updates))
        change[layout.trainable :] = 0
        return {
            "model": model,
            "control": server["control"] + change,
        }


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
    # z_i + y_j, or the y_j of an edge server.
    downloads = ("model", "correction")
    server_vectors = ("correction",)
    Params = MtgcParams
    spans_edges = True
    needs_exact = MappingProxyType({"correction": "the server keeps a part of it for each client"})
    only_synchronous = "corrections are differences to the mean of a round"
    needs_no_momentum = "corrections are computed from the changes of models"

    def memories(self) -> Mapping[str, Memory]:
        """z_i, or at the cloud y_j."""
        restarts = self.params.client_corrections == "zero"
        return {"correction": Memory(self.context.layout.size, keeper="shared", restarts=restarts)}

    def vector_operations(self) -> float:
        """The correction."""
        return 1.0

    def local_rule(self, cohort: Cohort) -> LocalRule:
        """The correction."""
        return Corrected(cohort.down["correction"] + cohort.memory["correction"])

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
