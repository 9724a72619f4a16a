"""Optimizers at the server that step along the clients' mean change: with momentum, and adaptive ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from fedsim.errors import UserError
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    Rounds,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
    WeightedParams,
    averaging_weights,
)
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.component import Parameters


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

    class Params(WeightedParams):
        momentum: float = Field(default=0.9, ge=0, lt=1)
        """Server momentum (beta)."""
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate."""

    def is_fedavg(self, rounds: Rounds) -> str:
        return "" if self.params.momentum else "momentum is 0"

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        momentum = self.params.momentum * server["momentum"] + change
        return {"model": server["model"] + self.params.server_lr * momentum, "momentum": momentum}


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

    class Params(FedAvgM.Params):
        weights: Literal["samples", "uniform"] = "uniform"
        """Weight of a client's update: equal for all clients, as in the paper, or its number of training samples."""
        server_lr: float = Field(default=0.7, gt=0)
        """Outer learning rate."""

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        momentum = self.params.momentum * server["momentum"] + change
        step = change + self.params.momentum * momentum
        return {"model": server["model"] + self.params.server_lr * step, "momentum": momentum}


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

    class Params(DiLoCo.Params):
        momentum_every: int = Field(default=10, ge=1)
        """Number of updates between two steps of the momentum (N)."""
        activation: float = Field(default=0.0, ge=0)
        """Share of the momentum that every update applies (c), at most 1 / ``momentum_every``."""

        @model_validator(mode="after")
        def _shares_add_up_to_at_most_one(self) -> DelayedNesterov.Params:
            if self.activation * self.momentum_every > 1:
                raise ValueError(
                    f"activation is above 1 / momentum_every; give at most {1 / self.momentum_every:g}"
                )
            return self

    def is_fedavg(self, rounds: Rounds) -> str:
        """Never: a step has a share of the change."""
        return ""

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, the momentum, the sum of the changes since its last refresh, and their number."""
        return {**super().initial_state(model), "count": model.new_zeros(1)}

    def step(self, server: ServerState, change: Tensor) -> ServerState:
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


class AdaptiveServer(FedAvg):
    """The clients' mean change D is a pseudo-gradient: m = beta1 m + (1 - beta1) D, x + eta m / (sqrt(v) + tau).

    v starts at tau^2 and follows D^2 as the optimizer prescribes. m starts at zero without bias correction, as in the
    paper. Running statistics of normalization layers are averaged plainly.
    """

    paper = "Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2"
    server_vectors = ("momentum",)

    class Params(WeightedParams):
        server_lr: float = Field(default=0.01, gt=0)
        """Server learning rate (eta)."""
        beta1: float = Field(default=0.9, ge=0, lt=1)
        """Decay of the mean of the changes."""
        tau: float = Field(default=1e-3, gt=0, le=1e18)
        """Degree of adaptivity: smaller values amplify coordinates with small changes more."""

    params: Params

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new v from the old one and D^2, (P,)."""

    def initial_state(self, model: Tensor) -> ServerState:
        v = model.new_full(model.shape, self.params.tau**2)
        return {**super().initial_state(model), "second_moment": v}

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        params = self.params
        momentum = params.beta1 * server["momentum"] + (1 - params.beta1) * change
        v = self.second_moment(server["second_moment"], change.square())
        model = server["model"] + params.server_lr * momentum / (v.sqrt() + params.tau)
        return {"model": model, "momentum": momentum, "second_moment": v}


class FedAdagrad(AdaptiveServer):
    """Adagrad at the server, on the clients' weighted mean change D: v = v + D^2.

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedadagrad"
    title = "FedAdagrad"

    class Params(AdaptiveServer.Params):
        server_lr: float = Field(default=0.1, gt=0)
        """Server learning rate (eta)."""
        beta1: float = Field(default=0.0, ge=0, lt=1)
        """Decay of the mean of the changes; 0 in the paper's experiments."""

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v + squared


class FedAdam(AdaptiveServer):
    """Adam at the server, on the clients' weighted mean change D: v = beta2 v + (1 - beta2) D^2.

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedadam"
    title = "FedAdam"

    class Params(AdaptiveServer.Params):
        beta2: float = Field(default=0.99, ge=0, lt=1)
        """Decay of the second moment v."""

    params: Params

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return self.params.beta2 * v + (1 - self.params.beta2) * squared


class FedYogi(FedAdam):
    """Yogi at the server, on the clients' weighted mean change D: v = v - (1 - beta2) D^2 sign(v - D^2).

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedyogi"
    title = "FedYogi"

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v - (1 - self.params.beta2) * squared * (v - squared).sign()


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

    class Params(Parameters):
        server_lr: float = Field(default=0.01, gt=0)
        """Server learning rate (eta)."""
        beta1: float = Field(default=0.9, ge=0, lt=1)
        """Decay of the mean of the changes."""
        beta2: float = Field(default=0.99, ge=0, lt=1)
        """Decay of the mean of their squares."""
        epsilon: float = Field(default=1e-8, gt=0)
        """Added to the root of the second moment."""
        delay: int | None = Field(default=None, ge=1)
        """Delay threshold (tau_c): if the largest delay in a buffer exceeds it, the rate is min(server_lr, 1 / that
        delay). Default: the rate does not depend on the delay."""

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
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


