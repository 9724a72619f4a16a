"""The FedSUM family: uplink-merge at the server, and what clients remember (last lines of Algorithms 1 to 3).

Client i keeps h_i, the mean of its mini-batch gradients when it last participated, and sends the difference between the
new mean and h_i. The server adds up the differences: y is the sum of h_i over all clients (0 for those never seen).
Then x = x - (eta_g eta_l K / N) y, always with 1/N. Under a schedule with ``min_updates: 0`` an empty round steps along
the old y, as in the algorithms read literally.

eta_l is the local learning rate of the round, K the number of local steps of a full dispatch (the mean over clients if
they differ). A client drawn several times for a round has a single h_i and counts once. Sums of gradients are collected
directly, because recovering them from models would multiply rounding errors by N / (eta_l K). Buffers of the model are
averaged over the contributions.

Weight decay is part of the objective: a gradient is that of the loss plus weight_decay x w, wherever it occurs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
)
from fedsim.parts.component import Parameters

PAPER = (
    "You and Pu, FedSUM Family: Efficient Federated Learning Methods under Arbitrary Client Participation, "
    "arXiv:2512.18275"
)


class FedSumParams(Parameters):
    """Parameters of the FedSUM family."""

    server_lr: float = Field(default=1.0, gt=0)
    """Global learning rate eta_g; a server step is eta_g x eta_l x K / N times the sum of all clients' mean
    gradients."""


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
    Params = FedSumParams

    def __init__(self, params: FedSumParams, context: MethodContext) -> None:
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
        """The new mean gradient; its difference from the last one is sent."""
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
        """The correction, the division by N, and the sum of the gradients."""
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
        """1: each step adds its gradient to a sum."""
        return 1.0

    def correction(self, cohort: Cohort) -> None:
        """None: there are no local steps."""


class FedSumCrParams(FedSumParams):
    """Parameters of FedSUM-CR."""

    correction: Literal["literal", "lr_sum"] = "literal"
    """How the direction is recovered from the difference of two models. ``literal`` divides by (t - a_i) times the
    current learning rate (equation 11), which is exact only for a constant rate; ``lr_sum`` divides by the sum of the
    rates that the server has used since, which it sends as one more number. With a constant rate both are equal."""
    bootstrap: Literal["shared_seed", "first_download"] = "shared_seed"
    """How a client obtains the initial model when it first participates: from a shared seed, at no cost, or as a second
    model sent with its first dispatch. Only the bytes differ."""


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
    Params = FedSumCrParams

    def __init__(self, params: FedSumCrParams, context: MethodContext) -> None:
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
        """x, y = 0 and, if needed, the sum of the local learning rates of all server steps."""
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
        """That of FedSUM; the received model and its version are remembered."""
        update, model = super().local_update(cohort, trainer), cohort.down["model"]
        versions = cohort.column(cohort.versions, cohort.memory["version"])
        memory = {**update.memory, "received": model, "version": versions}
        if self._sums:
            memory["rate_sum"] = cohort.down["rate_sum"]
        return replace(update, memory=memory)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """That of FedSUM; the sum of rates includes this step."""
        state = super().aggregate(server, updates)
        if not self._sums:
            return state
        return {**state, "rate_sum": server["rate_sum"] + self.context.local_rate(updates)}
