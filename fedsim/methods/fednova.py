"""FedNova: normalized averaging."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.methods.aggregation import distance_covered
from fedsim.methods.base import Updates
from fedsim.methods.fedavg import FedAvg


class FedNova(FedAvg):
    """Clients' changes are divided by the distance that their steps cover along a constant gradient, then averaged.

    With weights p_i, and a_i the sum of the coefficients with which a client's gradients enter its change (its number
    of steps for plain SGD), the model moves by (sum p_j a_j) x sum p_i change_i / a_i. If all clients do the same
    number of steps it is FedAvg.
    """

    name = "fednova"
    title = "FedNova"
    paper = (
        "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, "
        "NeurIPS 2020, equations 4 and 6 and section 4"
    )
    needs_sgd = "the distance that local steps cover along a gradient is known only for SGD"

    def factors(self, updates: Updates) -> npt.NDArray[np.float64]:
        """(sum p_j a_j) / a_i, (C,)."""
        factors = super().factors(updates)
        lengths = distance_covered(self.context, updates.steps)
        if (lengths == lengths[0]).all():
            # They cancel; omitting them keeps rounding from making FedNova differ from FedAvg.
            return factors
        return float((self.weights(updates) * factors) @ lengths) * factors / lengths
