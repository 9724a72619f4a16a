"""What buffers of the model, the state of the local optimizer, and submodels change in a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.learning.submodels.parts import Parts
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
        is_change = name == self.buffers_with
        return self.buffers_in(elements, layout or self.context.layout) if is_change else 0


def with_averaged_buffers(method: type[Method], layout: Layout) -> type[Method]:
    """The method with averaged buffers, if the model has any."""
    return method if layout.trainable == layout.size else with_mixin(method, _Averaged)


STATE = "optimizer"
"""Name of the memory, or of the vector, that holds the state."""


class _Continuing(Method):
    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if self.trains_twice:
            raise UserError(
                f"{self.title or self.name} trains more than once in a dispatch, so its optimizer has no single state "
                "to continue from",
                where="training.optimizer_state",
                hint="use optimizer_state: reset",
            )


class Kept(_Continuing):
    """A method whose clients keep the state of their optimizer, as a memory that is counted as such."""

    def memories(self) -> Mapping[str, Memory]:
        return {**super().memories(), STATE: Memory(_elements(self), follows={})}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        update = super().local_update(cohort, trainer)
        return replace(update, memory={**update.memory, STATE: trainer.optimizer_state(cohort)})


class Sent(_Continuing):
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
        return (*super().download(), Vector(STATE, self._sent))

    def upload(self) -> Sequence[Vector]:
        return (*super().upload(), Vector(STATE, self._sent))

    def memories(self) -> Mapping[str, Memory]:
        """Those of the method, and the state of personal parts."""
        size = _elements(self) - self._sent
        return {**super().memories(), **({STATE: Memory(size, follows={})} if size else {})}

    def initial_state(self, model: Tensor) -> ServerState:
        return {**super().initial_state(model), STATE: model.new_zeros(self._sent)}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
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
        return all(one.name != STATE for one in self.sent_at(version))


def _elements(method: Method) -> int:
    """Numbers of one client's state: the buffers of every parameter, and the number of steps."""
    return method.context.optimizer.buffers * method.context.layout.trainable + 1


class InParts(Method):
    """A method whose clients train parts of the model.

    The rules of the method see vectors of a part in :meth:`local_update` and of the whole model in :meth:`aggregate`,
    where a sum over clients is scaled up for entries that some of them did not train.
    """

    parts: Parts

    def download(self) -> Sequence[Vector]:
        return self._moving(super().download())

    def upload(self) -> Sequence[Vector]:
        return self._moving(super().upload())

    def _moving(self, vectors: Sequence[Vector]) -> Sequence[Vector]:
        if not self.parts.submodels.moves:
            return vectors
        return [replace(one, varies=True) for one in vectors]

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """That of the method on the entries of the part; the others do not change."""
        parts = self.parts
        positions = parts.positions(cohort.clients, cohort.rounds, cohort.down["model"].device)
        sent = parts.sent(int(parts.level[cohort.clients[0]]))

        def cut(rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: matrix.gather(1, positions) for name, matrix in rows.items()}

        update = super().local_update(
            replace(cohort, down=cut(cohort.down), memory=cut(cohort.memory)), trainer
        )
        vectors = {}
        for name, rows in update.vectors.items():
            vectors[name] = rows.new_zeros(len(rows), parts.whole.layout.size)
            vectors[name].scatter_(1, positions[:, :sent], rows[:, :sent])
        memory = {
            name: cohort.memory[name].scatter(1, positions, rows)
            for name, rows in update.memory.items()
        }
        return replace(update, vectors=vectors, memory=memory)

    def layout_of(self, client: int) -> Layout:
        return self.parts.tasks[int(self.parts.level[client])].layout

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """That of the method, with means over the clients that trained an entry, unless it combines parts itself."""
        method: Any = super()
        of_parts = _Overlapping(updates, self.parts, self.combines_parts)
        state: ServerState = method.aggregate(server, of_parts)
        return state


@dataclass(frozen=True)
class _Overlapping:
    """Updates whose sums count, for each entry, the clients that trained it, unless the method ``adds`` them up."""

    _updates: Updates
    _parts: Parts
    _adds: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._updates, name)

    def __len__(self) -> int:
        return len(self._updates)

    def weighted_sum(
        self, name: str, weights: npt.ArrayLike, factors: npt.ArrayLike = 1.0
    ) -> Tensor:
        """The sum times the sum of all weights over that of the clients that trained an entry; zero if none did."""
        if self._adds:
            return self._updates.weighted_sum(name, weights, factors)
        total, _ = self._over_holders(name, weights, factors)
        return total

    def mean(self, name: str, weights: npt.ArrayLike, otherwise: Tensor) -> Tensor:
        """That over the clients that trained an entry; ``otherwise`` where none of them counts."""
        import torch

        mean, is_held = self._over_holders(name, weights)
        return torch.where(is_held, mean, otherwise)

    def _over_holders(
        self, name: str, weights: npt.ArrayLike, factors: npt.ArrayLike = 1.0
    ) -> tuple[Tensor, Tensor]:
        """That sum, and whether an entry was trained by a client that counts, (elements,) each."""
        import torch

        total, updates = self._updates.weighted_sum(name, weights, factors), self._updates
        held, of_all = self._parts.held(
            updates.clients, updates.rounds, np.asarray(weights, np.float64), total.device
        )
        ratio = torch.where(held != 0, of_all / held, 0.0)
        return total.mul_(ratio.to(total.dtype)), held != 0


def refuse_whole(method: Method) -> None:
    """Refuse a method that needs clients with the whole model.

    Its clients keep vectors between dispatches (control variates, personal models) or send others than a change of the
    model, or its server needs single updates.
    """
    if method.combines_parts:
        return
    down, up = ([vector.name for vector in way] for way in (method.download(), method.upload()))
    others = dict.fromkeys(name for name in (*down, *up) if name not in ("model", "delta"))
    memories = list(method.memories())
    reasons = {
        f"its clients keep vectors of the whole model ({', '.join(memories)})": memories,
        f"it also sends {', '.join(others)}": others,
        "its clients send models, not changes of the model": "model" in up,
        "it sends the model in parts": method.first_download() or len(down) + len(up) != 2,
        "it begins with a round of all clients": method.prologue(),
        "its clients continue their own models": method.steps_ahead(),
        method.needs_whole_model: method.needs_whole_model,
    }
    for reason, is_met in reasons.items():
        if is_met:
            raise UserError(
                f"{method.title or method.name} does not work with submodels: {reason}",
                where="server.submodels",
                hint="use a method that averages changes of the model, such as fedavg, fedprox, fedadam or fedbuff",
            )
