"""Wait for all: the baselines of generalized FedAvg."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsim.methods.base import Cohort, LocalUpdate, Trainer, WeightedParams
from fedsim.methods.fedavg import FedAvg


class WaitParams(WeightedParams):
    """Parameters of waiting for all."""

    weights: Literal["samples", "uniform"] = "uniform"
    """Weight of a client's update: equal for all clients, as in the paper, or the client's number of training
    samples."""
    local: Literal["steps", "frozen"] = "steps"
    """Work of each client: local steps (appendix D.1), or only gradients at the received model, whose mean gives one
    step (section 5)."""
    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""
    warm_up: int = Field(default=0, ge=0)
    """Server updates before the first window, for which clients take local steps regardless of ``local``; set the
    schedule's ``warm_up`` to the same number."""


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
    Params = WaitParams

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Local steps, or one step along the mean of the gradients at the received model."""
        if self.params.local == "steps" or int(cohort.versions[0]) < self.params.warm_up:
            return super().local_update(cohort, trainer)
        start = cohort.down["model"]
        trained = trainer.run(cohort, start, move=False, collect=("mean_gradient",))
        assert trained.mean_gradient is not None
        delta = trained.model.sub_(start)
        delta.addcmul_(trained.mean_gradient, cohort.learning_rates.unsqueeze(1), value=-1)
        return LocalUpdate({"delta": delta}, trained.loss)
