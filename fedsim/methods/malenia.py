"""Malenia SGD: the mean over clients of each client's mean gradient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.methods.base import Updates
from fedsim.methods.rennala import Rennala


class Malenia(Rennala):
    """The model moves by 1/n sum_i 1/B_i x the sum of the B_i updates of client i, so that fast clients count no more.

    With one update of each client it is FedAvg with uniform weights.
    """

    name = "malenia"
    title = "Malenia SGD"
    paper = (
        "Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed "
        "Computation Model, NeurIPS 2023, Method 6"
    )
    paper_schedules = ("malenia",)

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """1 / (n B_i) for each update of client i, (C,)."""
        _, client, counts = np.unique(updates.clients, return_inverse=True, return_counts=True)
        weights: npt.NDArray[np.float64] = 1 / (len(counts) * counts[client])
        return weights
