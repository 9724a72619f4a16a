"""FedPer: personal last layers."""

from __future__ import annotations

from typing import Literal

from fedsim.methods.fedsim_method import FedSim, FedSimParams


class FedPerParams(FedSimParams):
    """Parameters of FedPer."""

    weights: Literal["samples", "uniform"] = "samples"
    """Weight of a client in the average: its number of training samples, or equal for all clients."""


class FedPer(FedSim):
    """The layers near the input are shared and averaged by samples; the last layer stays with each client.

    Both are trained together. To keep more layers personal, name them in ``personal``.
    """

    name = "fedper"
    title = "FedPer"
    paper = "Arivazhagan et al., Federated Learning with Personalization Layers, arXiv:1912.00818, Algorithms 1 and 2"
    Params = FedPerParams
