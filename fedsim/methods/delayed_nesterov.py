"""Asynchronous DiLoCo: Nesterov momentum that is applied after every few updates."""

from __future__ import annotations

from pydantic import Field, model_validator

from fedsim.methods.base import ServerState, Tensor
from fedsim.methods.diloco import DiLoCo, DiLoCoParams


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
    Params = DelayedNesterovParams

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, the momentum, the sum of the changes since its last refresh, and their number."""
        zeros = model.new_zeros(model.shape)
        return {"model": model, "momentum": zeros, "sum": zeros, "count": model.new_zeros(1)}

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
