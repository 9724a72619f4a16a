"""FedSUM-CR: FedSUM with a single vector per download; clients recover the server's direction from two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fedsim.methods.base import Cohort, Memory, MethodContext, ServerState, Tensor, Vector
from fedsim.methods.uplink_merge import PAPER, UplinkMerge, UplinkMergeParams


class FedSumCrParams(UplinkMergeParams):
    """Parameters of FedSUM-CR."""

    correction: Literal["literal", "lr_sum"] = "literal"
    """How the direction is recovered from the difference of two models. ``literal`` divides by (t - a_i) times the
    current learning rate (equation 11), which is exact only for a constant rate; ``lr_sum`` divides by the sum of the
    rates that the server has used since, which it sends as one more number. With a constant rate both are equal."""
    bootstrap: Literal["shared_seed", "first_download"] = "shared_seed"
    """How a client obtains the initial model when it first participates: from a shared seed, at no cost, or as a second
    model sent with its first dispatch. Only the bytes differ."""


class FedSumCr(UplinkMerge):
    """FedSUM whose clients recover the server's direction from the model they received last.

    Client i keeps the model z_i that it received when it last participated, and its version a_i. Its correction is
    y_i = N / (eta_g eta_l K) x (z_i - x) / (t - a_i) - h_i, the mean of the server's directions since then minus h_i.
    Clients that participated in the previous round have the correction of FedSUM.

    A client that receives the same version twice (under an asynchronous schedule) has nothing to recover: y_i = -h_i.
    """

    name = "fedsum_cr"
    title = "FedSUM-CR"
    paper = f"{PAPER}, Algorithm 3 and equation 11"
    Params = FedSumCrParams

    def __init__(self, params: FedSumCrParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self._sums = params.correction == "lr_sum"

    def download(self) -> Sequence[Vector]:
        """x; its version is part of every dispatch."""
        model = Vector("model", self.context.layout.size)
        return (model, Vector("rate_sum", 1)) if self._sums else (model,)

    def first_download(self) -> Sequence[Vector]:
        """The initial model, unless it is known from a shared seed."""
        if self.params.bootstrap == "shared_seed":
            return ()
        return (Vector("model", self.context.layout.size),)

    def initial_state(self, model: Tensor) -> ServerState:
        """x, y = 0 and, if needed, the sum of the local learning rates of all server steps."""
        import torch

        state = dict(super().initial_state(model))
        if self._sums:
            state["rate_sum"] = torch.zeros(1, dtype=torch.float64, device=model.device)
        return state

    def memories(self) -> Mapping[str, Memory]:
        """h_i, z_i, a_i and, if needed, the sum of rates at a_i."""
        import torch

        memories = {
            **super().memories(),
            "received": Memory(self.context.layout.size, lambda model: model, follows={}),
            "version": Memory(1, torch.tensor([-1]), dtype=torch.int64, follows={}),
        }
        if self._sums:
            # There is no step before version 0; it counts with the rate of the first step.
            before = -self.context.learning_rate(0, 0.0)
            memories["rate_sum"] = Memory(
                1, torch.tensor([before], dtype=torch.float64), dtype=torch.float64, follows={}
            )
        return memories

    def correction(self, cohort: Cohort) -> Tensor:
        """y_i, which contains -h_i."""
        model = cohort.down["model"]
        versions = cohort.column(cohort.versions, cohort.memory["version"])
        if self._sums:
            rates = (cohort.down["rate_sum"] - cohort.memory["rate_sum"]).to(model.dtype)
        else:
            rates = cohort.learning_rates.unsqueeze(1) * (versions - cohort.memory["version"])
        # The same version: the difference is zero, whatever the divisor.
        rates = rates.masked_fill(rates == 0, 1)
        scale = self.context.clients / (self.params.server_lr * self.steps * rates)
        recovered: Tensor = scale * (cohort.memory["received"] - model)
        return recovered - cohort.memory["gradient"]

    def remember(self, cohort: Cohort) -> Mapping[str, Tensor]:
        """The received model and its version."""
        model = cohort.down["model"]
        versions = cohort.column(cohort.versions, cohort.memory["version"])
        memory = {"received": model, "version": versions}
        return {**memory, "rate_sum": cohort.down["rate_sum"]} if self._sums else memory

    def advance(self, server: ServerState, rate: float) -> Mapping[str, Tensor]:
        """The sum of rates, including this step."""
        return {"rate_sum": server["rate_sum"] + rate} if self._sums else {}
