"""FedNova: normalised averaging."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError
from fedsim.learning.optimizers.sgd import Sgd
from fedsim.methods.aggregation import with_mean_buffers
from fedsim.methods.base import (
    Method,
    MethodContext,
    ServerState,
    Updates,
    WeightedParams,
    averaging_weights,
)


class FedNovaParams(WeightedParams):
    """Parameters of FedNova."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 is the paper's rule."""


class FedNova(Method):
    """Clients' changes are divided by how far their steps would carry a constant gradient, then averaged.

    With weights p_i and a_i the sum of the coefficients with which a client's gradients enter its change (its number
    of steps for plain SGD), the model moves by (sum p_j a_j) x sum p_i change_i / a_i. Where all clients do the same
    number of steps it is FedAvg.
    """

    name: ClassVar[str] = "fednova"
    title: ClassVar[str] = "FedNova"
    paper: ClassVar[str] = (
        "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, "
        "NeurIPS 2020, equations 4 and 6 and section 4"
    )
    Params = FedNovaParams

    def __init__(self, params: FedNovaParams, context: MethodContext) -> None:
        super().__init__(params, context)
        if not isinstance(context.optimizer, Sgd):
            raise UserError(
                f"FedNova knows how far steps of SGD carry a gradient, not those of {context.optimizer.name}",
                where="training.optimizer",
                hint="use sgd, with or without momentum",
            )
        self._optimizer = context.optimizer.params

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """See :class:`FedNova`; unchanged where nobody contributed."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, self.params.weights)
        lengths = self.lengths(updates.steps)
        if (lengths == lengths[0]).all():
            # Then the factors cancel, and are left out so that rounding does not set it apart from FedAvg.
            change = updates.weighted_sum("delta", weights)
        else:
            change = updates.weighted_sum("delta", float(weights @ lengths) * weights / lengths)
        model = server["model"] + self.params.server_lr * change
        model = with_mean_buffers(
            model, server, updates, self.context.layout, weights=self.params.weights
        )
        return {"model": model}

    def lengths(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """a_i, (C,): the distance covered by this many steps along a constant unit gradient with learning rate 1."""
        momentum, nesterov = self._optimizer.momentum, self._optimizer.nesterov
        if not momentum:
            return steps.astype(np.float64)
        covered = np.zeros(int(steps.max()) + 1)
        velocity = 0.0
        for step in range(1, len(covered)):
            velocity = momentum * velocity + 1
            covered[step] = covered[step - 1] + (1 + momentum * velocity if nesterov else velocity)
        result: npt.NDArray[np.float64] = covered[steps]
        return result
