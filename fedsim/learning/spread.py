"""Rows that are spread over the ranks of a run: updates that wait for an aggregation, and memories of clients.

Each row is on one rank; methods that return rows or sums are called on all ranks, and return the same bits there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.memory import IntArray, StateStore
from fedsim.learning.updates import WAITING_BYTES, WaitingUpdates
from fedsim.learning.workers.distributed import SHARDS, Ranks, shard_of

_Terms = dict[int, tuple[list[int], list[float]]]
"""Numbers of dispatches and their factors, by shard."""


class SpreadUpdates(WaitingUpdates):
    """Vectors of trained dispatches, each on the rank that has its shard.

    Attributes:
        shards: shard of each waiting dispatch, by number.
    """

    def __init__(self, ranks: Ranks, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ranks = ranks
        self.shards: dict[int, int] = {}
        # The same on machines with more memory or less.
        self.most_in_wave = SHARDS * max(1, WAITING_BYTES // max(1, self.bytes_each))

    def place(self, dispatch_ids: Sequence[int], shard: int) -> bool:
        """Note the shard of a group; returns whether it is one of this rank."""
        self.shards |= dict.fromkeys(dispatch_ids, shard)
        return self._ranks.owner(shard) == self._ranks.number

    def __contains__(self, dispatch_id: int) -> bool:
        return dispatch_id in self.shards

    def put(self, dispatch_ids: Sequence[int], vectors: Mapping[str, Tensor]) -> None:
        """Keep a group's vectors, name to (B, elements), until :meth:`drop`, if its shard is one of this rank."""
        if self._is_here(dispatch_ids[0]):
            super().put(dispatch_ids, vectors)

    def drop(self, dispatch_id: int) -> None:
        del self.shards[dispatch_id]
        super().drop(dispatch_id)

    def ids(self) -> list[int]:
        return sorted(self.shards)

    def names(self, dispatch_id: int) -> list[str]:
        here = super().names(dispatch_id) if self._is_here(dispatch_id) else []
        return max(self._ranks.values(here))  # Those of the others are empty.

    def row(self, dispatch_id: int, name: str) -> Tensor:
        owner = self._ranks.owner(self.shards[dispatch_id])
        return self._ranks.tensor(owner, partial(super().row, dispatch_id, name), self._empty(name))

    def weighted_sum(
        self, dispatch_ids: Sequence[int], name: str, factors: Sequence[float]
    ) -> Tensor:
        """Sum over dispatches of ``factors`` times vector ``name``: row by row in each shard, then along the tree."""
        terms: _Terms = {}
        for dispatch_id, factor in zip(dispatch_ids, factors, strict=True):
            ids, weights = terms.setdefault(self.shards[dispatch_id], ([], []))
            ids.append(dispatch_id)
            weights.append(factor)
        total = self._sum(name, terms, 0, SHARDS)
        return super().weighted_sum([], name, []) if total is None else total

    def _sum(
        self, name: str, terms: _Terms, low: int, high: int, *, here: bool = False
    ) -> Tensor | None:
        """The sum of the shards from ``low`` to ``high``, None without terms; on all ranks unless all are ``here``."""
        if not any(low <= shard < high for shard in terms):
            return None
        if here and high - low == 1:
            ids, factors = terms[low]
            return super().weighted_sum(ids, name, factors)
        owner, middle = self._ranks.owner(low), (low + high) // 2
        if not here and owner == self._ranks.owner(high - 1):
            whole: Callable[[], Any] = partial(self._sum, name, terms, low, high, here=True)
            return self._ranks.tensor(owner, whole, self._empty(name))
        left = self._sum(name, terms, low, middle, here=here)
        right = self._sum(name, terms, middle, high, here=here)
        if left is None or right is None:
            return right if left is None else left
        return left.add_(right)

    def _is_here(self, dispatch_id: int) -> bool:
        return self._ranks.owner(self.shards[dispatch_id]) == self._ranks.number

    def _empty(self, name: str) -> Tensor:
        return torch.empty(self.elements[name], dtype=self.dtype, device=self.device)


class SpreadStore(StateStore):
    """Memories of clients: rows that clients see are on the rank that owns the client, those of servers on all."""

    def __init__(self, ranks: Ranks, *args: Any) -> None:
        super().__init__(*args)
        self._ranks = ranks

    def _owner(self, client: int) -> int:
        return self._ranks.owner(shard_of(client))

    def put(self, name: str, client: int, row: Tensor) -> None:
        if name not in self.of_clients or self._owner(client) == self._ranks.number:
            super().put(name, client, row)

    def keys(self, name: str) -> list[int]:
        return sorted(set().union(*self._ranks.values(super().keys(name))))

    def _rows(self, name: str, clients: Sequence[int]) -> Tensor:
        if name not in self.of_clients:
            return super()._rows(name, clients)
        owners = np.array([self._owner(client) for client in clients])
        keys = np.array(clients)
        store = self[name]
        rows = torch.empty(len(keys), store.elements, dtype=store.dtype, device=store.device)
        for owner in np.unique(owners).tolist():
            there = np.flatnonzero(owners == owner)
            make = partial(super()._rows, name, keys[there].tolist())
            rows[there] = self._ranks.tensor(owner, make, rows[: len(there)])
        return rows

    def _load(self, name: str, clients: IntArray, rows: Tensor) -> None:
        if name in self.of_clients:
            here = np.array(
                [self._owner(client) == self._ranks.number for client in clients.tolist()]
            )
            clients, rows = clients[here], rows[torch.from_numpy(here)]
        super()._load(name, clients, rows)
