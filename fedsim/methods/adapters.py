"""Low-rank adapters of clients, which each method combines in its own way."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pydantic import Field

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
from fedsim.methods.fedavg import FedAvg
from fedsim.methods.personal import Split
from fedsim.tasks.layout import Adapter, Layout


class Pair(NamedTuple):
    """An adapter and views of its matrices in a vector: A (r, in) and B (out, r)."""

    adapter: Adapter
    a: Tensor
    b: Tensor


def pairs(layout: Layout, vector: Tensor) -> list[Pair]:
    """The adapters of ``vector`` (P,)."""
    views = layout.views(vector)
    return [Pair(each, views[each.a], views[each.b]) for each in layout.adapters]


class AdapterMethod(Method):
    """A method whose clients send trained adapters, which :meth:`combine` turns into the server's next ones.

    The rest of the model is averaged by ``weights``.
    """

    paper_schedules = ("sync",)
    only_synchronous = "each version is a combination of the models of one round"
    needs_adapters = True
    combines_parts = True
    uploads = ("model",)
    Params = WeightedParams
    params: WeightedParams

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        if not len(updates):
            return server
        layout = self.context.layout
        model = updates.weighted_sum("model", averaging_weights(updates, self.params.weights))
        received = [pairs(layout, updates.row("model", k)) for k in range(len(updates))]
        for index, merged in enumerate(pairs(layout, model)):
            self.combine(merged, [of_client[index] for of_client in received], updates)
        return {"model": model}

    @abstractmethod
    def combine(self, merged: Pair, received: Sequence[Pair], updates: Updates) -> None:
        """Write the server's adapter into ``merged``, whose matrices are the weighted means of those ``received``."""


class HetLora(AdapterMethod):
    """The server averages A and B of each adapter, with weights proportional to the Frobenius norm of B A.

    Clients whose training changed more count more. Clients may have unequal ranks (``server.submodels: ranks``): each
    holds the first rows of A and columns of B, and what it sends is padded with zeros. The paper's self-pruning is not
    included: a client's rank, and so the size of its upload, would follow from the values that it trains, but transfers
    are timed before anything is trained. The other parameters are averaged.
    """

    name = "hetlora"
    title = "HetLoRA"
    paper = (
        "Cho, Liu, Xu, Fahrezi and Joshi, Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models, "
        "EMNLP 2024: truncation, zero-padding and sparsity-weighted aggregation"
    )

    def combine(self, merged: Pair, received: Sequence[Pair], updates: Updates) -> None:
        """The means weighted by norms; those of the models while all products are zero."""
        # The squared norm of B A is the inner product of B'B and AA'.
        squares = [float(((each.b.T @ each.b) * (each.a @ each.a.T)).sum()) for each in received]
        shares = np.sqrt(np.maximum(squares, 0)) * updates.multiplicity
        if not shares.any():
            return
        merged.a.zero_()
        merged.b.zero_()
        for each, share in zip(received, (shares / shares.sum()).tolist(), strict=True):
            merged.a.add_(each.a, alpha=share)
            merged.b.add_(each.b, alpha=share)


class FlexLora(AdapterMethod):
    """The server averages the products B A, and sends the best approximation of each client's rank.

    The mean product U S V' is decomposed by singular values, the largest first: B = U S and A = V', of the adapters'
    rank. A client of a lower rank (``server.submodels: ranks``) receives the first columns and rows, which are the best
    approximation of its rank. The other parameters are averaged.
    """

    name = "flexlora"
    title = "FlexLoRA"
    paper = (
        "Bai, Chen, Qian, Yao and Li, Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and "
        "Client Resources, NeurIPS 2024"
    )

    def upload(self) -> Sequence[Vector]:
        """The trained model, whose adapters are decomposed anew in every version."""
        return [replace(one, varies=True) for one in super().upload()]

    def combine(self, merged: Pair, received: Sequence[Pair], updates: Updates) -> None:
        import torch

        weights = averaging_weights(updates, self.params.weights)
        # Stacked matrices have the sum of the products as their product.
        b = torch.cat([each.b * weight for each, weight in zip(received, weights, strict=True)], 1)
        a = torch.cat([each.a for each in received])
        u, s, v = torch.linalg.svd(b @ a, full_matrices=False)
        rank = min(len(s), len(merged.a))
        merged.a.zero_()[:rank] = v[:rank]
        merged.b.zero_()[:, :rank] = u[:, :rank] * s[:rank]


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

    class Params(WeightedParams):
        stacked_rank: int | None = Field(default=None, ge=1)
        """Sum of the ranks of the adapters in a download, such as 80 for 10 clients of rank 8: the size of a download
        if every client takes part in every round, as in the paper. By default, and if they are smaller, a download has
        the size of the merged matrices, which a client that missed a round needs."""

    params: Params

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


class FfaLora(FedAvg):
    """FedAvg of adapters whose matrices A keep their first, random values.

    The mean of B A is then (mean of B) A, so averaging is exact, and a dispatch sends half as much. A client downloads
    A once.
    """

    name = "ffa_lora"
    title = "FFA-LoRA"
    paper = "Sun, Li, Li and Ding, Improving LoRA in Privacy-preserving Federated Learning, ICLR 2024, section 4"
    paper_schedules = ("sync",)
    needs_adapters = True
    downloads = ("trained",)
    Params = WeightedParams
    params: WeightedParams

    def __init__(self, params: WeightedParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self._names = [each.a for each in context.layout.adapters]
        self._split = Split(context.layout, self._names, context.device)
        self._rates = (~self._split.mask).to(context.dtype)
        self.elements = self._split.shared_size

    def first_download(self) -> Sequence[Vector]:
        """A."""
        return (Vector("frozen", self._split.personal_size),)

    def frozen(self) -> Sequence[str]:
        return self._names

    def initial_state(self, model: Tensor) -> ServerState:
        """The whole model (P,), and all of it but A."""
        self._frozen = self._split.personal(model)
        return {"model": model, "trained": self._split.shared(model)}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        received = cohort.down["trained"]
        start = self._split.join(received, self._frozen.expand(len(received), -1))
        trained = trainer.run(cohort, start, learning_rate_scale=self._rates)
        return LocalUpdate({"delta": self._split.shared(trained.model) - received}, trained.loss)

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        state = {**server, "trained": server["trained"] + change}
        return {**state, "model": self.whole_model(state)}

    def whole_model(self, state: ServerState) -> Tensor:
        return self._split.join(state["trained"], self._frozen)

    def buffers_in(self, elements: int, layout: Layout) -> int:
        """All of the model's, in what is trained."""
        of_trained = elements == self._split.shared_size
        return layout.size - layout.trainable if of_trained else 0
