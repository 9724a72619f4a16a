"""Rescaled partial updates: the baseline of FedLGA without its approximation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.methods.base import Updates
from fedsim.methods.fedavg import FedAvg


class Rescale(FedAvg):
    """A client that did S of its S_full assigned steps counts as if it had continued in the same direction.

    Its change is multiplied by S_full / S; then the changes are averaged. If all clients do all steps it is FedAvg.
    """

    name = "rescale"
    title = "Rescaled partial work"
    paper = (
        "Baseline for Li et al., FedLGA: Toward System-Heterogeneity of Federated Learning via Local Gradient "
        "Approximation, IEEE Transactions on Cybernetics 54(1), 2024"
    )

    def factors(self, updates: Updates) -> npt.NDArray[np.float64]:
        """S_full / S, (C,)."""
        return super().factors(updates) * (updates.steps_assigned / updates.steps)
