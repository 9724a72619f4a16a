"""The common part of the FedSUM family: the uplink-merge server and the clients' memory.

You and Pu, FedSUM Family: Efficient Federated Learning Methods under Arbitrary Client Participation, arXiv:2512.18275.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from pydantic import Field

from fedsim.methods.aggregation import local_rate
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
)
from fedsim.parts.component import Parameters

PAPER = (
    "You and Pu, FedSUM Family: Efficient Federated Learning Methods under Arbitrary Client Participation, "
    "arXiv:2512.18275"
)


class UplinkMergeParams(Parameters):
    """Parameters of the FedSUM family."""

    server_lr: float = Field(default=1.0, gt=0)
    """Global learning rate eta_g; a server step is eta_g x eta_l x K / N times the sum of all clients' mean
    gradients."""


class UplinkMerge(Method):
    """The server of the family (last lines of Algorithms 1 to 3) and the clients' memory.

    Client i keeps h_i, the mean of its mini-batch gradients when it last participated, and sends the difference between
    the new mean and h_i. The server adds up the differences: y is the sum of h_i over all clients (0 for those never
    seen). Then x = x - (eta_g eta_l K / N) y, always with 1/N. Under a schedule with ``min_updates: 0`` an empty round
    steps along the old y, as in the algorithms read literally.

    eta_l is the local learning rate of the round, K the number of local steps of a full dispatch (the mean over clients
    if they differ). A client drawn several times for a round has a single h_i and counts once. Sums of gradients are
    collected directly, because recovering them from models would multiply rounding errors by N / (eta_l K). Buffers of
    the model are averaged over the contributions.

    Weight decay is part of the objective: a gradient is that of the loss plus weight_decay x w, wherever it occurs.
    """

    paper_schedules = ("sync",)
    needs_no_momentum = (
        "the server steps along the mean of all clients' gradients, which does not include momentum"
    )
    server_vectors = ("merged",)
    Params = UplinkMergeParams

    def __init__(self, params: UplinkMergeParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.steps = float(context.local_steps.mean())
        self.weight_decay = context.optimizer.penalty

    def memories(self) -> Mapping[str, Memory]:
        """h_i."""
        return {"gradient": Memory(self.context.layout.size, follows={"delta": 1.0})}

    @abstractmethod
    def correction(self, cohort: Cohort) -> Tensor | None:
        """y_i - h_i of the local steps, (B, P); None for gradients at the received model, without local steps."""

    def remember(self, cohort: Cohort) -> Mapping[str, Tensor]:
        """Memories of the clients besides h_i, name to (B, elements)."""
        return {}

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
        return LocalUpdate(
            {"delta": delta}, trained.loss, {"gradient": mean, **self.remember(cohort)}
        )

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
        rate = local_rate(self.context, updates)
        scale = self.params.server_lr * rate * self.steps / self.context.clients
        return {
            "model": server["model"] - scale * merged,
            "merged": merged,
            **self.advance(server, rate),
        }

    def advance(self, server: ServerState, rate: float) -> Mapping[str, Tensor]:
        """Further server state after a step with local learning rate ``rate``."""
        return {}
