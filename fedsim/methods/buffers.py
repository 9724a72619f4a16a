"""Buffers of the model (running statistics of batch normalization), which are averaged whatever a method does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Method,
    ServerState,
    Trainer,
    Updates,
    with_mixin,
)
from fedsim.tasks.layout import Layout


class _Averaged(Method):
    """A method whose buffers become the mean of those of the clients.

    The vector that ends with changes of buffers ends with their values instead: changes by late updates would add up,
    so that a variance could become negative. No factor of the method reaches their mean.
    """

    def sends_buffers(self) -> bool:
        """Unless it sends no changes of a whole model."""
        return any(self._ends_with_buffers(one.name, one.elements) for one in self.upload())

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method, with the values of the buffers."""
        import torch

        update = super().local_update(cohort, trainer)
        vectors, layout = dict(update.vectors), self.layout_of(int(cohort.clients[0]))
        for name, rows in update.vectors.items():
            if count := self._ends_with_buffers(name, rows.shape[1], layout):
                values = rows[:, -count:] + cohort.down[self.download()[0].name][:, -count:]
                vectors[name] = torch.cat([rows[:, :-count], values], dim=1)
        return replace(update, vectors=vectors)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """That of the method, with the mean of the buffers; those that no client sent stay as they are."""
        import torch

        method: Any = super()
        state: ServerState = method.aggregate(server, updates)
        received = self.download()[0].name
        for vector in self.sent_at(updates.version - 1):
            if count := self._ends_with_buffers(vector.name, vector.elements):
                weights = self.buffer_weights(updates)
                mean = updates.mean(vector.name, weights, server[received])
                new = torch.cat([state[received][:-count], mean[-count:]])
                state = {**state, received: new}
                state = {**state, "model": self.whole_model(state)}
        return state

    def _ends_with_buffers(self, name: str, elements: int, layout: Layout | None = None) -> int:
        """Number of the buffers at the end of a vector."""
        is_change = name == self.buffers_with
        return self.buffers_in(elements, layout or self.context.layout) if is_change else 0


def with_averaged_buffers(method: type[Method], layout: Layout) -> type[Method]:
    """The method with averaged buffers, if the model has any."""
    return method if layout.trainable == layout.size else with_mixin(method, _Averaged)
