"""FedCompass: staleness-weighted aggregation of arrival groups; with momentum (+M) and normalised averaging (+N)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedsim.methods.base import Method, ServerState, Updates
from fedsim.methods.staleness import StalenessParams, population_weights

if TYPE_CHECKING:
    from torch import Tensor


class FedCompassParams(StalenessParams):
    """Parameters of FedCompass."""

    weights: Literal["samples", "uniform"] = "samples"
    """Weight p_i of a client among all clients: its share of all training samples, or 1/N."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Server momentum of group updates (FedCompass+M); 0.9 in the paper, 0.5 for its skin images."""
    normalised: bool = False
    """Normalised averaging of group updates (FedCompass+N): every client counts as if it had done the same number
    of steps."""


class FedCompass(Method):
    """The aggregation of FedCompass: model + sum of alpha (s + 1)^-a p_i times the clients' changes.

    One version is made of an arrival group and of the updates that came too late for theirs, or of a client's first
    update alone. Weights are shares of the whole population and are not normalised over a group, so a version moves the
    model by as much as the clients in it amount to.

    With ``momentum`` beta, v = beta v + sum and the model moves by v. With ``normalised``, each change is divided by
    the client's local steps and the sum is multiplied by their p-weighted mean. Neither touches first updates.

    Under another schedule each version is treated as a group.
    """

    name: ClassVar[str] = "fedcompass"
    title: ClassVar[str] = "FedCompass"
    paper: ClassVar[str] = (
        "Li et al., FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a "
        "Computing Power-Aware Scheduler, ICLR 2024, Algorithms 1 and 3; +M and +N: section 5.2"
    )
    companions: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {"schedule": {"name": "compass"}}
    )
    Params = FedCompassParams

    def initial_state(self, model: Tensor) -> ServerState:
        """See :meth:`fedsim.methods.base.Method.initial_state`; ``momentum`` (P,) only where it is used."""
        state = {"model": model}
        if self.params.momentum:
            state["momentum"] = model.new_zeros(model.shape)
        return state

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """See :class:`FedCompass`; unchanged where nobody contributed."""
        if not len(updates):
            return server
        shares = population_weights(self.context, updates, self.params.weights)
        weights = self.params.weights_by_age(updates) * shares
        first_update = updates.attributes.get("group") == 0
        if self.params.normalised and not first_update:
            mean_steps = np.dot(shares, updates.steps) / shares.sum()
            weights = mean_steps * weights / updates.steps
        change = updates.weighted_sum("delta", weights)
        state = dict(server)
        if self.params.momentum and not first_update:
            change = state["momentum"] = self.params.momentum * server["momentum"] + change
        state["model"] = server["model"] + change
        return state
