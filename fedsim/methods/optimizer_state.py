"""What becomes of the state of the clients' local optimizer between two dispatches (``training.optimizer_state``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
    averaging_weights,
    with_mixin,
)

STATE = "optimizer"
"""Name of the memory, or of the vector, that holds the state."""


class _Kept(Method):
    """A method whose clients keep the state of their optimizer, as a memory that is counted as such."""

    def memories(self) -> Mapping[str, Memory]:
        """Those of the method, and the state."""
        return {**super().memories(), STATE: Memory(_elements(self), follows={})}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method, and the new state."""
        update = super().local_update(cohort, trainer)
        return replace(update, memory={**update.memory, STATE: trainer.optimizer_state(cohort)})


class _Sent(Method):
    """A method whose server averages the states of the clients' optimizers and sends the mean with the model."""

    def download(self) -> Sequence[Vector]:
        """Those of the method, and the state."""
        return (*super().download(), Vector(STATE, _elements(self)))

    def upload(self) -> Sequence[Vector]:
        """Those of the method, and the state."""
        return (*super().upload(), Vector(STATE, _elements(self)))

    def initial_state(self, model: Tensor) -> ServerState:
        """That of the method, and a state of zeros."""
        return {**super().initial_state(model), STATE: model.new_zeros(_elements(self))}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method, and the new state."""
        update = super().local_update(cohort, trainer)
        return replace(update, vectors={**update.vectors, STATE: trainer.optimizer_state(cohort)})

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """That of the method, and the plain mean of the states."""
        mean = server[STATE]
        if len(updates):
            mean = updates.weighted_sum(STATE, averaging_weights(updates, "uniform"))
        method: Any = super()
        return {**method.aggregate(server, updates), STATE: mean}


def with_optimizer_state(method: type[Method], kind: Literal["kept", "sent"]) -> type[Method]:
    """The method whose clients keep, or send, the state of their optimizer."""
    return with_mixin(method, _Kept if kind == "kept" else _Sent)


def _elements(method: Method) -> int:
    """Numbers of one client's state: the buffers of every parameter, and the number of steps."""
    return method.context.optimizer.buffers * method.context.layout.trainable + 1
