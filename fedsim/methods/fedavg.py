"""FedAvg: federated averaging; FedProx, FedNova, and what becomes of partial work: rescaled, or completed by FedLGA."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    Corrected,
    LocalRule,
    LocalUpdate,
    Method,
    MethodContext,
    Rounds,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    WeightedParams,
    averaging_weights,
)
from fedsim.parts.component import Parameters
from fedsim.vocabulary.arrays import Bools, Floats


class FedAvgParams(WeightedParams):
    """Parameters of FedAvg."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 is the average of the clients' models."""
    partial: Literal["average", "drop", "zero"] = "average"
    """Treatment of updates from clients that did fewer steps than assigned: averaged like all others, left out of the
    average, or averaged as if the client had not moved."""


class FedAvg(Method):
    """Federated averaging: local SGD, then the weighted mean of the clients' changes.

    With K = 1 local step, full participation and uniform weights it is gradient descent with step ``server_lr`` x
    ``lr``.
    """

    name = "fedavg"
    averages = True
    title = "FedAvg"
    paper = (
        "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017, "
        "Algorithm 1 (server learning rate: Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 1)"
    )
    paper_schedules = ("sync",)
    Params: ClassVar[type[Parameters]] = FedAvgParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        if not len(updates):
            return server
        return self.step(server, self.change(updates))

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """The state after a step of the server's optimizer along ``change`` (P,): model + server_lr x change."""
        return {"model": server["model"] + self.params.server_lr * change}

    def change(self, updates: Updates) -> Tensor:
        """The sum of the clients' changes times their weights and factors, (P,)."""
        return updates.weighted_sum("delta", self.weights(updates), self.factors(updates))

    def weights(self, updates: Updates) -> Floats:
        """Weights of the clients in the average, (C,); they sum to 1 unless every update is dropped."""
        weights = averaging_weights(updates, self.params.weights)
        return _of_full_work(updates, weights) if self._partial == "drop" else weights

    def buffer_weights(self, updates: Updates) -> Floats:
        """Those of the method; updates that do not count have none."""
        weights = super().buffer_weights(updates)
        return weights if self._partial == "average" else _of_full_work(updates, weights)

    def factors(self, updates: Updates) -> Floats:
        """Multiples of the clients' changes that are averaged, (C,): 1 unless ``partial`` is zero."""
        if self._partial != "zero":
            return np.ones(len(updates))
        return (updates.steps >= updates.steps_assigned).astype(np.float64)

    @property
    def _partial(self) -> str:
        return self.params.partial if isinstance(self.params, FedAvgParams) else "average"


def _of_full_work(updates: Updates, weights: Floats) -> Floats:
    """The same weights of clients that did all their steps alone, with sum 1, or 0 if none did."""
    weights = weights * (updates.steps >= updates.steps_assigned)
    return weights / (weights.sum() or 1.0)


NO_PARTIAL_WORK = "no client sends partial work (server.partial_work, training.limited)"
EVERYONE = "all clients take part in every round, with weights: uniform"
PROXIMAL_OPERATIONS = 3.0
"""Operations per parameter of :func:`proximal_rule`: a difference, a product and a sum."""


def proximal_rule(start: Tensor, strength: float) -> LocalRule | None:
    """The rule that adds the gradient of ``strength`` / 2 x ||w - start||^2; None (no rule) for strength 0.

    Args:
        start: the models received, (B, P).
        strength: mu of Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, equation 2.
    """
    return Corrected(pull=strength, anchor=start) if strength else None


class Proximal(Method):
    """A method whose local objectives may have a proximal term, of the strength in the parameter ``proximal``."""

    @property
    def strength(self) -> float:
        """Strength of the term; 0 for none."""
        return float(self.params.proximal)

    def vector_operations(self) -> float:
        return PROXIMAL_OPERATIONS if self.strength else 0.0

    def local_rule(self, cohort: Cohort) -> LocalRule | None:
        return proximal_rule(cohort.down["model"], self.strength)


