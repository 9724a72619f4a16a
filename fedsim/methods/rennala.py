"""Rennala SGD: the mean of a batch of gradients at one model."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import Updates, averaging_weights
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.component import Parameters


class GradientParams(Parameters):
    """Parameters of methods whose server steps along gradients."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate: factor on the local one."""


class Rennala(FedAvg):
    """The model moves by the mean of all updates of the batch.

    With one local step of SGD per dispatch, that is x - lr / S x the sum of S gradients at x, as in the paper; with
    more, local SGD in place of each gradient. With a batch of one it is asynchronous SGD that ignores stale updates.
    """

    name = "rennala"
    title = "Rennala SGD"
    paper = (
        "Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed "
        "Computation Model, NeurIPS 2023, Methods 4 and 5"
    )
    paper_schedules = ("rennala",)
    Params: ClassVar[type[Parameters]] = GradientParams

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """Equal weights of all updates, (C,)."""
        return averaging_weights(updates, "uniform")
