"""LG-FedAvg: personal representations with a shared head."""

from __future__ import annotations

from typing import Literal

from fedsim.methods._split import PersonalPart
from fedsim.methods.fedsim_method import FedSim, FedSimParams


class LgFedAvgParams(FedSimParams):
    """Parameters of LG-FedAvg."""

    personal: PersonalPart = "body"
    """The part that stays with each client: body (all but the last layer), head, none, all, or a list of names of
    tensors or modules of the model, with wildcards."""
    weights: Literal["samples", "uniform"] = "samples"
    """Weight of a client in the average: its number of training samples, or equal for all clients."""


class LgFedAvg(FedSim):
    """Each client learns its own representation; the head on top of it is shared.

    Both are trained together; the server averages the heads by samples. The authors' experiments start from a model
    trained with FedAvg.
    """

    name = "lg_fedavg"
    title = "LG-FedAvg"
    paper = (
        "Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global Representations, "
        "arXiv:2001.01523, Algorithm 1 (without the optional adversarial term)"
    )
    Params = LgFedAvgParams
