"""FLoRA: adapters are stacked and merged into the model, and every round begins with new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from fedsim.methods._adapters import pairs
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Method,
    MethodContext,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
    WeightedParams,
    averaging_weights,
)


class FloraParams(WeightedParams):
    """Parameters of FLoRA."""

    stacked_rank: int | None = Field(default=None, ge=1)
    """Sum of the ranks of the adapters in a download, such as 80 for 10 clients of rank 8: the size of a download if
    every client takes part in every round, as in the paper. By default, and if they are smaller, a download has the
    size of the merged matrices, which a client that missed a round needs."""


class Flora(Method):
    """Every round, clients train new adapters, and the server adds the mean of their products to the model.

    The stacked matrices of all clients have the weighted sum of B A as their product, whatever the ranks, without the
    cross terms of averaged factors. A dispatch begins with B = 0 and an A that the client draws as peft does, uniform
    within 1 / sqrt(in). The other parameters are averaged.
    """

    name = "flora"
    title = "FLoRA"
    paper = (
        "Wang, Shen, He, Sun, Wang, Lyu and Li, FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous "
        "Low-Rank Adaptations, NeurIPS 2024, Algorithm 1"
    )
    paper_schedules = ("sync",)
    only_synchronous = "each version is a combination of the models of one round"
    needs_adapters = True
    merges = True
    Params = FloraParams
    params: FloraParams

    def __init__(self, params: FloraParams, context: MethodContext) -> None:
        super().__init__(params, context)
        layout, sizes = context.layout, context.layout.sizes
        shapes = dict(zip(layout.names, layout.shapes, strict=True))
        self._merged = sum(sizes[each.base] for each in layout.adapters)
        self._adapters = sum(sizes[each.a] + sizes[each.b] for each in layout.adapters)
        widths = sum(sum(shapes[each.base]) for each in layout.adapters)
        stacked = math.inf if params.stacked_rank is None else params.stacked_rank * widths
        self._unsent = max(0, self._merged - int(min(stacked, self._merged)))

    def download(self) -> Sequence[Vector]:
        """The model without adapters, which clients draw anew."""
        size = self.context.layout.size
        return (Vector("model", size, share=1 - (self._adapters + self._unsent) / size),)

    def first_download(self) -> Sequence[Vector]:
        """The rest of the matrices, if later downloads contain stacked adapters."""
        return (Vector("merged", self._unsent),) if self._unsent else ()

    def upload(self) -> Sequence[Vector]:
        """The trained parameters, not the matrices that the adapters change."""
        size = self.context.layout.size
        return (Vector("trained", size, share=1 - self._merged / size),)

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Plain local training of new adapters."""
        start = cohort.down["model"].clone()
        for row, client, sequence in zip(start, cohort.clients, cohort.sequences, strict=True):
            draws = self.context.generator(int(client), int(sequence))
            for _, a, b in pairs(self.context.layout, row):
                bound = 1 / math.sqrt(a.shape[1])
                a.copy_(a.new_tensor(draws.uniform(-bound, bound, a.shape)))
                b.zero_()
        trained = trainer.run(cohort, start)
        return LocalUpdate({"trained": trained.model}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The mean of the other parameters, and the matrices with the sum of the products; unchanged without
        contributions."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, self.params.weights)
        model, layout = updates.weighted_sum("trained", weights), self.context.layout
        views, before = layout.views(model), layout.views(server["model"])
        for each in layout.adapters:
            for name in (each.a, each.b, each.base):
                views[name].copy_(before[name])
        for index, weight in enumerate(weights.tolist()):
            for adapter, a, b in pairs(layout, updates.row("trained", index)):
                change = (b @ a).mul_(weight * adapter.scaling)
                views[adapter.base].add_(change.T if adapter.transposed else change)
        return {"model": model}

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, whose adapters change nothing: B is zero."""
        model = model.clone()
        for pair in pairs(self.context.layout, model):
            pair.b.zero_()
        return {"model": model}
