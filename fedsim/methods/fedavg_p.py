"""FedAvg-P: partial personalization with an outer step size for each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from fedsim.methods._split import SplitMethod, SplitParams
from fedsim.methods.base import (
    LocalUpdate,
    Memory,
    MethodContext,
    ServerState,
    Tensor,
    Trained,
    Updates,
    averaging_weights,
)


class FedAvgPParams(SplitParams):
    """Parameters of FedAvg-P."""

    eta_u: float = Field(default=1.0, gt=0)
    """Outer step size of the shared part, at the server. The theory requires at least sqrt(m) with m clients per round,
    or more if all participate, and a proportionally smaller gamma_u."""
    eta_v: float = Field(default=1.0, gt=0)
    """Outer step size of the personal part, at the client; the theory requires at least sqrt(N / m)."""
    keep_v_on_drop: bool = False
    """Whether a client that finished its work keeps its new personal part even if the server never uses its update;
    otherwise the part stays as it was."""


class FedAvgP(SplitMethod):
    """Joint local steps on a shared part u and a personal part v_i, with an outer step for each.

    A local step moves both parts along gradients taken at the same point, with step sizes gamma_u and gamma_v. Then
    u moves by eta_u times the mean change over the m clients of the round, and v_i by eta_v times its own change: with
    eta_v above 1 the new v_i lies beyond the trained one. With both outer step sizes 1 it is FedSim; with ``personal:
    none`` it is FedAvg with uniform weights and server learning rate eta_u; with ``personal: all`` every client trains
    alone.
    """

    name = "fedavg_p"
    title = "FedAvg-P"
    paper = (
        "Chen, Cao, Yuan and Wen, Sharper Convergence Guarantees for Federated Learning with Partial Model "
        "Personalization, arXiv:2309.17409, Algorithm 1"
    )
    Params: ClassVar[type[FedAvgPParams]] = FedAvgPParams
    params: FedAvgPParams

    def __init__(self, params: FedAvgPParams, context: MethodContext) -> None:
        super().__init__(params, context)
        # Outer step sizes amplify the rounding errors of small local steps.
        outer_steps = params.eta_u != 1 or params.eta_v != 1
        if outer_steps or self.learning_rate_scale() is not None:
            self.collect = ("change",)
        if params.keep_v_on_drop and not self.only_synchronous:
            self.only_synchronous = (
                "with keep_v_on_drop, a client's dispatches must end in the order they began"
            )

    def memories(self) -> Mapping[str, Memory]:
        """The personal part."""
        return {
            name: replace(memory, kept_when_lost=self.params.keep_v_on_drop)
            for name, memory in super().memories().items()
        }

    def sent_and_kept(self, start: Tensor, trained: Trained) -> LocalUpdate:
        """The change of u, and v_i after its outer step."""
        if trained.change is None:
            return super().sent_and_kept(start, trained)
        split, trainable = self.split, self.split.personal_trainable
        moved = split.personal(trained.change).clone()
        # Running statistics must not be extrapolated.
        moved[:, :trainable] *= self.params.eta_v
        memory = {"personal": moved.add_(split.personal(start))} if split.personal_size else {}
        return LocalUpdate({"delta": split.shared(trained.change)}, trained.loss, memory)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """u moves by eta_u times the mean change; unchanged without contributions."""
        if not len(updates):
            return server
        change = updates.weighted_sum("delta", averaging_weights(updates, "uniform"))
        change[: self.split.shared_trainable] *= self.params.eta_u
        return self.moved(server, change)
