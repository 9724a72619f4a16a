"""FedCompass: staleness-weighted aggregation of arrival groups; with momentum (+M) and normalized averaging (+N)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fedsim.methods.base import Method, ServerState, Tensor, Updates
from fedsim.methods.staleness import POPULATION_WEIGHTS, StalenessParams, population_weights


class FedCompassParams(StalenessParams):
    """Parameters of FedCompass."""

    weights: Literal["samples", "uniform"] = "samples"
    """Weight p_i of a client in the population: its share of all training samples, or 1/N."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Server momentum of group updates (FedCompass+M); 0.9 in the paper, 0.5 for its skin images."""
    normalized: bool = False
    """Normalized averaging of group updates (FedCompass+N): every client counts as if it had done the same number of
    steps."""


class FedCompass(Method):
    """The aggregation of FedCompass: model + sum of alpha (s + 1)^-a p_i times the clients' changes.

    A version is made from an arrival group plus the updates that arrived too late for their own group, or from a
    client's first update alone. Weights are shares of the whole population and are not normalized over a group.

    With ``momentum`` beta, v = beta v + sum and the model moves by v. With ``normalized``, each change is divided by
    the client's local steps and the sum is multiplied by their p-weighted mean. Neither applies to first updates.

    Under other schedules each version is treated as a group.
    """

    name = "fedcompass"
    title = "FedCompass"
    paper = (
        "Li et al., FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a "
        "Computing Power-Aware Scheduler, ICLR 2024, Algorithms 1 and 3; +M and +N: section 5.2"
    )
    paper_schedules = ("compass",)
    weight_of_absent = POPULATION_WEIGHTS
    Params = FedCompassParams

    def initial_state(self, model: Tensor) -> ServerState:
        """``model`` (P,) and, if it is used, ``momentum`` (P,)."""
        state = {"model": model}
        if self.params.momentum:
            state["momentum"] = model.new_zeros(model.shape)
        return state

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The state after this aggregation; unchanged without contributions."""
        if not len(updates):
            return server
        shares = population_weights(self.context, updates, self.params.weights)
        discounts = self.params.weights_by_age(updates)
        first_update = updates.attributes.get("group") == 0
        change = updates.weighted_sum("delta", shares, discounts)
        state = dict(server)
        if self.params.normalized and not first_update:
            mean_steps = np.dot(shares, updates.steps) / shares.sum()
            change = updates.weighted_sum("delta", shares, mean_steps * discounts / updates.steps)
        if self.params.momentum and not first_update:
            change = state["momentum"] = self.params.momentum * server["momentum"] + change
        state["model"] = server["model"] + change
        return state
