"""Asynchronous methods, the weights of stale updates, and servers that step along single gradients or batches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    WeightedParams,
    averaging_weights,
)
from fedsim.methods.fedavg import FedAvg, Proximal
from fedsim.parts.component import Parameters
from fedsim.vocabulary.arrays import Floats


class StalenessWeight(Parameters, ABC):
    """A kind of weight."""

    @abstractmethod
    def factor(self, staleness: Floats, version: int) -> Floats:
        """Weights for staleness counted in versions, elementwise, in the update to a version."""


class ConstantStaleness(StalenessWeight):
    """Equal weights."""

    name: Literal["constant"]
    """Kind of weight."""

    def factor(self, staleness: Floats, version: int) -> Floats:
        return np.ones_like(staleness)


class PolynomialStaleness(StalenessWeight):
    """(s + 1)^-exponent for staleness s."""

    name: Literal["polynomial"] = "polynomial"
    """Kind of weight."""
    exponent: float = Field(default=0.5, allow_inf_nan=False)
    """How fast weights decrease (a). FedCompass's text gives 0.5; its published code computes (s + 1)^(+0.5), which
    weights stale updates *more* and is written -0.5 here."""

    def factor(self, staleness: Floats, version: int) -> Floats:
        result: Floats = (staleness + 1.0) ** -self.exponent
        return result


class HingeStaleness(StalenessWeight):
    """1 up to a delay, then 1 / (slope x (s - delay) + 1)."""

    name: Literal["hinge"]
    """Kind of weight."""
    delay: float = Field(default=4.0, ge=0)
    """Staleness up to which the weight is 1 (b)."""
    slope: float = Field(default=10.0, gt=0)
    """How fast weights decrease after the delay (a)."""

    def factor(self, staleness: Floats, version: int) -> Floats:
        return 1.0 / (self.slope * np.maximum(staleness - self.delay, 0.0) + 1.0)


class ReciprocalStaleness(StalenessWeight):
    """1 up to a delay, then delay / s: the delay-adaptive steps of asynchronous SGD (method ``async_sgd``)."""

    name: Literal["reciprocal"]
    """Kind of weight."""
    delay: float = Field(default=10.0, gt=0)
    """Staleness up to which the weight is 1; in the theory the concurrency."""

    def factor(self, staleness: Floats, version: int) -> Floats:
        result: Floats = self.delay / np.maximum(staleness, self.delay)
        return result


class FedAsmuStaleness(StalenessWeight):
    """mu xi / (1 + mu xi) with xi = scale / (sqrt(t) (s + 1)^exponent) + offset, in the update to version t.

    FedASMU (Liu et al., AAAI 2024, equations 6 and 7), whose scale, exponent and offset are learned for each client;
    here they are constants. Use it as the mixing weight of ``fedasync`` with ``alpha: 1``.
    """

    name: Literal["fedasmu"]
    """Kind of weight."""
    mu: float = Field(default=1.0, gt=0)
    """Factor on xi (mu_alpha)."""
    scale: float = Field(default=1.0, gt=0)
    """Strength of the part that decreases (lambda)."""
    exponent: float = Field(default=0.5, ge=0)
    """How fast it decreases with the staleness (sigma)."""
    offset: float = Field(default=0.0, ge=0)
    """The part that does not decrease (iota)."""

    def factor(self, staleness: Floats, version: int) -> Floats:
        decreasing = self.scale / (math.sqrt(version) * (staleness + 1.0) ** self.exponent)
        xi: Floats = self.mu * (decreasing + self.offset)
        return xi / (1 + xi)


Staleness = Annotated[
    PolynomialStaleness
    | ConstantStaleness
    | HingeStaleness
    | ReciprocalStaleness
    | FedAsmuStaleness,
    Field(discriminator="name"),
]
"""Weight of an update by its staleness s: the versions made between its dispatch and its arrival, 0 for a fresh one.
(Xie et al., arXiv:1903.03934, section 5.2, write t - tau for a counter that is s + 1 in the polynomial.)"""


class StalenessParams(Parameters):
    """Parameters of methods that weight updates by their staleness."""

    alpha: float = Field(default=0.9, gt=0, le=1)
    """Weight of a fresh update."""
    staleness: Staleness = PolynomialStaleness()
    """How the weight decreases with the number of versions made between dispatch and arrival: polynomial, constant,
    hinge, reciprocal or fedasmu."""
    staleness_at: Literal["arrival", "aggregation"] = "arrival"
    """When staleness is counted: when the update arrives, or when it is aggregated."""

    def weights_by_age(self, updates: Updates) -> Floats:
        """``alpha`` x the weight of each update's staleness, (C,)."""
        age = (
            updates.staleness
            if self.staleness_at == "arrival"
            else updates.version - 1 - updates.versions
        )
        return self.alpha * self.staleness.factor(age.astype(np.float64), updates.version)


