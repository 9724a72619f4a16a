"""FedAT: one model per tier, averaged across tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedsim.methods.base import (
    MethodContext,
    ServerState,
    Tensor,
    Updates,
    Vector,
    WeightedParams,
    averaging_weights,
)
from fedsim.methods.local_rules import Proximal


class FedATParams(WeightedParams):
    """Parameters of FedAT."""

    cross_tier: Literal["reversed", "uniform"] = "reversed"
    """Weights of the tiers' models in the global model: ``reversed`` gives slow tiers the weights that fast tiers would
    have by their numbers of updates; ``uniform`` gives equal weights."""
    silent_tiers: Literal["skip", "initial"] = "skip"
    """Treatment of tiers that have not yet reported: left out of the global model, or included with the initial model
    (the paper read literally), so that the fastest tier has weight zero until the slowest tier's first update."""
    proximal: float = Field(default=0.0, ge=0)
    """Strength of the term that keeps local models near the received one (lambda)."""


class FedAT(Proximal):
    """Federated learning with asynchronous tiers.

    Inside a tier the clients' models are averaged, as in FedAvg, into the tier's model. The global model is the sum
    over tiers k = 1..M of (updates of tier M + 1 - k) / (updates of all tiers) times tier k's model, where the M tiers
    are those that have reported.

    With one tier, or under a schedule without tiers, it is FedAvg.
    """

    name = "fedat"
    title = "FedAT"
    paper = (
        "Chai et al., FedAT: A High-Performance and Communication-Efficient Federated Learning System with "
        "Asynchronous Tiers, SC 2021, Algorithm 1 and equation 4"
    )
    paper_schedules = ("tiered",)
    Params = FedATParams

    def __init__(self, params: FedATParams, context: MethodContext) -> None:
        super().__init__(params, context)
        if params.silent_tiers == "initial":
            self.weight_of_absent = "counts tiers that have not reported with the initial model"

    def upload(self) -> Sequence[Vector]:
        """The local model."""
        return (Vector("model", self.context.layout.size),)

    def initial_state(self, model: Tensor) -> ServerState:
        """``model`` (P,), the tiers' models (M, P) and their numbers of updates (M,); M = 1 until the first update,
        which brings the number of tiers."""
        import torch

        return {
            "model": model,
            "tiers": model.unsqueeze(0).clone(),
            "tier_updates": torch.zeros(1, dtype=torch.int64),
        }

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The state after this aggregation; unchanged without contributions."""
        import torch

        if not len(updates):
            return server
        tier = int(updates.attributes.get("tier", 0))
        count = int(updates.attributes.get("tiers", 1))
        models, made = server["tiers"], server["tier_updates"]
        if len(made) < count:
            # The first version: all tiers' models are still the initial one.
            models = models.repeat(count, 1)
            made = torch.zeros(count, dtype=torch.int64, device=made.device)
        models, made = models.clone(), made.clone()
        models[tier] = updates.weighted_sum(
            "model", averaging_weights(updates, self.params.weights)
        )
        made[tier] += 1
        counted = torch.arange(count, device=made.device)
        if self.params.silent_tiers == "skip":
            counted = counted[made > 0]
        weights = torch.zeros(count, dtype=models.dtype, device=made.device)
        if self.params.cross_tier == "reversed":
            weights[counted] = made[counted].flip(0).to(models.dtype) / int(made.sum())
        else:
            weights[counted] = 1 / len(counted)
        model = (weights.to(models.device).unsqueeze(1) * models).sum(0)
        return {"model": model, "tiers": models, "tier_updates": made}
