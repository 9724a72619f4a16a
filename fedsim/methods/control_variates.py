"""Local steps corrected by what clients remember of their gradients: SCAFFOLD, FedDyn, MTGC, and the FedSUM family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np
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
    Step,
    Tensor,
    Trainer,
    Updates,
    Vector,
    averaging_weights,
)
from fedsim.parts.component import Parameters

NEEDS_RECEIVED = "with uplink: 1 the server needs the control variate that the client received"
"""Why a server that derives what clients do not send needs what they received."""


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

    class Params(Parameters):
        server_lr: float = Field(default=1.0, gt=0)
        """Global learning rate eta_g."""
        uplink: Literal[1, 2] = 2
        """Number of vectors per upload: the changes of the model and of the control variate, or only the latter, from
        which the server derives the former. One vector needs plain SGD and a synchronous schedule."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        if params.uplink == 1:
            self.needs_plain_sgd = "with uplink: 1 the server derives the clients' models from it"
            self.only_synchronous, self.needs_exact = NEEDS_RECEIVED, {"control": NEEDS_RECEIVED}
            self.buffers_with, self.uploads = "control", ("control",)

    def memories(self) -> Mapping[str, Memory]:
        """c_i."""
        return {"control": Memory(self.context.layout.size, follows={"control": 1.0})}

    def vector_operations(self) -> float:
        return 2.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
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

    class Params(Parameters):
        alpha: float = Field(default=0.1, gt=0)
        """Strength of the regularization."""

    def memories(self) -> Mapping[str, Memory]:
        """g_i, the gradient of the client's objective at its last model."""
        return {"gradient": Memory(self.context.layout.size, follows={"delta": -self.params.alpha})}

    def vector_operations(self) -> float:
        """The pull (a difference, a product, a sum) and g_i."""
        return 4.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        start, gradient = cohort.down["model"], cohort.memory["gradient"]
        alpha, trainable = self.params.alpha, self.context.layout.trainable
        # A pull toward this anchor is alpha (w - w_received) - g_i.
        anchor = start.add(gradient, alpha=1 / alpha)
        trained = trainer.run(cohort, start, rule=Corrected(pull=alpha, anchor=anchor))
        delta = trained.model.sub_(start)
        gradient[:, :trainable].sub_(delta[:, :trainable], alpha=alpha)
        return LocalUpdate({"delta": delta}, trained.loss, {"gradient": gradient})

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        if not len(updates):
            return server
        alpha, layout = self.params.alpha, self.context.layout
        # A client drawn twice still has one g_i.
        shares = [1 / self.context.clients] * len(updates)
        h = server["h"] - alpha * updates.weighted_sum("delta", shares)
        h[layout.trainable :] = 0
        mean = updates.weighted_sum("delta", averaging_weights(updates, "uniform"))
        return {"model": server["model"] + mean - h / alpha, "h": h}


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

    class Params(Parameters):
        client_corrections: Literal["zero", "kept"] = "zero"
        """What z_i begins with after each model of the cloud: zero, as in the authors' code, whose limit is near the
        optimum but not at it; or its last value (``kept``)."""

    spans_edges = True
    needs_exact = MappingProxyType({"correction": "the server keeps a part of it for each client"})
    only_synchronous = "corrections are differences to the mean of a round"
    needs_no_momentum = "corrections are computed from the changes of models"

    def memories(self) -> Mapping[str, Memory]:
        """z_i, or at the cloud y_j."""
        restarts = self.params.client_corrections == "zero"
        return {"correction": Memory(self.context.layout.size, keeper="shared", restarts=restarts)}

    def vector_operations(self) -> float:
        return 1.0

    def local_rule(self, cohort: Cohort) -> LocalRule:
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


PAPER = (
    "You and Pu, FedSUM Family: Efficient Federated Learning Methods under Arbitrary Client Participation, "
    "arXiv:2512.18275"
)


