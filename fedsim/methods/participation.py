"""Methods for clients that participate at different frequencies; some remember the updates of absent ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field

from fedsim.methods.asynchronous import GradientParams
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    Prologue,
    Rounds,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    WeightedParams,
    averaging_weights,
)
from fedsim.methods.fedavg import EVERYONE, FedAvg
from fedsim.parts.component import Parameters
from fedsim.units import Duration, to_ns
from fedsim.vocabulary.arrays import Floats


class FedAu(FedAvg):
    """Each change is weighted by the client's mean interval between participations, an estimate of 1 / p_i.

    The model moves by (1 / N) sum over participants of omega_i x change_i, where omega_i is the mean length of the
    client's intervals that were closed before this server update (1 if there is none). An interval closes when the
    client participates (its length is one plus the number of missed updates) or when it reaches the cutoff. Intervals
    are counted in server updates. With full participation it is FedAvg with uniform weights.
    """

    name = "fedau"
    title = "FedAU"
    paper = (
        "Wang and Ji, A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging, "
        "ICLR 2024, Algorithms 1 and 2"
    )

    class Params(Parameters):
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate."""
        cutoff: int | None = Field(default=50, ge=1)
        """K: an interval between two participations is closed when it reaches this many server updates, which bounds
        the weights. Unbounded when null; with 1 all weights are 1."""

    def is_fedavg(self, rounds: Rounds) -> str:
        return EVERYONE if rounds.all_clients else ""

    def memories(self) -> Mapping[str, Memory]:
        """Integers at the server: each client's last participation, the number of its intervals, and their sum."""
        import torch

        return {"intervals": Memory(3, torch.tensor([-1, 0, 0]), "server", torch.int64)}

    def weights(self, updates: Updates) -> Floats:
        """omega_i / N, (C,); notes that the contributing clients participate."""
        import torch

        now = updates.version - 1
        weights = []
        for index in range(len(updates)):
            last, count, total = updates.memory("intervals", index).tolist()
            # Since the last participation, only intervals at the cutoff have been closed.
            closed, length = 0, now - last
            if self.params.cutoff is not None:
                closed = (length - 1) // self.params.cutoff
                length -= closed * self.params.cutoff
                total += closed * self.params.cutoff
            count += closed
            weights.append(updates.multiplicity[index] * (total / count if count else 1.0))
            row = torch.tensor([now, count + 1, total + length])
            updates.remember("intervals", index, row.to(self.context.device))
        return np.array(weights) / self.context.clients


