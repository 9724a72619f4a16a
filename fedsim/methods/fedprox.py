"""FedProx: local training with a proximal term."""

from __future__ import annotations

from pydantic import Field

from fedsim.methods.fedavg import FedAvg, FedAvgParams
from fedsim.methods.local_rules import Proximal


class FedProxParams(FedAvgParams):
    """Parameters of FedProx."""

    mu: float = Field(default=0.01, ge=0)
    """Strength of the term mu / 2 x ||w - w_received||^2 in each local objective."""


class FedProx(Proximal, FedAvg):
    """FedAvg with a proximal term that keeps local models near the received one, and with partial work.

    Partial work is enabled by the scenario (``partial_work: send``). With ``mu: 0`` it is FedAvg. The paper selects
    clients by their number of samples and averages uniformly: use ``weights: uniform`` and that selection to follow it.
    """

    name = "fedprox"
    title = "FedProx"
    paper = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, Algorithm 2 and equation 2"
    Params = FedProxParams

    @property
    def strength(self) -> float:
        """mu."""
        return float(self.params.mu)