POPULATION_WEIGHTS = "weights each update by its client's share of the whole population"
""":attr:`Method.weight_of_absent` of methods that use :func:`population_weights`."""


def population_weights(
    context: MethodContext, updates: Updates, weights: Literal["samples", "uniform"]
) -> Floats:
    """Shares p_i of the contributing clients in the whole population, (C,); all clients' shares sum to 1."""
    if weights == "uniform":
        return updates.multiplicity / context.clients
    result: Floats = updates.multiplicity * updates.samples / context.samples.sum()
    return result


class FedBuff(FedAvg):
    """The model moves by the mean of the buffered changes, each multiplied by its staleness weight, 1 / sqrt(s + 1).

    The staleness weights are not normalized: a buffer of stale updates moves the model less. With ``scale:
    population`` it is the baseline of the FedCompass paper.
    """

    name = "fedbuff"
    title = "FedBuff"
    paper = (
        "Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022, Algorithm 1; "
        "scale population: Li et al., FedCompass, ICLR 2024, App. E.2"
    )
    paper_schedules = ("buffered",)

    class Params(StalenessParams):
        alpha: float = Field(default=1.0, gt=0, le=1)
        """Weight of a fresh update."""
        scale: Literal["mean", "population"] = "mean"
        """Average over the buffer (1/K), or weight each update by its client's share p_i of the population."""
        weights: Literal["samples", "uniform"] = "uniform"
        """Weights of clients in that average or share: their numbers of training samples, or equal for all clients."""
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self.weight_of_absent = POPULATION_WEIGHTS if params.scale == "population" else ""

    def weights(self, updates: Updates) -> Floats:
        if self.params.scale == "mean":
            return super().weights(updates)
        return population_weights(self.context, updates, self.params.weights)

    def factors(self, updates: Updates) -> Floats:
        discounts: Floats = self.params.weights_by_age(updates)
        return discounts


class FedAsync(Proximal):
    """Asynchronous federated optimization, a = alpha x (weight of the update's staleness).

    The form ``mixing`` is the original. The form ``delta`` is the baseline of the FedCompass paper: the client's
    share of the population scales the step. If a schedule aggregates several updates at once, they are applied one
    after the other (``mixing``) or summed (``delta``). With ``mixing``, running statistics of batch normalization are
    mixed as the rest of the model.
    """

    name = "fedasync"
    title = "FedAsync"
    paper = (
        "Xie, Koyejo and Gupta, Asynchronous Federated Optimization, arXiv:1903.03934, Algorithm 1 and section 5.2; "
        "form delta: Li et al., FedCompass, ICLR 2024, Algorithm 1 with single updates"
    )
    paper_schedules = ("async",)

    class Params(StalenessParams):
        alpha: float = Field(default=0.6, gt=0, le=1)
        """Weight of a fresh update."""
        form: Literal["mixing", "delta"] = "mixing"
        """The model becomes (1 - a) model + a (client's model), or moves by a p_i times the client's change."""
        weights: Literal["samples", "uniform"] = "samples"
        """Weight p_i of a client in the form ``delta``: its share of all training samples, or 1/N."""
        proximal: float = Field(default=0.0, ge=0)
        """Strength of the term that keeps local models near the received one (rho)."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self.weight_of_absent = POPULATION_WEIGHTS if params.form == "delta" else ""
        self.uploads = ("model",) if params.form == "mixing" else ("delta",)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The model after the updates are mixed in (or their changes added) in order of arrival."""
        weights = self.params.weights_by_age(updates)
        model = server["model"]
        if self.params.form == "mixing":
            for index, weight in enumerate(weights.tolist()):
                # An update of a client that was drawn m times is mixed in m times.
                mixed = 1.0 - (1.0 - weight) ** int(updates.multiplicity[index])
                model = (1.0 - mixed) * model + mixed * updates.row("model", index)
            return {"model": model}
        shares = population_weights(self.context, updates, self.params.weights)
        return {"model": model + updates.weighted_sum("delta", shares, weights)}


