"""Methods whose server remembers updates of clients that are absent: MIFA, FedVARP and CA2FL, ACE and ACED."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from fedsim.methods.base import (
    Memory,
    Method,
    Prologue,
    Rounds,
    ServerState,
    Tensor,
    Updates,
    averaging_weights,
)
from fedsim.methods.fedavg import EVERYONE
from fedsim.methods.gradients import GradientParams
from fedsim.parts.component import Parameters


class MifaParams(Parameters):
    """Parameters of MIFA."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 is the paper's rule."""
    remembers: Literal["gradients", "changes"] = "gradients"
    """The value remembered of each update: the change of the model divided by the learning rate at the time, as in the
    paper, or the change itself, as in other implementations. With a constant learning rate, the two are equivalent."""
    first_round: Literal["sampled", "all"] = "sampled"
    """``all``: before the first round all clients train once, as in the paper; a client that is offline at that time
    counts as zero, like one not seen yet. ``sampled``: the first round is like any other."""


class LatestUpdates(Method):
    """The server remembers the latest update of each client, and their ``mean``.

    Parameters of subclasses have ``server_lr`` and ``remembers``.
    """

    paper_schedules = ("sync",)
    server_vectors = ("mean",)

    def is_fedavg(self, rounds: Rounds) -> str:
        """With full participation."""
        return EVERYONE if rounds.all_clients else ""

    def memories(self) -> Mapping[str, Memory]:
        """The latest update of each client, at the server."""
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
        """Refresh the mean, then step along it."""
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
    Params = MifaParams

    def prologue(self) -> Prologue | None:
        """All clients once, if ``first_round`` is ``all``."""
        if self.params.first_round == "sampled":
            return None
        return Prologue(self.download(), self.upload())


class FedVarpParams(Parameters):
    """Parameters of FedVARP and ACE."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 applies the mean change as it is."""
    remembers: Literal["gradients", "changes"] = "changes"
    """The value remembered of each update: the change of the model, as in the paper, or the change divided by the
    learning rate at the time, so that old and new entries have the same unit while the rate decays. With a constant
    learning rate, the two are equivalent."""


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
    Params = FedVarpParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Step, then remember; unchanged without contributions."""
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
    Params = FedVarpParams


class AcedParams(GradientParams):
    """Parameters of ACED."""

    delay: int = Field(default=10, ge=1)
    """Number of the last arrivals whose updates are used (tau)."""


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
    Params = AcedParams

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
