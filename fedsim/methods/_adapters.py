"""The base class of methods that combine the low-rank adapters of clients in their own ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    Params = WeightedParams
    params: WeightedParams

    def upload(self) -> Sequence[Vector]:
        """The trained model."""
        return (Vector("model", self.context.layout.size),)

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Plain local training."""
        trained = trainer.run(cohort, self.start(cohort))
        return LocalUpdate({"model": trained.model}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The mean of the models, with the adapters of :meth:`combine`; unchanged without contributions."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, self.params.weights)
        model = updates.weighted_sum("model", weights)
        layout = self.context.layout
        received = [pairs(layout, updates.row("model", k)) for k in range(len(updates))]
        for index, merged in enumerate(pairs(layout, model)):
            self.combine(merged, [of_client[index] for of_client in received], weights, updates)
        return {"model": model}

    def combine(
        self,
        merged: Pair,
        received: Sequence[Pair],
        weights: npt.NDArray[np.float64],
        updates: Updates,
    ) -> None:
        """Write the server's adapter into ``merged``, whose matrices are the weighted means of those ``received``."""
        raise NotImplementedError