class FedCompass(Method):
    """The aggregation of FedCompass: model + sum of alpha (s + 1)^-a p_i times the clients' changes.

    A version is made from an arrival group plus the updates that arrived too late for their own group, or from a
    client's first update alone. Weights are shares of the whole population and are not normalized over a group.

    With ``momentum`` beta, v = beta v + sum and the model moves by v. With ``normalized``, each change is divided by
    the client's local steps and the sum is multiplied by their p-weighted mean. Neither applies to first updates.

    Under other schedules each version is treated as a group.
    """

    name = "fedcompass"
    title = "FedCompass"
    paper = (
        "Li et al., FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a "
        "Computing Power-Aware Scheduler, ICLR 2024, Algorithms 1 and 3; +M and +N: section 5.2"
    )
    paper_schedules = ("compass",)
    weight_of_absent = POPULATION_WEIGHTS

    class Params(StalenessParams):
        weights: Literal["samples", "uniform"] = "samples"
        """Weight p_i of a client in the population: its share of all training samples, or 1/N."""
        momentum: float = Field(default=0.0, ge=0, lt=1)
        """Server momentum of group updates (FedCompass+M); 0.9 in the paper, 0.5 for its skin images."""
        normalized: bool = False
        """Normalized averaging of group updates (FedCompass+N): every client counts as if it had done the same number
        of steps."""

    def initial_state(self, model: Tensor) -> ServerState:
        """``model`` (P,) and, if it is used, ``momentum`` (P,)."""
        state = {"model": model}
        if self.params.momentum:
            state["momentum"] = model.new_zeros(model.shape)
        return state

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        if not len(updates):
            return server
        shares = population_weights(self.context, updates, self.params.weights)
        discounts = self.params.weights_by_age(updates)
        first_update = updates.attributes.get("group") == 0
        change = updates.weighted_sum("delta", shares, discounts)
        state = dict(server)
        if self.params.normalized and not first_update:
            mean_steps = np.dot(shares, updates.steps) / shares.sum()
            change = updates.weighted_sum("delta", shares, mean_steps * discounts / updates.steps)
        if self.params.momentum and not first_update:
            change = state["momentum"] = self.params.momentum * server["momentum"] + change
        state["model"] = server["model"] + change
        return state


class FedAT(Proximal):
    """Federated learning with asynchronous tiers.

    Inside a tier the clients' models are averaged, as in FedAvg, into the tier's model. The global model is the sum
    over tiers k = 1..M of (updates of tier M + 1 - k) / (updates of all tiers) times tier k's model, where the M tiers
    are those that have reported.

    With one tier, or under a schedule without tiers, it is FedAvg.
    """

    name = "fedat"
    title = "FedAT"
    paper = (
        "Chai et al., FedAT: A High-Performance and Communication-Efficient Federated Learning System with "
        "Asynchronous Tiers, SC 2021, Algorithm 1 and equation 4"
    )
    paper_schedules = ("tiered",)
    uploads = ("model",)

    class Params(WeightedParams):
        cross_tier: Literal["reversed", "uniform"] = "reversed"
        """Weights of the tiers' models in the global model: ``reversed`` gives slow tiers the weights that fast tiers
        would have by their numbers of updates; ``uniform`` gives equal weights."""
        silent_tiers: Literal["skip", "initial"] = "skip"
        """Treatment of tiers that have not yet reported: left out of the global model, or included with the initial
        model (the paper read literally), so that the fastest tier has weight zero until the slowest tier's first
        update."""
        proximal: float = Field(default=0.0, ge=0)
        """Strength of the term that keeps local models near the received one (lambda)."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        if params.silent_tiers == "initial":
            self.weight_of_absent = "counts tiers that have not reported with the initial model"

    def initial_state(self, model: Tensor) -> ServerState:
        """``model`` (P,), the tiers' models (M, P) and their numbers of updates (M,); M = 1 until the first update,
        which brings the number of tiers."""
        import torch

        return {
            "model": model,
            "tiers": model.unsqueeze(0).clone(),
            "tier_updates": torch.zeros(1, dtype=torch.int64),
        }

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        import torch

        if not len(updates):
            return server
        tier = int(updates.attributes.get("tier", 0))
        count = int(updates.attributes.get("tiers", 1))
        models, made = server["tiers"], server["tier_updates"]
        if len(made) < count:
            # The first version: all tiers' models are still the initial one.
            models = models.repeat(count, 1)
            made = torch.zeros(count, dtype=torch.int64, device=made.device)
        models, made = models.clone(), made.clone()
        models[tier] = updates.weighted_sum(
            "model", averaging_weights(updates, self.params.weights)
        )
        made[tier] += 1
        counted = torch.arange(count, device=made.device)
        if self.params.silent_tiers == "skip":
            counted = counted[made > 0]
        weights = torch.zeros(count, dtype=models.dtype, device=made.device)
        if self.params.cross_tier == "reversed":
            weights[counted] = made[counted].flip(0).to(models.dtype) / int(made.sum())
        else:
            weights[counted] = 1 / len(counted)
        model = (weights.to(models.device).unsqueeze(1) * models).sum(0)
        return {"model": model, "tiers": models, "tier_updates": made}


class GradientParams(Parameters):
    """Parameters of methods whose server steps along gradients."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate: factor on the local one."""


