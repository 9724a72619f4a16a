"""Ways to draw clients that several selections use: in turn, in proportion to weights, and with replacement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.scheduling.base import Selection, ServerPort


class Turns:
    """Clients in turn, lap after lap, in the order ``lap(n)`` of the n-th lap, n = 0, 1, ...

    A client that is not available when its turn comes loses that turn for this lap. A turn that comes up twice in one
    draw, where one lap ends and the next begins, is kept for the next draw, so that no client is drawn twice at once or
    loses a turn.
    """

    def __init__(self, lap: Callable[[int], npt.NDArray[np.int64]]) -> None:
        self._lap = lap
        self._laps = 0
        self._queue: deque[int] = deque()

    def take(self, count: int, available: npt.NDArray[np.int64]) -> list[int]:
        """The next ``count`` clients of those ``available``, in their order; fewer if there are fewer."""
        takeable = set(available.tolist())
        count = min(count, len(takeable))
        taken: list[int] = []
        postponed: list[int] = []
        chosen: set[int] = set()
        while len(taken) < count:
            if not self._queue:
                self._queue.extend(self._lap(self._laps).tolist())
                self._laps += 1
            client = self._queue.popleft()
            if client in takeable:
                takeable.discard(client)
                chosen.add(client)
                taken.append(client)
            elif client in chosen:
                postponed.append(client)
        self._queue.extendleft(reversed(postponed))
        return taken


def weighted_order(
    generator: np.random.Generator, clients: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> list[int]:
    """Clients of positive weight in the order of successive draws, each in proportion to the weights that remain.

    (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006: order by exponential times / weight.)
    """
    positive = weights > 0
    times = generator.exponential(size=len(clients))[positive] / weights[positive]
    order: list[int] = clients[positive][np.argsort(times, kind="stable")].tolist()
    return order


class Replacing(Selection):
    """A selection with replacement: a client that is drawn several times works once and counts several times."""

    with_replacement = True

    def __init__(self, params: Any, server: ServerPort) -> None:
        super().__init__(params, server)
        self._times: dict[int, int] = {}

    def counted(self, drawn: npt.NDArray[np.int64]) -> list[int]:
        """The different clients among those drawn, ascending; records how often each was drawn."""
        clients, times = np.unique(drawn, return_counts=True)
        different: list[int] = clients.tolist()
        self._times.update(zip(different, times.tolist(), strict=True))
        return different

    def multiplicity(self, client: int) -> int:
        """How often the last draw that included ``client`` drew it."""
        return self._times.get(client, 1)