class FedSum(Method):
    """Clients follow the server's direction y and update their own share of it at every local step.

    Model and y are sent down, one vector is sent up. A local step is w - (eta_l / N) (g + y - h_i). With one local step
    it is FedSUM-B; with N = 1 it is plain local SGD.
    """

    name = "fedsum"
    title = "FedSUM"
    paper = f"{PAPER}, Algorithm 2 and equation 9"
    downloads: Sequence[str] = ("model", "merged")
    paper_schedules = ("sync",)
    needs_no_momentum = (
        "the server steps along the mean of all clients' gradients, which does not include momentum"
    )
    server_vectors = ("merged",)

    class Params(Parameters):
        server_lr: float = Field(default=1.0, gt=0)
        """Global learning rate eta_g; a server step is eta_g x eta_l x K / N times the sum of all clients' mean
        gradients."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self.steps = float(context.local_steps.mean())
        self.weight_decay = context.optimizer.penalty

    def memories(self) -> Mapping[str, Memory]:
        """h_i."""
        return {"gradient": Memory(self.context.layout.size, follows={"delta": 1.0})}

    def correction(self, cohort: Cohort) -> Tensor | None:
        """y_i - h_i of the local steps, (B, P); None for gradients at the received model, without local steps."""
        return cohort.down["merged"] - cohort.memory["gradient"]

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        correction = self.correction(cohort)
        total = None
        if self.weight_decay and correction is not None:
            total = correction.new_zeros(correction.shape)
        trained = trainer.run(
            cohort,
            cohort.down["model"],
            rule=None if correction is None else self._corrected(correction, total),
            move=correction is not None,
            collect=("mean_gradient",),
        )
        mean = trained.mean_gradient
        assert mean is not None
        if self.weight_decay:
            weights = cohort.down["model"]
            if total is not None:
                weights = total / cohort.column(np.maximum(cohort.steps, 1), total)
            mean.add_(weights, alpha=self.weight_decay)
        delta = mean - cohort.memory["gradient"]
        trainable = self.context.layout.trainable
        delta[:, trainable:] = trained.model[:, trainable:] - cohort.down["model"][:, trainable:]
        return LocalUpdate({"delta": delta}, trained.loss, {"gradient": mean})

    def vector_operations(self) -> float:
        return 3.0

    def _corrected(self, correction: Tensor, total: Tensor | None) -> LocalRule:
        """The step of Algorithms 2 and 3: direction (gradient + ``correction``) / N, with y_i (B, P).

        With weight decay it adds up the models in ``total``. The optimizer adds the decay to every direction, which
        here belongs to the gradient, and so counts 1 / N times.
        """
        surplus = self.weight_decay * (1 - self.context.clients)
        if total is None:
            return Corrected(correction, divisor=self.context.clients)

        def rule(step: Step) -> None:
            step.gradient.add_(correction[step.rows])
            step.gradient.add_(step.weights, alpha=surplus)
            total[step.rows] += step.weights
            step.gradient.div_(self.context.clients)

        return rule

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """y first, then x with the new y."""
        layout = self.context.layout
        received = updates.weighted_sum("delta", np.ones(len(updates)))
        received[layout.trainable :] = 0
        merged = server["merged"] + received
        rate = self.context.local_rate(updates)
        scale = self.params.server_lr * rate * self.steps / self.context.clients
        return {"model": server["model"] - scale * merged, "merged": merged}


class FedSumB(FedSum):
    """The server steps along the sum of every client's latest mean gradient; clients take no local steps.

    The K local steps of a dispatch are K independent mini-batches at the received model. Only the product
    ``server_lr`` x ``lr`` matters. With full participation it is centralized SGD with step server_lr x lr x K on
    mini-batches K times as large.
    """

    name = "fedsum_b"
    title = "FedSUM-B"
    paper = f"{PAPER}, Algorithm 1"
    downloads = ("model",)

    def vector_operations(self) -> float:
        return 1.0

    def correction(self, cohort: Cohort) -> None:
        """None: there are no local steps."""


class FedSumCr(FedSum):
    """FedSUM whose clients recover the server's direction from the model they received last.

    Client i keeps the model z_i that it received when it last participated, and its version a_i. Its correction is
    y_i = N / (eta_g eta_l K) x (z_i - x) / (t - a_i) - h_i, the mean of the server's directions since then minus h_i.
    Clients that participated in the previous round have the correction of FedSUM.

    A client that receives the same version twice (under an asynchronous schedule) has nothing to recover: y_i = -h_i.
    """

    name = "fedsum_cr"
    title = "FedSUM-CR"
    paper = f"{PAPER}, Algorithm 3 and equation 11"
    downloads = ("model",)

    class Params(FedSum.Params):
        correction: Literal["literal", "lr_sum"] = "literal"
        """How the direction is recovered from the difference of two models. ``literal`` divides by (t - a_i) times the
        current learning rate (equation 11), which is exact only for a constant rate; ``lr_sum`` divides by the sum of
        the rates that the server has used since, which it sends as one more number. With a constant rate both are
        equal."""
        bootstrap: Literal["shared_seed", "first_download"] = "shared_seed"
        """How a client obtains the initial model when it first participates: from a shared seed, at no cost, or as a
        second model sent with its first dispatch. Only the bytes differ."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self._sums = params.correction == "lr_sum"

    def download(self) -> Sequence[Vector]:
        """x; its version is part of every dispatch."""
        return [*super().download(), *([Vector("rate_sum", 1)] if self._sums else [])]

    def first_download(self) -> Sequence[Vector]:
        """The initial model, unless it is known from a shared seed."""
        if self.params.bootstrap == "shared_seed":
            return ()
        return (Vector("model", self.context.layout.size),)

    def initial_state(self, model: Tensor) -> ServerState:
        import torch

        state = dict(super().initial_state(model))
        if self._sums:
            state["rate_sum"] = torch.zeros(1, dtype=torch.float64, device=model.device)
        return state

    def memories(self) -> Mapping[str, Memory]:
        """h_i, z_i, a_i and, if needed, the sum of rates at a_i."""
        import torch

        memories = {
            **super().memories(),
            "received": Memory(self.context.layout.size, lambda model: model, follows={}),
            "version": Memory(1, torch.tensor([-1]), dtype=torch.int64, follows={}),
        }
        if self._sums:
            # There is no step before version 0; it counts with the rate of the first step.
            before = -self.context.learning_rate(0, 0.0)
            memories["rate_sum"] = Memory(
                1, torch.tensor([before], dtype=torch.float64), dtype=torch.float64, follows={}
            )
        return memories

    def correction(self, cohort: Cohort) -> Tensor:
        """y_i, which contains -h_i."""
        model = cohort.down["model"]
        versions = cohort.column(cohort.versions, cohort.memory["version"])
        if self._sums:
            rates = (cohort.down["rate_sum"] - cohort.memory["rate_sum"]).to(model.dtype)
        else:
            rates = cohort.learning_rates.unsqueeze(1) * (versions - cohort.memory["version"])
        # The same version: the difference is zero, whatever the divisor.
        rates = rates.masked_fill(rates == 0, 1)
        scale = self.context.clients / (self.params.server_lr * self.steps * rates)
        recovered: Tensor = scale * (cohort.memory["received"] - model)
        return recovered - cohort.memory["gradient"]

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        update, model = super().local_update(cohort, trainer), cohort.down["model"]
        versions = cohort.column(cohort.versions, cohort.memory["version"])
        memory = {**update.memory, "received": model, "version": versions}
        if self._sums:
            memory["rate_sum"] = cohort.down["rate_sum"]
        return replace(update, memory=memory)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        state = super().aggregate(server, updates)
        if not self._sums:
            return state
        return {**state, "rate_sum": server["rate_sum"] + self.context.local_rate(updates)}