class Rennala(FedAvg):
    """The model moves by the mean of all updates of the batch.

    With one local step of SGD per dispatch, that is x - lr / S x the sum of S gradients at x, as in the paper; with
    more, local SGD in place of each gradient. With a batch of one it is asynchronous SGD that ignores stale updates.
    """

    name = "rennala"
    title = "Rennala SGD"
    paper = (
        "Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed "
        "Computation Model, NeurIPS 2023, Methods 4 and 5"
    )
    paper_schedules = ("rennala",)
    Params: ClassVar[type[Parameters]] = GradientParams

    def weights(self, updates: Updates) -> Floats:
        return averaging_weights(updates, "uniform")


class Malenia(Rennala):
    """The model moves by 1/n sum_i 1/B_i x the sum of the B_i updates of client i, so that fast clients count no more.

    With one update of each client it is FedAvg with uniform weights.
    """

    name = "malenia"
    title = "Malenia SGD"
    paper = (
        "Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed "
        "Computation Model, NeurIPS 2023, Method 6"
    )
    paper_schedules = ("malenia",)

    def weights(self, updates: Updates) -> Floats:
        """1 / (n B_i) for each update of client i, (C,)."""
        _, client, counts = np.unique(updates.clients, return_inverse=True, return_counts=True)
        weights: Floats = 1 / (len(counts) * counts[client])
        return weights


class MindFlayer(Rennala):
    """The model moves by the sum of the updates that were done in time, divided by their expected or actual number."""

    name = "mindflayer"
    title = "MindFlayer SGD"
    paper = (
        "Maranjyan, Omar and Richtarik, MindFlayer SGD: Efficient Parallel SGD in the Presence of Heterogeneous and "
        "Random Worker Compute Times, UAI 2025, Algorithm 1"
    )
    paper_schedules = ("mindflayer",)

    class Params(GradientParams):
        expected: float | None = Field(default=None, gt=0)
        """Expected number of updates per version, the sum over clients of trials times the probability that one is done
        in time (B), by which the paper divides; default: the number of updates that were done in time."""

    def weights(self, updates: Updates) -> Floats:
        """1 / B for every update, (C,)."""
        if self.params.expected is None:
            return super().weights(updates)
        weights: Floats = updates.multiplicity / self.params.expected
        return weights


class Ata(Rennala):
    """Clients compute as many gradients as they were assigned tasks, all at the received model; the server averages.

    The model moves by -lr / B x the sum of all B gradients: mini-batch SGD, whichever client computes how many.
    """

    name = "ata"
    title = "ATA"
    paper = (
        "Maranjyan, Saad, Richtarik and Orabona, ATA: Adaptive Task Allocation for Efficient Resource "
        "Management in Distributed Machine Learning, ICML 2025, Algorithm 1"
    )
    paper_schedules = ("ata",)
    needs_plain_sgd = "its clients send the mean of gradients at one model"

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """The step along the mean gradient at the received model."""
        start = cohort.down["model"]
        trained = trainer.run(cohort, start, move=False, collect=("mean_gradient",))
        assert trained.mean_gradient is not None
        # The model has moved only in its buffers.
        step = cohort.learning_rates.unsqueeze(1) * trained.mean_gradient
        return LocalUpdate({"delta": trained.model - start - step}, trained.loss)

    def weights(self, updates: Updates) -> Floats:
        gradients = updates.multiplicity * updates.steps
        shares: Floats = gradients / gradients.sum()
        return shares