class FedAwe(Method):
    """Adaptive innovation echoing and implicit gossiping.

    A client starts from the result of the last aggregation that used its update, not from the newest model. Its change
    is multiplied by the number of server updates since then (1 if it contributed to the previous one):
    w_i + eta_g (t - last_i) change_i. The mean of these over the participants is the new model, which only the
    participants receive. With full participation it is FedAvg with uniform weights and server learning rate eta_g.

    The paper sends the new model to the participants after the aggregation. Here it is sent with the client's next
    dispatch: the same model and the same bytes.
    """

    name = "fedawe"
    title = "FedAWE"
    paper = (
        "Xiang et al., Efficient Federated Learning against Heterogeneous and Non-stationary Client Unavailability, "
        "NeurIPS 2024, Algorithm 1"
    )
    paper_schedules = ("sync",)

    class Params(Parameters):
        server_lr: float = Field(default=1.0, gt=0)
        """Global learning rate eta_g."""
        clip_norm: float | None = Field(default=None, gt=0)
        """Largest Euclidean norm of the mean amplified change (0.5 in the authors' code); unlimited when null, as in
        the paper."""
        evaluated: Literal["newest", "client_average"] = "newest"
        """The model to evaluate: the newest one, or the mean of all clients' own models, as in the authors' code."""

    # Changes, amplified by the clients, which know when they last participated.
    uploads = ("amplified",)
    only_synchronous = "clients wait for the model that contains their update"
    needs_exact = MappingProxyType({"model": "the server keeps the model of each client"})

    def is_fedavg(self, rounds: Rounds) -> str:
        return EVERYONE if rounds.all_clients and self.params.clip_norm is None else ""

    def memories(self) -> Mapping[str, Memory]:
        """Each client's own model and its version (0 before the client participates)."""
        import torch

        return {
            "own": Memory(self.context.layout.size, lambda model: model, "shared"),
            "version": Memory(1, keeper="shared", dtype=torch.int64),
        }

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        start = cohort.memory["own"]
        trained = trainer.run(cohort, start)
        amplified = trained.model.sub_(start)
        trainable = self.context.layout.trainable
        missed = cohort.column(cohort.versions, amplified) - cohort.memory["version"]
        amplified[:, :trainable] *= self.params.server_lr * (missed + 1)
        return LocalUpdate({"amplified": amplified}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The participants' mean, which becomes each participant's model; unchanged without contributions."""
        import torch

        if not len(updates):
            return server
        trainable = self.context.layout.trainable
        weights = averaging_weights(updates, "uniform")
        mean = server["model"].new_zeros(server["model"].shape)
        for index, weight in enumerate(weights.tolist()):
            mean.add_(updates.memory("own", index), alpha=weight)
        change = updates.weighted_sum("amplified", weights)
        if self.params.clip_norm is not None:
            norm = torch.linalg.vector_norm(change[:trainable])
            change[:trainable] *= (self.params.clip_norm / norm).clamp_(max=1)
        newest = model = mean + change
        version = torch.tensor([updates.version], device=newest.device)
        if self.params.evaluated == "client_average":
            model = server["model"].clone()
            for index in range(len(updates)):
                moved = newest - updates.memory("own", index)
                model.add_(moved, alpha=1 / self.context.clients)
        for index in range(len(updates)):
            updates.remember("own", index, newest)
            updates.remember("version", index, version)
        return {"model": model}


class GeneralizedFedAvg(Method):
    """FedAvg whose updates are summed over a window and amplified at its end.

    Within a window the model moves by the mean change of each round, and u is the sum of these changes. The last round
    of the window adds (eta - 1) u, so that the window moves the model by eta u in total; an incomplete window is not
    amplified. If every client has the same mean weight within a window, small local learning rates (little drift) do
    not slow down training.

    With ``amplification`` 1, or windows longer than the run, it is FedAvg with the same ``weights`` bit for bit (the
    defaults differ: uniform here, samples there). With one client it is Lookahead.
    Buffers of the model are averaged, not amplified.
    """

    name = "generalized_fedavg"
    title = "Generalized FedAvg"
    paper = (
        "Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client Participation, NeurIPS 2022, "
        "Algorithm 1"
    )
    paper_schedules = ("sync",)

    class Params(WeightedParams):
        weights: Literal["samples", "uniform"] = "uniform"
        """Weight of a client's update: equal for all clients, as in the paper, or the client's number of training
        samples."""
        amplification: float = Field(default=10.0, gt=0)
        """eta: a window moves the model by this multiple of the sum of its updates. 1 is FedAvg; values below 1 reduce
        the move."""
        every_rounds: int | None = Field(default=None, ge=1)
        """P: server updates in a window. 1 is FedAvg with server learning rate ``amplification``."""
        every: Duration | Literal["cycle"] = "cycle"
        """Length of a window in simulated time, unless ``every_rounds`` is given; the first update at or after the end
        of the window is amplified. ``cycle`` is one availability cycle of the devices."""
        empty_rounds: Literal["skip", "count"] = "skip"
        """Whether a round without contributions counts toward ``every_rounds`` (under a schedule that closes such
        rounds with an update, ``min_updates: 0``)."""
        warm_up: int = Field(default=0, ge=0)
        """Server updates before the first window starts; they are not amplified."""
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate of every round, equivalent to weights that sum to this number instead of 1 (footnote
        1)."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        length_s = context.availability_cycle_s if params.every == "cycle" else params.every
        self._length_ns = max(1, to_ns(length_s))

    def is_fedavg(self, rounds: Rounds) -> str:
        return "amplification is 1" if self.params.amplification == 1 else ""

    def initial_state(self, model: Tensor) -> ServerState:
        """Model, u, and counters: updates made, start of the current window in updates and in nanoseconds."""
        import torch

        return {
            "model": model,
            "window_sum": model.new_zeros(model.shape),
            "counters": torch.tensor([0, self.params.warm_up, 0]),
        }

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Algorithm 1, lines 9 to 14; without contributions, only the window may end."""
        import torch

        if not len(updates) and self.params.empty_rounds == "skip":
            return server
        made, begun, begun_ns = server["counters"].tolist()
        model, window_sum = server["model"], server["window_sum"]
        if len(updates):
            weights = averaging_weights(updates, self.params.weights)
            change = self.params.server_lr * updates.weighted_sum("delta", weights)
            model, window_sum = model + change, window_sum + change
        made += 1
        now_ns, rounds = to_ns(updates.time_s), self.params.every_rounds
        is_last = now_ns - begun_ns >= self._length_ns if rounds is None else made - begun >= rounds
        if made <= self.params.warm_up:
            window_sum, begun_ns = window_sum.new_zeros(window_sum.shape), now_ns
        elif is_last:
            if self.params.amplification != 1:
                model = model + (self.params.amplification - 1) * window_sum
            window_sum, begun = window_sum.new_zeros(window_sum.shape), made
            begun_ns += (now_ns - begun_ns) // self._length_ns * self._length_ns
        counters = torch.tensor([made, begun, begun_ns])
        return {"model": model, "window_sum": window_sum, "counters": counters}


class Wait(FedAvg):
    """One update per window, from all clients and one model version: each works once, when it first comes online.

    The ``window`` schedule defines how long to wait, and for which clients. With mini-batches it is the paper's
    wait-minibatch; if ``training.batch_size`` is at least every client's number of samples, it is wait-full. If all
    clients are always online it is FedAvg with full participation.
    """

    name = "wait"
    title = "Wait for all"
    paper = (
        "Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client Participation, NeurIPS 2022, "
        "section 5 and appendix D.1"
    )
    paper_schedules = ("window",)

    class Params(WeightedParams):
        weights: Literal["samples", "uniform"] = "uniform"
        """Weight of a client's update: equal for all clients, as in the paper, or the client's number of training
        samples."""
        local: Literal["steps", "frozen"] = "steps"
        """Work of each client: local steps (appendix D.1), or only gradients at the received model, whose mean gives
        one step (section 5)."""
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate."""
        warm_up: int = Field(default=0, ge=0)
        """Server updates before the first window, for which clients take local steps regardless of ``local``; set the
        schedule's ``warm_up`` to the same number."""

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        if self.params.local == "steps" or int(cohort.versions[0]) < self.params.warm_up:
            return super().local_update(cohort, trainer)
        start = cohort.down["model"]
        trained = trainer.run(cohort, start, move=False, collect=("mean_gradient",))
        assert trained.mean_gradient is not None
        delta = trained.model.sub_(start)
        delta.addcmul_(trained.mean_gradient, cohort.learning_rates.unsqueeze(1), value=-1)
        return LocalUpdate({"delta": delta}, trained.loss)


class LatestUpdates(Method):
    """The server remembers the latest update of each client, and their ``mean``.

    Parameters of subclasses have ``server_lr`` and ``remembers``.
    """

    paper_schedules = ("sync",)
    server_vectors = ("mean",)

    def is_fedavg(self, rounds: Rounds) -> str:
        return EVERYONE if rounds.all_clients else ""

    def memories(self) -> Mapping[str, Memory]:
        return {"latest": Memory(self.context.layout.trainable, keeper="server")}

    def refreshed(self, updates: Updates) -> Iterator[Tensor]:
        """The difference of each update from its client's remembered one, which it replaces; (trainable,) each."""
        for index in range(len(updates)):
            latest = updates.row("delta", index)[: self.context.layout.trainable]
            before = updates.memory("latest", index)
            if self.params.remembers == "gradients":
                # At rate 0, where a decay may end, a client does not move and shows no gradient.
                rate = updates.learning_rates[index]
                latest = latest / rate if rate else before
            fresh = latest - before
            updates.remember("latest", index, latest)
            yield fresh

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        mean = server["mean"].clone()
        for fresh in self.refreshed(updates):
            mean[: len(fresh)].add_(fresh, alpha=1 / self.context.clients)
        return self.stepped(server, updates, mean, mean)

    def stepped(
        self, server: ServerState, updates: Updates, change: Tensor, mean: Tensor
    ) -> ServerState:
        """The state after a step along ``change`` (P,), with the new mean (P,)."""
        step = self.params.server_lr
        if self.params.remembers == "gradients":
            step *= self.context.local_rate(updates)
        return {"model": server["model"] + step * change, "mean": mean}


class Mifa(LatestUpdates):
    """The model moves by the mean, over all clients, of the latest update of each.

    Updates of absent clients are used again in every round; those of clients never seen are zero. With full
    participation it is FedAvg with uniform weights. Under a schedule that updates the model after empty rounds, the
    model also moves without contributions.
    """

    name = "mifa"
    title = "MIFA"
    paper = (
        "Gu et al., Fast Federated Learning in the Presence of Arbitrary Device Unavailability, NeurIPS 2021, "
        "Algorithm 1"
    )

    class Params(Parameters):
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate; 1 is the paper's rule."""
        remembers: Literal["gradients", "changes"] = "gradients"
        """The value remembered of each update: the change of the model divided by the learning rate at the time, as in
        the paper, or the change itself, as in other implementations. With a constant learning rate, the two are
        equivalent."""
        first_round: Literal["sampled", "all"] = "sampled"
        """``all``: before the first round all clients train once, as in the paper; a client that is offline at that
        time counts as zero, like one not seen yet. ``sampled``: the first round is like any other."""

    def prologue(self) -> Prologue | None:
        if self.params.first_round == "sampled":
            return None
        return Prologue(self.download(), self.upload())


class FedVarp(LatestUpdates):
    """MIFA with weight 1 / |S| for fresh updates, so that the model's change is unbiased under uniform participation.

    The model moves by mean over participants of (change - remembered change) + mean over all clients of the remembered
    changes; then the participants' changes are remembered. With full participation it is FedAvg with uniform weights.
    """

    name = "fedvarp"
    title = "FedVARP"
    paper = (
        "Jhunjhunwala et al., FedVARP: Tackling the Variance Due to Partial Client Participation in Federated "
        "Learning, UAI 2022, Algorithm 2"
    )

    class Params(Parameters):
        server_lr: float = Field(default=1.0, gt=0)
        """Server learning rate; 1 applies the mean change as it is."""
        remembers: Literal["gradients", "changes"] = "changes"
        """The value remembered of each update: the change of the model, as in the paper, or the change divided by the
        learning rate at the time, so that old and new entries have the same unit while the rate decays. With a constant
        learning rate, the two are equivalent."""

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        if not len(updates):
            return server
        change, mean = server["mean"].clone(), server["mean"].clone()
        weights = averaging_weights(updates, "uniform").tolist()
        for weight, fresh in zip(weights, self.refreshed(updates), strict=True):
            change[: len(fresh)].add_(fresh, alpha=weight)
            mean[: len(fresh)].add_(fresh, alpha=1 / self.context.clients)
        return self.stepped(server, updates, change, mean)


class Ca2fl(FedVarp):
    """The model moves by the mean over the buffer of (change - cached change) + mean over all clients of the cache.

    Then the changes of the buffer are cached. The rule is FedVARP's, applied to buffers of stale updates instead of
    rounds; while the cache is empty, it is FedBuff without staleness weights. Of two updates of one client in a buffer,
    the second is calibrated with the first.
    """

    name = "ca2fl"
    title = "CA2FL"
    paper = (
        "Wang et al., Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update "
        "Calibration, ICLR 2024, Algorithm 2"
    )
    paper_schedules = ("buffered",)


class Ace(LatestUpdates):
    """Every arriving update replaces its client's cached one, and the model moves by the mean of the cache.

    The rule is MIFA's, applied to every arrival. All clients are engaged in every step, so that fast ones do not bias
    the model. Cached updates are zero at first; the paper's first round waits for all clients.
    """

    name = "ace"
    title = "ACE"
    paper = (
        "Chang et al., Mitigating Participation Imbalance Bias in Asynchronous Federated Learning, "
        "arXiv:2511.19066, ACE"
    )
    paper_schedules = ("async",)
    Params = FedVarp.Params


class Aced(Method):
    """Every arriving update moves the model by the mean of the latest updates of the clients seen lately.

    Those are the clients of the last ``delay`` arrivals. With a delay of one it is asynchronous SGD; if every client
    is among them, it is ACE.
    """

    name = "aced"
    title = "ACED"
    paper = (
        "Chang et al., Mitigating Participation Imbalance Bias in Asynchronous Federated Learning, "
        "arXiv:2511.19066, ACED"
    )
    paper_schedules = ("async",)
    needs_whole_model = "its server averages the latest updates of clients as they are"

    class Params(GradientParams):
        delay: int = Field(default=10, ge=1)
        """Number of the last arrivals whose updates are used (tau)."""

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, and the updates of the last arrivals, latest last, with their clients (-1 if there is none)."""
        import torch

        delay = self.params.delay
        return {
            "model": model,
            "recent": model.new_zeros((delay, len(model))),
            "recent_clients": torch.full((delay,), -1, device=model.device),
        }

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Enter the updates one by one, and step along the mean after the last one."""
        import torch

        if not len(updates):
            return server
        rows = [updates.row("delta", index) for index in range(len(updates))]
        delay = self.params.delay
        recent = torch.cat([server["recent"], torch.stack(rows)])[-delay:]
        arrived = torch.as_tensor(updates.clients, device=recent.device)
        clients = torch.cat([server["recent_clients"], arrived])[-delay:]
        # The last row of each client.
        latest = {client: row for row, client in enumerate(clients.tolist()) if client >= 0}
        mean = recent[sorted(latest.values())].mean(dim=0)
        return {
            "model": server["model"] + self.params.server_lr * mean,
            "recent": recent,
            "recent_clients": clients,
        }
