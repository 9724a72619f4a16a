"""What becomes of the state of the clients' local optimizer between two dispatches (``training.optimizer_state``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from fedsim.errors import UserError
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
    with_mixin,
)

STATE = "optimizer"
"""Name of the memory, or of the vector, that holds the state."""


class _Continuing(Method):
    """A method whose clients continue with a state of their optimizer."""

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if self.trains_twice:
            raise UserError(
                f"{self.title or self.name} trains more than once in a dispatch, so its optimizer has no single state "
                "to continue from",
                where="training.optimizer_state",
                hint="use optimizer_state: reset",
            )


class _Kept(_Continuing):
    """A method whose clients keep the state of their optimizer, as a memory that is counted as such."""

    def memories(self) -> Mapping[str, Memory]:
        """Those of the method, and the state."""
        return {**super().memories(), STATE: Memory(_elements(self), follows={})}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method, and the new state."""
        update = super().local_update(cohort, trainer)
        return replace(update, memory={**update.memory, STATE: trainer.optimizer_state(cohort)})


class _Sent(_Continuing):
    """A method whose server averages the states of the clients' optimizers and sends the mean with the model.

    Clients keep the state of their personal parts. The number of steps is always sent.
    """

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self._sent, self._personal = _elements(self), None
        if names := self.personal_parts():
            layout, buffers = context.layout, context.optimizer.buffers
            mask = layout.mask(names)[: layout.trainable].repeat(buffers)
            if count := int(mask.sum()):
                self._personal = mask.new_zeros(self._sent).to(context.device)
                self._personal[:-1] = mask
                self._sent -= count

    def download(self) -> Sequence[Vector]:
        """Those of the method, and the state."""
        return (*super().download(), Vector(STATE, self._sent))

    def upload(self) -> Sequence[Vector]:
        """Those of the method, and the state."""
        return (*super().upload(), Vector(STATE, self._sent))

    def memories(self) -> Mapping[str, Memory]:
        """Those of the method, and the state of personal parts."""
        size = _elements(self) - self._sent
        return {**super().memories(), **({STATE: Memory(size, follows={})} if size else {})}

    def initial_state(self, model: Tensor) -> ServerState:
        """That of the method, and a state of zeros."""
        return {**super().initial_state(model), STATE: model.new_zeros(self._sent)}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method, and the new state."""
        if self._personal is not None:
            state = cohort.down[STATE].new_empty(len(cohort.clients), _elements(self))
            state[:, ~self._personal] = cohort.down[STATE]
            state[:, self._personal] = cohort.memory[STATE]
            cohort = replace(cohort, memory={**cohort.memory, STATE: state})
        update = super().local_update(cohort, trainer)
        state, memory = trainer.optimizer_state(cohort), dict(update.memory)
        if self._personal is not None:
            memory[STATE], state = state[:, self._personal], state[:, ~self._personal]
        if self._is_silent(int(cohort.versions[0])):
            return update
        return replace(update, vectors={**update.vectors, STATE: state}, memory=memory)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """That of the method, and the mean of the states, weighted as the models are."""
        mean = server[STATE]
        if len(updates) and not self._is_silent(updates.version - 1):
            mean = updates.mean(STATE, self.buffer_weights(updates), mean)
        method: Any = super()
        return {**method.aggregate(server, updates), STATE: mean}

    def _is_silent(self, version: int) -> bool:
        """Whether the updates from this version have no state."""
        return all(one.name != STATE for one in self.sent_at(version))


def with_optimizer_state(method: type[Method], kind: Literal["kept", "sent"]) -> type[Method]:
    """The method whose clients keep, or send, the state of their optimizer."""
    return with_mixin(method, _Kept if kind == "kept" else _Sent)


def _elements(method: Method) -> int:
    """Numbers of one client's state: the buffers of every parameter, and the number of steps."""
    return method.context.optimizer.buffers * method.context.layout.trainable + 1
