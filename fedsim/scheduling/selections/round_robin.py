"""All clients equally often."""

from __future__ import annotations

import numpy as np

from fedsim.scheduling.base import CohortParams, Selection, ServerPort


class RoundRobin(Selection):
    """Least often drawn clients first; ties go to the least recently drawn, then to the lowest number.

    If all clients are always online, this is ``cyclic``; otherwise a client catches up on missed turns.
    """

    name = "round_robin"
    Params = CohortParams

    def __init__(self, params: CohortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        self._draws = 0
        self._times = np.zeros(server.clients, dtype=np.int64)
        self._last = np.full(server.clients, -1, dtype=np.int64)

    def draw(self, count: int) -> list[int]:
        """Draw the clients with the fewest draws."""
        available = self.available()
        order = np.lexsort((available, self._last[available], self._times[available]))
        chosen = available[order[: max(0, count)]]
        self._times[chosen] += 1
        self._last[chosen] = self._draws
        self._draws += 1
        clients: list[int] = chosen.tolist()
        return clients
