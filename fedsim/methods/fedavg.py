"""FedAvg: federated averaging; FedProx, FedNova and rescaled partial work, which differ in a formula."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    Corrected,
    FloatArray,
    LocalRule,
    Method,
    Rounds,
    ServerState,
    Tensor,
    Updates,
    WeightedParams,
    averaging_weights,
)
from fedsim.parts.component import Parameters


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
        """A :meth:`step` along the :meth:`change`; unchanged without contributions."""
        if not len(updates):
            return server
        return self.step(server, self.change(updates))

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """The state after a step of the server's optimizer along ``change`` (P,): model + server_lr x change."""
        return {"model": server["model"] + self.params.server_lr * change}

    def change(self, updates: Updates) -> Tensor:
        """The sum of the clients' changes times their weights and factors, (P,)."""
        return updates.weighted_sum("delta", self.weights(updates), self.factors(updates))

    def weights(self, updates: Updates) -> FloatArray:
        """Weights of the clients in the average, (C,); they sum to 1 unless every update is dropped."""
        weights = averaging_weights(updates, self.params.weights)
        return _of_full_work(updates, weights) if self._partial == "drop" else weights

    def buffer_weights(self, updates: Updates) -> FloatArray:
        """Those of the method; updates that do not count have none."""
        weights = super().buffer_weights(updates)
        return weights if self._partial == "average" else _of_full_work(updates, weights)

    def factors(self, updates: Updates) -> FloatArray:
        """Multiples of the clients' changes that are averaged, (C,): 1 unless ``partial`` is zero."""
        if self._partial != "zero":
            return np.ones(len(updates))
        return (updates.steps >= updates.steps_assigned).astype(np.float64)

    @property
    def _partial(self) -> str:
        return self.params.partial if isinstance(self.params, FedAvgParams) else "average"


def _of_full_work(updates: Updates, weights: FloatArray) -> FloatArray:
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
        """The proximal term."""
        return PROXIMAL_OPERATIONS if self.strength else 0.0

    def local_rule(self, cohort: Cohort) -> LocalRule | None:
        """The proximal term, if there is one."""
        return proximal_rule(cohort.down["model"], self.strength)


class FedProxParams(FedAvgParams):
    """Parameters of FedProx."""

    mu: float = Field(default=0.01, ge=0)
    """Strength of the term mu / 2 x ||w - w_received||^2 in each local objective."""


class FedProx(Proximal, FedAvg):
    """FedAvg with a proximal term that keeps local models near the received one, and with partial work.

    Partial work is enabled by the scenario (``partial_work: send``). With ``mu: 0`` it is FedAvg. The paper selects
    clients by their number of samples and averages uniformly: use ``weights: uniform`` and that selection to follow it.
    """

    name = "fedprox"
    title = "FedProx"
    paper = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, Algorithm 2 and equation 2"
    Params = FedProxParams

    def is_fedavg(self, rounds: Rounds) -> str:
        """Without the term."""
        return "" if self.strength else "mu is 0"

    @property
    def strength(self) -> float:
        """mu."""
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
        """If the distances are equal."""
        return "all clients do the same number of local steps" if rounds.equal_work else ""

    def factors(self, updates: Updates) -> FloatArray:
        """(sum p_j a_j) / a_i, (C,)."""
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
        """Without partial work."""
        return NO_PARTIAL_WORK if rounds.full_work else ""

    def factors(self, updates: Updates) -> FloatArray:
        """S_full / S, (C,)."""
        return super().factors(updates) * (updates.steps_assigned / updates.steps)
