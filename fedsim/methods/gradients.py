"""Methods whose server steps along gradients, or changes of local SGD in their place, one by one or in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedsim.methods.asynchronous import ConstantStaleness, Staleness
from fedsim.methods.base import (
    Cohort,
    FloatArray,
    LocalUpdate,
    Memory,
    Method,
    ServerState,
    Trainer,
    Updates,
    averaging_weights,
)
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.component import Parameters


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

    def weights(self, updates: Updates) -> FloatArray:
        """Equal weights of all updates, (C,)."""
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

    def weights(self, updates: Updates) -> FloatArray:
        """1 / (n B_i) for each update of client i, (C,)."""
        _, client, counts = np.unique(updates.clients, return_inverse=True, return_counts=True)
        weights: FloatArray = 1 / (len(counts) * counts[client])
        return weights


class MindFlayerParams(GradientParams):
    """Parameters of MindFlayer SGD."""

    expected: float | None = Field(default=None, gt=0)
    """Expected number of updates per version, the sum over clients of trials times the probability that one is done in
    time (B), by which the paper divides; default: the number of updates that were done in time."""


class MindFlayer(Rennala):
    """The model moves by the sum of the updates that were done in time, divided by their expected or actual number."""

    name = "mindflayer"
    title = "MindFlayer SGD"
    paper = (
        "Maranjyan, Omar and Richtarik, MindFlayer SGD: Efficient Parallel SGD in the Presence of Heterogeneous and "
        "Random Worker Compute Times, UAI 2025, Algorithm 1"
    )
    paper_schedules = ("mindflayer",)
    Params = MindFlayerParams

    def weights(self, updates: Updates) -> FloatArray:
        """1 / B for every update, (C,)."""
        if self.params.expected is None:
            return super().weights(updates)
        weights: FloatArray = updates.multiplicity / self.params.expected
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

    def weights(self, updates: Updates) -> FloatArray:
        """Each client's share of the gradients, (C,)."""
        gradients = updates.multiplicity * updates.steps
        shares: FloatArray = gradients / gradients.sum()
        return shares


class AsyncSgdParams(GradientParams):
    """Parameters of asynchronous SGD."""

    staleness: Staleness = ConstantStaleness(name="constant")
    """How steps decrease with the delay; ``reciprocal`` is the delay-adaptive rule of the papers."""


class AsyncSgd(FedAvg):
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
    # Changes are added, not averaged, wherever their clients trained.
    combines_parts = True
    Params: ClassVar[type[Parameters]] = AsyncSgdParams

    def weights(self, updates: Updates) -> FloatArray:
        """The whole change of every update, (C,)."""
        return updates.multiplicity.astype(np.float64)

    def factors(self, updates: Updates) -> FloatArray:
        """The factors of the delays, (C,)."""
        factors: FloatArray = self.params.staleness.factor(
            updates.staleness.astype(np.float64), updates.version
        )
        return factors


class Ringmaster(AsyncSgd):
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
    Params = GradientParams

    def factors(self, updates: Updates) -> FloatArray:
        """No discounts, (C,)."""
        return np.ones(len(updates))


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