class FedProx(Proximal, FedAvg):
    """FedAvg with a proximal term that keeps local models near the received one, and with partial work.

    Partial work is enabled by the scenario (``partial_work: send``). With ``mu: 0`` it is FedAvg. The paper selects
    clients by their number of samples and averages uniformly: use ``weights: uniform`` and that selection to follow it.
    """

    name = "fedprox"
    title = "FedProx"
    paper = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, Algorithm 2 and equation 2"

    class Params(FedAvgParams):
        mu: float = Field(default=0.01, ge=0)
        """Strength of the term mu / 2 x ||w - w_received||^2 in each local objective."""

    def is_fedavg(self, rounds: Rounds) -> str:
        return "" if self.strength else "mu is 0"

    @property
    def strength(self) -> float:
        return float(self.params.mu)


class FedNova(FedAvg):
    """Clients' changes are divided by the distance that their steps cover along a constant gradient, then averaged.

    With weights p_i, and a_i the sum of the coefficients with which a client's gradients enter its change (its number
    of steps for plain SGD), the model moves by (sum p_j a_j) x sum p_i change_i / a_i. If all clients do the same
    number of steps it is FedAvg.
    """

    name = "fednova"
    title = "FedNova"
    paper = (
        "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, "
        "NeurIPS 2020, equations 4 and 6 and section 4"
    )
    needs_sgd = "the distance that local steps cover along a gradient is known only for SGD"

    def is_fedavg(self, rounds: Rounds) -> str:
        return "all clients do the same number of local steps" if rounds.equal_work else ""

    def factors(self, updates: Updates) -> Floats:
        factors = super().factors(updates)
        lengths = self.context.distance_covered(updates.steps)
        if (lengths == lengths[0]).all():
            # They cancel; omitting them keeps rounding from making FedNova differ from FedAvg.
            return factors
        return float((self.weights(updates) * factors) @ lengths) * factors / lengths


class Rescale(FedAvg):
    """A client that did S of its S_full assigned steps counts as if it had continued in the same direction.

    Its change is multiplied by S_full / S; then the changes are averaged. If all clients do all steps it is FedAvg.
    """

    name = "rescale"
    title = "Rescaled partial work"
    paper = (
        "Baseline for Li et al., FedLGA: Toward System-Heterogeneity of Federated Learning via Local Gradient "
        "Approximation, IEEE Transactions on Cybernetics 54(1), 2024"
    )

    def is_fedavg(self, rounds: Rounds) -> str:
        return NO_PARTIAL_WORK if rounds.full_work else ""

    def factors(self, updates: Updates) -> Floats:
        return super().factors(updates) * (updates.steps_assigned / updates.steps)


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

    class Params(Parameters):
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate eta_g."""
        grad_source: Literal["mean_delta", "last_grad", "raw_delta", "secant"] = "mean_delta"
        """The gradient g_i that approximates the one at the client's last local model (equation 6). ``mean_delta``: the
        mean gradient of its path, derived from its change, learning rate and steps. ``last_grad``: one mini-batch
        gradient at that model, which the client sends as a second vector. ``raw_delta``: the change itself. ``secant``:
        the mean gradient over the missing steps that would lead to the mean full update."""
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

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self._remembers = params.k2_empty == "last"
        if params.grad_source == "last_grad":
            self.uploads = ("delta", "gradient")

    def is_fedavg(self, rounds: Rounds) -> str:
        because = NO_PARTIAL_WORK if rounds.full_work else "" if self.params.lam else "lam is 0"
        return f"{because}, with weights: uniform" if because else ""

    def initial_state(self, model: Tensor) -> ServerState:
        """The model and, if it may be needed, the last mean full update (NaN before the first one)."""
        if not self._remembers:
            return {"model": model}
        return {"model": model, "full": model.new_full(model.shape, math.nan)}

    def extra_passes(self) -> float:
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

    def _mean_full(self, updates: Updates, full: Bools) -> Tensor | None:
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
