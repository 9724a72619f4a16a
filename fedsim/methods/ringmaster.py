"""Ringmaster ASGD: asynchronous SGD without gradients that are too old."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.methods.async_sgd import AsyncSgd
from fedsim.methods.base import Updates
from fedsim.methods.rennala import GradientParams


class Ringmaster(AsyncSgd):
    """Every update that the schedule accepts is applied in full, without a discount for its staleness.

    With an unlimited threshold it is asynchronous SGD with constant steps.
    """

    name = "ringmaster"
    title = "Ringmaster ASGD"
    paper = (
        "Maranjyan, Tyurin and Richtarik, Ringmaster ASGD: The First Asynchronous SGD with Optimal Time Complexity, "
        "ICML 2025, Algorithms 4 and 5"
    )
    paper_schedules = ("ringmaster",)
    Params = GradientParams

    def factors(self, updates: Updates) -> npt.NDArray[np.float64]:
        """No discounts, (C,)."""
        return np.ones(len(updates))
