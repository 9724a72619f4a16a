"""Optimizers at the server that step along the clients' mean change: with momentum, and adaptive ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from fedsim.methods.base import (
    Method,
    Rounds,
    ServerState,
    Tensor,
    Updates,
    WeightedParams,
    averaging_weights,
)
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.component import Parameters


class FedAvgMParams(WeightedParams):
    """Parameters of FedAvgM."""

    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Server momentum (beta)."""
    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""


class FedAvgM(FedAvg):
    """Server momentum on the weighted mean of the changes: v = beta v + mean, model + server_lr x v.

    With ``momentum: 0`` it is FedAvg.
    """

    name = "fedavgm"
    title = "FedAvgM"
    paper = (
        "Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
        "Classification, arXiv:1909.06335, section 4"
    )
    server_vectors: ClassVar[Sequence[str]] = ("momentum",)
    Params = FedAvgMParams

    def is_fedavg(self, rounds: Rounds) -> str:
        """Without momentum."""
        return "" if self.params.momentum else "momentum is 0"

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """v first, then the model with the new v."""
        momentum = self.params.momentum * server["momentum"] + change
        return {"model": server["model"] + self.params.server_lr * momentum, "momentum": momentum}


class DiLoCoParams(FedAvgMParams):
    """Parameters of DiLoCo."""

    weights: Literal["samples", "uniform"] = "uniform"
    """Weight of a client's update: equal for all clients, as in the paper, or its number of training samples."""
    server_lr: float = Field(default=0.7, gt=0)
    """Outer learning rate."""


class DiLoCo(FedAvgM):
    """The outer optimizer is SGD with Nesterov momentum on the mean change: v = beta v + D, model + lr (D + beta v).

    The inner optimizer is the scenario's ``training.optimizer``, AdamW in the paper. With ``momentum: 0`` and
    ``server_lr: 1`` it is FedAvg with that optimizer. Running statistics of normalization layers move by the mean
    alone.
    """

    name = "diloco"
    title = "DiLoCo"
    paper = (
        "Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models, arXiv:2311.08105, "
        "Algorithm 1"
    )
    paper_schedules = ("sync",)
    Params = DiLoCoParams

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """v first, then the model along D + beta v."""
        momentum = self.params.momentum * server["momentum"] + change
        step = change + self.params.momentum * momentum
        return {"model": server["model"] + self.params.server_lr * step, "momentum": momentum}


class DelayedNesterovParams(DiLoCoParams):
    """Parameters of delayed Nesterov."""

    momentum_every: int = Field(default=10, ge=1)
    """Number of updates between two steps of the momentum (N)."""
    activation: float = Field(default=0.0, ge=0)
    """Share of the momentum that every update applies (c), at most 1 / ``momentum_every``."""

    @model_validator(mode="after")
    def _shares_add_up_to_at_most_one(self) -> DelayedNesterovParams:
        if self.activation * self.momentum_every > 1:
            raise ValueError(
                f"activation is above 1 / momentum_every; give at most {1 / self.momentum_every:g}"
            )
        return self


class DelayedNesterov(DiLoCo):
    """Every update moves the model by 1/N of its change; every N updates, the momentum is refreshed and applied.

    With D the change that arrives and S the sum of the changes since the last refresh: the model moves by lr (c beta m
    + D / N) and, at every N-th update, by lr ((1 - c N + c) beta m + D / N) after m = beta m + S / N. With N = 1 it is
    DiLoCo, one update at a time.
    """

    name = "delayed_nesterov"
    title = "Delayed Nesterov"
    paper = (
        "Liu et al., Asynchronous Local-SGD Training for Language Modeling, arXiv:2401.09135, Algorithm 3 (dynamic "
        "local updates: local_steps: by_speed of the schedule)"
    )
    paper_schedules = ("async",)
    server_vectors = ("momentum", "sum")
    Params = DelayedNesterovParams

    def is_fedavg(self, rounds: Rounds) -> str:
        """Never: a step has a share of the change."""
        return ""

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, the momentum, the sum of the changes since its last refresh, and their number."""
        return {**super().initial_state(model), "count": model.new_zeros(1)}

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """Count the update, and refresh the momentum if it is the N-th."""
        params = self.params
        every, beta, share = params.momentum_every, params.momentum, params.activation
        momentum, total, count = server["momentum"], server["sum"] + change, server["count"] + 1
        if int(count) == every:
            momentum = beta * momentum + total / every
            share = 1 - share * every + share
            total, count = change.new_zeros(change.shape), count.new_zeros(1)
        step = share * beta * momentum + change / every
        model = server["model"] + params.server_lr * step
        return {"model": model, "momentum": momentum, "sum": total, "count": count}


class AdaptiveParams(WeightedParams):
    """Parameters of methods with an adaptive optimizer at the server."""

    server_lr: float = Field(default=0.01, gt=0)
    """Server learning rate (eta)."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of the changes."""
    tau: float = Field(default=1e-3, gt=0)
    """Degree of adaptivity: smaller values amplify coordinates with small changes more."""


