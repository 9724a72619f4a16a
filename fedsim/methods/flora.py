"""FLoRA: adapters are stacked and merged into the model, and every round begins with new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from fedsim.methods._adapters import pairs
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Method,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
    WeightedParams,
    averaging_weights,
)
from fedsim.tasks.layout import Layout


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
    combines_parts = True
    Params = FloraParams
    params: FloraParams

    def download(self) -> Sequence[Vector]:
        """The model without adapters, which clients draw anew."""
        return (self._down(self.context.layout),)

    def first_download(self) -> Sequence[Vector]:
        """The rest of the matrices, if later downloads contain stacked adapters."""
        unsent = self._unsent(self.context.layout)
        return (Vector("merged", unsent),) if unsent else ()

    def upload(self) -> Sequence[Vector]:
        """The trained parameters, not the matrices that the adapters change."""
        return (self._up(self.context.layout),)

    def of_part(self, vector: Vector, layout: Layout, elements: int) -> Vector:
        """The same with the part's adapters; matrices have one size in all parts."""
        if vector.name != "model":
            return vector
        # Only uploads have new adapters in every dispatch.
        share = (self._up if vector.varies else self._down)(layout).share
        return replace(super().of_part(vector, layout, elements), share=share)

    def buffers_in(self, elements: int, layout: Layout) -> int:
        """Those of the model, not the matrices that its adapters change."""
        return max(0, super().buffers_in(elements, layout) - self._merged(layout))

    def _merged(self, layout: Layout) -> int:
        return sum(layout.sizes[each.base] for each in layout.adapters)

    def _down(self, layout: Layout) -> Vector:
        sizes = layout.sizes
        adapters = sum(sizes[each.a] + sizes[each.b] for each in layout.adapters)
        return Vector(
            "model", layout.size, share=1 - (adapters + self._unsent(layout)) / layout.size
        )

    def _up(self, layout: Layout) -> Vector:
        share = 1 - self._merged(layout) / layout.size
        return Vector("model", layout.size, share=share, varies=True)

    def _unsent(self, layout: Layout) -> int:
        """Entries of the matrices that are not sent because stacked adapters are smaller."""
        if self.params.stacked_rank is None:
            return 0
        shapes = dict(zip(layout.names, layout.shapes, strict=True))
        bases = [shapes[each.base] for each in layout.adapters]
        stacked = self.params.stacked_rank * sum(map(sum, bases))
        return max(0, sum(map(math.prod, bases)) - stacked)

    def start(self, cohort: Cohort) -> Tensor:
        """The received models with new adapters, which the server can draw, too."""
        start = cohort.down["model"].clone()
        for row, client, sequence in zip(start, cohort.clients, cohort.sequences, strict=True):
            draws = self.context.generator(int(client), int(sequence))
            for _, a, b in pairs(self.layout_of(int(client)), row):
                bound = 1 / math.sqrt(a.shape[1])
                a.copy_(a.new_tensor(draws.uniform(-bound, bound, a.shape)))
                b.zero_()
        return start

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Plain local training of new adapters."""
        trained = trainer.run(cohort, self.start(cohort))
        return LocalUpdate({"model": trained.model}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The mean of the other parameters, and the matrices with the sum of the products; unchanged without
        contributions."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, self.params.weights)
        model, layout = updates.weighted_sum("model", weights), self.context.layout
        views, before = layout.views(model), layout.views(server["model"])
        for each in layout.adapters:
            for name in (each.a, each.b, each.base):
                views[name].copy_(before[name])
        for index, weight in enumerate(weights.tolist()):
            for adapter, a, b in pairs(layout, updates.row("model", index)):
                change = (b @ a).mul_(weight * adapter.scaling)
                views[adapter.base].add_(change.T if adapter.transposed else change)
        return {"model": model}

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, whose adapters change nothing: B is zero."""
        model = model.clone()
        for pair in pairs(self.context.layout, model):
            pair.b.zero_()
        return {"model": model}
