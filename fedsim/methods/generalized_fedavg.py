"""Generalized FedAvg: the sum of a window's updates is amplified at the end of the window."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsim.methods.base import (
    Method,
    MethodContext,
    ServerState,
    Tensor,
    Updates,
    WeightedParams,
    averaging_weights,
)
from fedsim.units import Duration, to_ns


class GeneralizedFedAvgParams(WeightedParams):
    """Parameters of generalized FedAvg."""

    weights: Literal["samples", "uniform"] = "uniform"
    """Weight of a client's update: equal for all clients, as in the paper, or the client's number of training
    samples."""
    amplification: float = Field(default=10.0, gt=0)
    """eta: a window moves the model by this multiple of the sum of its updates. 1 is FedAvg; values below 1 reduce the
    move."""
    every_rounds: int | None = Field(default=None, ge=1)
    """P: server updates in a window. 1 is FedAvg with server learning rate ``amplification``."""
    every: Duration | Literal["cycle"] = "cycle"
    """Length of a window in simulated time, unless ``every_rounds`` is given; the first update at or after the end of
    the window is amplified. ``cycle`` is one availability cycle of the devices."""
    empty_rounds: Literal["skip", "count"] = "skip"
    """Whether a round without contributions counts toward ``every_rounds`` (under a schedule that closes such rounds
    with an update, ``min_updates: 0``)."""
    warm_up: int = Field(default=0, ge=0)
    """Server updates before the first window starts; they are not amplified."""
    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate of every round, equivalent to weights that sum to this number instead of 1 (footnote 1)."""


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
    Params = GeneralizedFedAvgParams

    def __init__(self, params: GeneralizedFedAvgParams, context: MethodContext) -> None:
        super().__init__(params, context)
        length_s = context.availability_cycle_s if params.every == "cycle" else params.every
        self._length_ns = max(1, to_ns(length_s))

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
        now_ns = to_ns(updates.time_s)
        if made <= self.params.warm_up:
            window_sum, begun_ns = window_sum.new_zeros(window_sum.shape), now_ns
        elif self._ends(made - begun, now_ns - begun_ns):
            if self.params.amplification != 1:
                model = model + (self.params.amplification - 1) * window_sum
            window_sum, begun = window_sum.new_zeros(window_sum.shape), made
            begun_ns += (now_ns - begun_ns) // self._length_ns * self._length_ns
        counters = torch.tensor([made, begun, begun_ns])
        return {"model": model, "window_sum": window_sum, "counters": counters}

    def _ends(self, rounds: int, duration_ns: int) -> bool:
        """Whether a window of this many updates and nanoseconds is complete."""
        if self.params.every_rounds is not None:
            return rounds >= int(self.params.every_rounds)
        return duration_ns >= self._length_ns
