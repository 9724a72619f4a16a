"""MindFlayer SGD: the gradients of the trials that were done in time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import Updates
from fedsim.methods.rennala import GradientParams, Rennala


class MindFlayerParams(GradientParams):
    """Parameters of MindFlayer SGD."""

    expected: float | None = Field(default=None, gt=0)
    """Expected number of updates per version, the sum over clients of trials times the probability that one is done in
    time (B), by which the paper divides; default: the number of updates that were done in time."""


class MindFlayer(Rennala):
    """The model moves by the sum of the updates that were done in time, divided by their expected or actual number."""

    name = "mindflayer"
    title = "MindFlayer SGD"
    paper = (
        "Maranjyan, Omar and Richtarik, MindFlayer SGD: Efficient Parallel SGD in the Presence of Heterogeneous and "
        "Random Worker Compute Times, UAI 2025, Algorithm 1"
    )
    paper_schedules = ("mindflayer",)
    Params = MindFlayerParams

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """1 / B for every update, (C,)."""
        if self.params.expected is None:
            return super().weights(updates)
        weights: npt.NDArray[np.float64] = updates.multiplicity / self.params.expected
        return weights
