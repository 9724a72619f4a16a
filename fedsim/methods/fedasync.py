"""FedAsync: every update moves the model immediately, and stale updates move it less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedsim.methods.base import MethodContext, ServerState, Updates, Vector
from fedsim.methods.local_rules import Proximal
from fedsim.methods.staleness import POPULATION_WEIGHTS, StalenessParams, population_weights


class FedAsyncParams(StalenessParams):
    """Parameters of FedAsync."""

    alpha: float = Field(default=0.6, gt=0, le=1)
    """Weight of a fresh update."""
    form: Literal["mixing", "delta"] = "mixing"
    """The model becomes (1 - a) model + a (client's model), or moves by a p_i times the client's change."""
    weights: Literal["samples", "uniform"] = "samples"
    """Weight p_i of a client in the form ``delta``: its share of all training samples, or 1/N."""
    proximal: float = Field(default=0.0, ge=0)
    """Strength of the term that keeps local models near the received one (rho)."""


class FedAsync(Proximal):
    """Asynchronous federated optimization, a = alpha x (weight of the update's staleness).

    The form ``mixing`` is the original. The form ``delta`` is the baseline of the FedCompass paper: the client's
    share of the population scales the step. If a schedule aggregates several updates at once, they are applied one
    after the other (``mixing``) or summed (``delta``). With ``mixing``, running statistics of batch normalization are
    mixed as the rest of the model.
    """

    name = "fedasync"
    title = "FedAsync"
    paper = (
        "Xie, Koyejo and Gupta, Asynchronous Federated Optimization, arXiv:1903.03934, Algorithm 1 and section 5.2; "
        "form delta: Li et al., FedCompass, ICLR 2024, Algorithm 1 with single updates"
    )
    paper_schedules = ("async",)
    Params = FedAsyncParams

    def __init__(self, params: FedAsyncParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.weight_of_absent = POPULATION_WEIGHTS if params.form == "delta" else ""

    def upload(self) -> Sequence[Vector]:
        """The local model, or its change."""
        sent = "model" if self.params.form == "mixing" else "delta"
        return (Vector(sent, self.context.layout.size),)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The model after the updates are mixed in (or their changes added) in order of arrival."""
        weights = self.params.weights_by_age(updates)
        model = server["model"]
        if self.params.form == "mixing":
            for index, weight in enumerate(weights.tolist()):
                # An update of a client that was drawn m times is mixed in m times.
                mixed = 1.0 - (1.0 - weight) ** int(updates.multiplicity[index])
                model = (1.0 - mixed) * model + mixed * updates.row("model", index)
            return {"model": model}
        shares = population_weights(self.context, updates, self.params.weights)
        return {"model": model + updates.weighted_sum("delta", shares, weights)}