class Ringmaster(FedAvg):
    """Every update that the schedule accepts is applied in full, without a discount for its staleness.

    With an unlimited threshold it is asynchronous SGD with constant steps.
    """

    name = "ringmaster"
    title = "Ringmaster ASGD"
    paper = (
        "Maranjyan, Tyurin and Richtarik, Ringmaster ASGD: The First Asynchronous SGD with Optimal Time Complexity, "
        "ICML 2025, Algorithms 4 and 5"
    )
    paper_schedules = ("ringmaster",)
    # Changes are added, not averaged, wherever their clients trained.
    combines_parts = True
    Params: ClassVar[type[Parameters]] = GradientParams

    def weights(self, updates: Updates) -> Floats:
        return updates.multiplicity.astype(np.float64)


class AsyncSgd(Ringmaster):
    """Every update moves the model by the whole change: x - gamma(tau) x gradient for a delay of tau versions.

    With ``staleness: reciprocal`` and its ``delay`` the concurrency, gamma(tau) = gamma min(1, delay /
    tau): the convergence is then independent of the longest delay. Koloskova et al. also allow gamma = 0 above the
    delay, which is ``max_staleness`` of the schedule.
    """

    name = "async_sgd"
    title = "Asynchronous SGD"
    paper = (
        "Koloskova, Stich and Jaggi, Sharper Convergence Guarantees for Asynchronous SGD for Distributed and Federated "
        "Learning, NeurIPS 2022, equation 8; Mishchenko et al., Asynchronous SGD Beats Minibatch SGD Under Arbitrary "
        "Delays, NeurIPS 2022, Algorithm 2"
    )
    paper_schedules = ("async",)

    class Params(GradientParams):
        staleness: Staleness = ConstantStaleness(name="constant")
        """How steps decrease with the delay; ``reciprocal`` is the delay-adaptive rule of the papers."""

    def factors(self, updates: Updates) -> Floats:
        factors: Floats = self.params.staleness.factor(
            updates.staleness.astype(np.float64), updates.version
        )
        return factors


class Ringleader(Method):
    """Every update moves the model by the mean over all clients of their mean updates in this round.

    The table holds for each client the sum G_i and the number b_i of its updates in the round of the schedule; the
    model moves by 1/n sum_i G_i / b_i. So clients with different data count the same, whatever their speed. Under a
    synchronous schedule with full participation it is FedAvg with uniform weights.
    """

    name = "ringleader"
    title = "Ringleader ASGD"
    paper = (
        "Maranjyan and Richtarik, Ringleader ASGD: The First Asynchronous SGD with Optimal Time Complexity under Data "
        "Heterogeneity, ICLR 2026, Algorithm 1"
    )
    paper_schedules = ("ringleader",)
    server_vectors = ("mean",)
    Params = GradientParams

    def memories(self) -> Mapping[str, Memory]:
        """The mean of each client's updates in the round, followed by their number; at the server."""
        return {"table": Memory(self.context.layout.size + 1, keeper="server")}

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Enter the updates into the table, which is emptied first if a round begins, and step."""
        import torch

        if not len(updates):
            return server
        restarts = bool(updates.attributes.get("restart", 1))
        mean = torch.zeros_like(server["mean"]) if restarts else server["mean"].clone()
        entered: set[int] = set()
        for index, client in enumerate(updates.clients.tolist()):
            entry = updates.memory("table", index)
            if restarts and client not in entered:
                entry = entry.new_zeros(entry.shape)
            entered.add(client)
            before, count = entry[:-1], entry[-1:]
            after = before + (updates.row("delta", index) - before) / (count + 1)
            mean += (after - before) / self.context.clients
            updates.remember("table", index, torch.cat([after, count + 1]))
        return {"model": server["model"] + self.params.server_lr * mean, "mean": mean}
