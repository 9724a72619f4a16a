"""FedPer: personal last layers."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedsim.methods.fedsim_method import FedSim, FedSimParams


class FedPerParams(FedSimParams):
    """Parameters of FedPer."""

    weights: Literal["samples", "uniform"] = "samples"
    """Weight of a client in the average: its number of training samples, or the same for all."""


class FedPer(FedSim):
    """The layers near the input are shared and averaged by samples, the last layers stay with each client.

    Both are trained together. More than the last layer can be made personal by naming the layers in ``personal``.
    """

    name: ClassVar[str] = "fedper"
    title: ClassVar[str] = "FedPer"
    paper: ClassVar[str] = (
        "Arivazhagan et al., Federated Learning with Personalization Layers, arXiv:1912.00818, Algorithms 1 and 2"
    )
    Params = FedPerParams
