"""FedProx: local training with a proximal term."""

from __future__ import annotations

from pydantic import Field

from fedsim.methods.base import Cohort, LocalUpdate, Trainer
from fedsim.methods.fedavg import FedAvg, FedAvgParams
from fedsim.methods.local_rules import PROXIMAL_OPERATIONS, proximal_rule


class FedProxParams(FedAvgParams):
    """Parameters of FedProx."""

    mu: float = Field(default=0.01, ge=0)
    """Strength of the term mu / 2 x ||w - w_received||^2 in each local objective."""


class FedProx(FedAvg):
    """FedAvg with a proximal term that keeps local models near the received one, and with partial work.

    Partial work is enabled by the scenario (``partial_work: send``). With ``mu: 0`` it is FedAvg. The paper selects
    clients by their number of samples and averages uniformly: use ``weights: uniform`` and that selection to follow it.
    """

    name = "fedprox"
    title = "FedProx"
    paper = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, Algorithm 2 and equation 2"
    Params = FedProxParams

    def vector_operations(self) -> float:
        """The proximal term."""
        return PROXIMAL_OPERATIONS if self.params.mu else 0.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Local training with the proximal term, if there is one."""
        start = cohort.down["model"]
        trained = trainer.run(cohort, start, rule=proximal_rule(start, self.params.mu))
        return LocalUpdate({"delta": trained.model.sub_(start)}, trained.loss)