class AdaptiveServer(FedAvg):
    """The clients' mean change D is a pseudo-gradient: m = beta1 m + (1 - beta1) D, x + eta m / (sqrt(v) + tau).

    v starts at tau^2 and follows D^2 as the optimizer prescribes. m starts at zero without bias correction, as in the
    paper. Running statistics of normalization layers are averaged plainly.
    """

    paper = "Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2"
    server_vectors = ("momentum",)
    params: AdaptiveParams

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new v from the old one and D^2, (P,)."""

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, m = 0 and v = tau^2."""
        v = model.new_full(model.shape, self.params.tau**2)
        return {**super().initial_state(model), "second_moment": v}

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """One step of the server's optimizer."""
        params = self.params
        momentum = params.beta1 * server["momentum"] + (1 - params.beta1) * change
        v = self.second_moment(server["second_moment"], change.square())
        model = server["model"] + params.server_lr * momentum / (v.sqrt() + params.tau)
        return {"model": model, "momentum": momentum, "second_moment": v}


class FedAdagradParams(AdaptiveParams):
    """Parameters of FedAdagrad."""

    server_lr: float = Field(default=0.1, gt=0)
    """Server learning rate (eta)."""
    beta1: float = Field(default=0.0, ge=0, lt=1)
    """Decay of the mean of the changes; 0 in the paper's experiments."""


class FedAdagrad(AdaptiveServer):
    """Adagrad at the server, on the clients' weighted mean change D: v = v + D^2.

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedadagrad"
    title = "FedAdagrad"
    Params = FedAdagradParams

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Sum of D^2."""
        return v + squared


class DecayParams(AdaptiveParams):
    """Parameters of optimizers whose second moment decays."""

    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the second moment v."""


class FedAdam(AdaptiveServer):
    """Adam at the server, on the clients' weighted mean change D: v = beta2 v + (1 - beta2) D^2.

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedadam"
    title = "FedAdam"
    Params = DecayParams
    params: DecayParams

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Exponential mean of D^2."""
        return self.params.beta2 * v + (1 - self.params.beta2) * squared


class FedYogi(AdaptiveServer):
    """Yogi at the server, on the clients' weighted mean change D: v = v - (1 - beta2) D^2 sign(v - D^2).

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedyogi"
    title = "FedYogi"
    Params = DecayParams
    params: DecayParams

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """A step of size (1 - beta2) D^2 toward D^2."""
        return v - (1 - self.params.beta2) * squared * (v - squared).sign()


class FadasParams(Parameters):
    """Parameters of FADAS."""

    server_lr: float = Field(default=0.01, gt=0)
    """Server learning rate (eta)."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of the changes."""
    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the mean of their squares."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    delay: int | None = Field(default=None, ge=1)
    """Delay threshold (tau_c): if the largest delay in a buffer exceeds it, the rate is min(server_lr, 1 / that delay).
    Default: the rate does not depend on the delay."""


class Fadas(Method):
    """m and v are exponential means of the buffer's mean change D and of D^2; the model moves by eta m / sqrt(v_max).

    v_max is the largest v so far, in every coordinate (AMSGrad). With ``beta1: 0`` and ``beta2: 0`` the model moves by
    eta D / max |D|.
    """

    name = "fadas"
    title = "FADAS"
    paper = (
        "Wang et al., FADAS: Towards Federated Adaptive Asynchronous Optimization, ICML 2024, Algorithm 1 and its "
        "delay-adaptive learning rate"
    )
    paper_schedules = ("buffered",)
    server_vectors = ("momentum", "second_moment", "largest")
    Params = FadasParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """One step of AMSGrad along the mean change; unchanged without contributions."""
        if not len(updates):
            return server
        params = self.params
        change = updates.weighted_sum("delta", averaging_weights(updates, "uniform"))
        momentum = params.beta1 * server["momentum"] + (1 - params.beta1) * change
        second = params.beta2 * server["second_moment"] + (1 - params.beta2) * change.square()
        largest = server["largest"].maximum(second)
        rate, longest = params.server_lr, int(updates.staleness.max())
        if params.delay is not None and longest > params.delay:
            rate = min(rate, 1 / longest)
        step = rate * momentum / (largest.sqrt() + params.epsilon)
        return {
            "model": server["model"] + step,
            "momentum": momentum,
            "second_moment": second,
            "largest": largest,
        }