class StreamingDiLoCo(DiLoCo):
    """DiLoCo of one fragment per round; local models continue from round to round.

    In round r, counted from 0, a client merges fragment r - 1 as the server has made it, theta = alpha theta + (1 -
    alpha) fragment, after its first ``overlap`` local steps, and sends the change of fragment r since that was last
    synchronized. The round's ``local_steps`` are thus H / P in the paper's terms. The first ``overlap`` of them are
    done while the update of the round before and the new fragment are on their way, if the client stays online. A
    client that has not finished its work in the round before gets the whole model and begins with it. With one
    fragment, no overlap and ``own_share: 0`` it is DiLoCo.
    """

    name = "streaming_diloco"
    averages = False
    title = "Streaming DiLoCo"
    paper = (
        "Douillard et al., Streaming DiLoCo with Overlapping Communication: Towards a Distributed Free Lunch, "
        "arXiv:2501.18512, Algorithm 2"
    )
    only_synchronous = "all clients send the same fragment in a round"
    continues_models = True

    class Params(DiLoCo.Params):
        fragments: int = Field(default=4, ge=1)
        """Parts of the model, one of which is synchronized per round (P); they have equal numbers of consecutive
        parameters."""
        overlap: int = Field(default=1, ge=0)
        """Local steps during which the transfers of a fragment may take place (tau); a client waits for the fragment
        only after them."""
        own_share: float = Field(default=0.5, ge=0, lt=1)
        """Weight of the client's own fragment when the synchronized one is merged into its model (alpha)."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self._length = -(-context.layout.size // params.fragments)
        if params.fragments > 1 and context.layout.buffers:
            self.needs_exact_uploads = (
                "its fragments contain running statistics, which must be exact"
            )
        if params.overlap >= context.local_steps.min():
            raise UserError(
                f"overlap is {params.overlap}, but a dispatch may have {context.local_steps.min()} local steps",
                where="server.method.overlap",
                hint="give fewer than training.local_steps",
            )

    def download(self) -> Sequence[Vector]:
        """The fragment; a client uses the rest of the model only if it has not been in the round before."""
        return (self._share_of_model(1 / self.params.fragments),)

    def first_download(self) -> Sequence[Vector]:
        rest = 1 - 1 / self.params.fragments
        return (self._share_of_model(rest),) if rest else ()

    def _share_of_model(self, share: float) -> Vector:
        varies = self.params.fragments > 1
        return Vector("model", self.context.layout.size, share=share, varies=varies)

    def upload(self) -> Sequence[Vector]:
        return (Vector("delta", self._length, varies=self.params.fragments > 1),)

    def memories(self) -> Mapping[str, Memory]:
        """A client's model, the fragments as they were last synchronized, and the version that continues them."""
        kept = partial(Memory, kept_when_lost=True, follows={})
        memory = kept(self.context.layout.size, initial=lambda model: model)
        version = kept(1, initial=lambda model: model.new_full((1,), -1))
        return {"local": memory, "synchronized": memory, "next_version": version}

    def steps_ahead(self) -> int:
        return int(self.params.overlap)

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Merge the fragment received after the overlap, and send the change of the next one."""
        import torch

        overlap, own_share = self.params.overlap, self.params.own_share
        model = cohort.down["model"]
        versions = cohort.column(cohort.versions, model)
        is_first = cohort.memory["next_version"] != versions
        fragment = torch.arange(model.shape[1], device=model.device) // self._length
        count = self.params.fragments
        received = fragment == cohort.column((cohort.versions - 1) % count, fragment)
        synchronized = torch.where(is_first | received, model, cohort.memory["synchronized"])
        start = torch.where(is_first, model, cohort.memory["local"])
        merged = received & ~is_first

        def merge(weights: Tensor, rows: slice) -> None:
            weights.copy_(torch.where(merged[rows], model[rows].lerp(weights, own_share), weights))

        after_overlap = int((cohort.steps > overlap).sum())
        if overlap:
            midway = overlap, lambda weights: merge(weights, slice(0, after_overlap))
            trained = trainer.run(cohort, start, midway=midway)
            merge(trained.model[after_overlap:], slice(after_overlap, None))
        else:
            merge(start, slice(None))
            trained = trainer.run(cohort, start)
        padding = count * self._length - model.shape[1]
        change = torch.nn.functional.pad(trained.model - synchronized, (0, padding))
        fragments = change.view(-1, count, self._length)
        delta = fragments[np.arange(len(change)), cohort.versions % count]
        memory = {
            "local": trained.model,
            "synchronized": synchronized,
            "next_version": versions + 1,
        }
        return LocalUpdate({"delta": delta}, trained.loss, memory)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        if not len(updates):
            return server
        begin = (updates.version - 1) % self.params.fragments * self._length
        part = slice(begin, begin + self._length)
        change = server["model"].new_zeros(server["model"].shape)
        sent = self.change(updates)
        change[part] = sent[: len(change[part])]
        state, trainable = self.step(server, change), self.context.layout.trainable
        # Buffers move by the mean alone.
        state["model"][trainable:] = (server["model"] + change)[trainable:]
        result = {name: server[name].clone() for name in state}
        for name, tensor in result.items():
            tensor[part] = state[name][part]
        return result
