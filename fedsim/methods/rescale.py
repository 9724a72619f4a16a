"""Rescaled partial updates: the baseline of FedLGA without its approximation."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedsim.methods.aggregation import with_mean_buffers
from fedsim.methods.base import Method, ServerState, Updates, WeightedParams, averaging_weights


class RescaleParams(WeightedParams):
    """Parameters of rescaled averaging."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""


class Rescale(Method):
    """A client that did S of the S_full steps asked of it counts as if it had gone on in the same direction.

    Its change is multiplied by S_full / S, then changes are averaged. Where everybody does all steps it is FedAvg.
    """

    name: ClassVar[str] = "rescale"
    title: ClassVar[str] = "Rescaled partial work"
    paper: ClassVar[str] = (
        "Baseline for Li et al., FedLGA: Towards System-Heterogeneity of Federated Learning via Local Gradient "
        "Approximation, IEEE Transactions on Cybernetics 54(1), 2024"
    )
    Params = RescaleParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """See :class:`Rescale`; unchanged where nobody contributed."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, self.params.weights)
        change = updates.weighted_sum("delta", weights * (updates.steps_assigned / updates.steps))
        model = server["model"] + self.params.server_lr * change
        model = with_mean_buffers(
            model, server, updates, self.context.layout, weights=self.params.weights
        )
        return {"model": model}
