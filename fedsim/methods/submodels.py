"""Clients that train a part of the model each (``server.submodels``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.learning.submodels.parts import Parts
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Method,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
    with_mixin,
)
from fedsim.tasks.layout import Layout


class _InParts(Method):
    """A method whose clients train parts of the model.

    The rules of the method see vectors of a part in :meth:`local_update` and of the whole model in :meth:`aggregate`,
    where a sum over clients is scaled up for entries that some of them did not train.
    """

    parts: Parts

    def download(self) -> Sequence[Vector]:
        """Those of the method."""
        return self._moving(super().download())

    def upload(self) -> Sequence[Vector]:
        """Those of the method."""
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
        """That of the client's part."""
        return self.parts.tasks[int(self.parts.level[client])].layout

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """That of the method, with means over the clients that trained an entry, unless it combines parts itself."""
        method: Any = super()
        of_parts = _Overlapping(updates, self.parts, adds=self.combines_parts)
        state: ServerState = method.aggregate(server, of_parts)
        return state


class _Overlapping:
    """Updates whose sums count, for each entry, the clients that trained it, unless the method ``adds`` them up."""

    def __init__(self, updates: Updates, parts: Parts, *, adds: bool) -> None:
        self._updates = updates
        self._parts = parts
        self._adds = adds

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


def with_submodels(method: type[Method], parts: Parts) -> type[Method]:
    """The method whose clients train these parts."""
    return with_mixin(method, _InParts, parts=parts)


def refuse_whole(method: Method) -> None:
    """Refuse a method that needs clients with the whole model.

    Its clients keep vectors between dispatches (control variates, personal models) or send others than a change of the
    model, or its server needs single updates.

    Args:
        method: the method, without compression.

    Raises:
        UserError: the method is one of these.
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
