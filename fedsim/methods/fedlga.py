"""FedLGA: the server completes partial updates with a rank-one approximation of the missing steps."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Method,
    MethodContext,
    Rounds,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    averaging_weights,
)
from fedsim.methods.fedavg import NO_PARTIAL_WORK
from fedsim.parts.component import Parameters


class FedLgaParams(Parameters):
    """Parameters of FedLGA."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate eta_g."""
    grad_source: Literal["mean_delta", "last_grad", "raw_delta", "secant"] = "mean_delta"
    """The gradient g_i that approximates the one at the client's last local model (equation 6). ``mean_delta``: the
    mean gradient of its path, derived from its change, learning rate and steps. ``last_grad``: one mini-batch gradient
    at that model, which the client sends as a second vector. ``raw_delta``: the change itself. ``secant``: the mean
    gradient over the missing steps that would lead to the mean full update."""
    hessian: Literal["outer", "diag", "per_tensor", "identity", "none"] = "outer"
    """Approximation of the Hessian: g g^T (equation 6), its diagonal, g g^T within each tensor of the model, the
    identity (a limited client then counts with the mean full update), or none (partial updates are averaged)."""
    sign: Literal[1, -1] = 1
    """Sign of the correction: 1 as in Algorithm 2, -1 as in delay compensation of gradients."""
    lam: float = Field(default=1.0, ge=0)
    """Factor on the correction; 1 in the paper, 0 averages partial updates."""
    unit_gradient: bool = False
    """Scale g_i to unit length, so that the correction is never longer than the gap. Not in the paper, whose
    correction grows with the square of the gradient."""
    clip: bool = False
    """Limit the correction to (S_full / S - 1) times the length of the client's change. Not in the paper."""
    k2_empty: Literal["skip", "last"] = "skip"
    """The mean full update in a round without full work: none (no corrections), or that of the last round with full
    work."""


class FedLga(Method):
    """Federated averaging with local gradient approximation for clients that did only part of their steps.

    With m the mean change of the contributions with full work, a limited client's change D_i counts as
    D_i + sign x lam x G_i (m - D_i), where G_i = g_i g_i^T (equations 5 and 6). Full changes are not corrected. A
    client is limited if it did fewer steps than assigned, in whole epochs or not.

    If all clients do full work and ``server_lr`` is 1, it is FedAvg with uniform weights. Buffers of the model are
    averaged without correction.
    """

    name = "fedlga"
    title = "FedLGA"
    paper = (
        "Li et al., FedLGA: Toward System-Heterogeneity of Federated Learning via Local Gradient Approximation, "
        "IEEE Transactions on Cybernetics 54(1), 2024, Algorithms 1 and 2"
    )
    paper_schedules = ("sync",)
    needs_whole_model = "its server completes the updates of some clients by those of others"
    Params = FedLgaParams

    def __init__(self, params: FedLgaParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self._remembers = params.k2_empty == "last"
        if params.grad_source == "last_grad":
            self.uploads = ("delta", "gradient")

    def is_fedavg(self, rounds: Rounds) -> str:
        """Without corrections."""
        because = NO_PARTIAL_WORK if rounds.full_work else "" if self.params.lam else "lam is 0"
        return f"{because}, with weights: uniform" if because else ""

    def initial_state(self, model: Tensor) -> ServerState:
        """The model and, if it may be needed, the last mean full update (NaN before the first one)."""
        if not self._remembers:
            return {"model": model}
        return {"model": model, "full": model.new_full(model.shape, math.nan)}

    def extra_passes(self) -> float:
        """The gradient at the last local model, with ``last_grad``."""
        return 1.0 if self.params.grad_source == "last_grad" else 0.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Plain local training; with ``last_grad`` also a gradient at its end, at the next mini-batch."""
        start = cohort.down["model"]
        trained = trainer.run(cohort, start)
        vectors = {}
        if self.params.grad_source == "last_grad":
            once = np.ones(len(cohort.clients), dtype=np.int64)
            at_end = trainer.run(
                cohort, trained.model, steps=once, move=False, collect=("mean_gradient",), phase=1
            )
            assert at_end.mean_gradient is not None
            vectors["gradient"] = at_end.mean_gradient
        return LocalUpdate({"delta": trained.model.sub_(start), **vectors}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Algorithm 2, lines 7 to 14; unchanged without contributions."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, "uniform")
        change = updates.weighted_sum("delta", weights)
        limited = updates.steps < updates.steps_assigned
        state = dict(server)
        full = self._mean_full(updates, ~limited)
        if self._remembers:
            state["full"] = full = server["full"] if full is None else full
            full = None if bool(full.isnan().any()) else full
        if full is not None and self.params.hessian != "none":
            for index in np.flatnonzero(limited).tolist():
                change.add_(self._correction(updates, index, full), alpha=weights[index])
        state["model"] = server["model"] + self.params.server_lr * change
        return state

    def _mean_full(self, updates: Updates, full: npt.NDArray[np.bool_]) -> Tensor | None:
        """m, (P,); None if no client did full work."""
        weights = updates.multiplicity * full
        if not weights.any():
            return None
        mean: Tensor | None = None
        for index in np.flatnonzero(full).tolist():
            weighted = updates.row("delta", index) * float(weights[index] / weights.sum())
            mean = weighted if mean is None else mean.add_(weighted)
        return mean

    def _correction(self, updates: Updates, index: int, full: Tensor) -> Tensor:
        """The correction of a limited client's change, (P,)."""
        import torch

        trainable = self.context.layout.trainable
        change = updates.row("delta", index)
        gap = full - change
        gap[trainable:] = 0
        gradient = self._gradient(updates, index, gap)
        if self.params.unit_gradient:
            length = torch.linalg.vector_norm(gradient[:trainable])
            gradient = gradient / torch.where(length > 0, length, 1.0)
        correction = self._curve(gradient, gap)
        correction *= self.params.sign * self.params.lam
        if self.params.clip:
            missing = updates.steps_assigned[index] / updates.steps[index] - 1
            limit = missing * torch.linalg.vector_norm(change[:trainable])
            length = torch.linalg.vector_norm(correction)
            correction *= torch.where(length > limit, limit / length, 1.0)
        return correction

    def _gradient(self, updates: Updates, index: int, gap: Tensor) -> Tensor:
        """g_i, (P,)."""
        change = updates.row("delta", index)
        if self.params.grad_source == "raw_delta":
            return change
        if self.params.grad_source == "last_grad":
            return updates.row("gradient", index)
        steps = np.array([updates.steps[index], updates.steps_assigned[index]])
        done, assigned = map(float, self.context.distance_covered(steps))
        # At a rate of 0, changes say nothing about gradients, and no correction is known.
        rate = float(updates.learning_rates[index]) or math.inf
        if self.params.grad_source == "mean_delta":
            return change / -(rate * done)
        return gap / -(rate * (assigned - done))

    def _curve(self, gradient: Tensor, gap: Tensor) -> Tensor:
        """G_i applied to the gap, (P,); the matrix is never formed."""
        hessian, layout = self.params.hessian, self.context.layout
        if hessian == "identity":
            return gap.clone()
        if hessian == "diag":
            return gradient * gradient * gap
        trainable = layout.trainable
        edges = layout.offsets if hessian == "per_tensor" else (0, trainable)
        result = gap.new_zeros(gap.shape)
        for start, end in pairwise(edges):
            piece = gradient[start:end]
            result[start:end] = piece * piece.dot(gap[start:end])
        return result
