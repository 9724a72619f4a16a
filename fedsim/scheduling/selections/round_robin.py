"""Everybody the same number of times."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedsim.scheduling.base import CohortParams, Selection, ServerPort


class RoundRobin(Selection):
    """Those first who were drawn least often, of these the one whose last draw is longest ago, then by number.

    Where everybody is always there, it is ``cyclic``; where not, who missed turns catches up on them.
    """

    name: ClassVar[str] = "round_robin"
    Params = CohortParams

    def __init__(self, params: CohortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        self._draws = 0
        self._times = np.zeros(server.clients, dtype=np.int64)
        self._last = np.full(server.clients, -1, dtype=np.int64)

    def draw(self, count: int) -> list[int]:
        """See :meth:`fedsim.scheduling.base.Selection.draw`."""
        available = self.available()
        order = np.lexsort((available, self._last[available], self._times[available]))
        chosen = available[order[: max(0, count)]]
        self._times[chosen] += 1
        self._last[chosen] = self._draws
        self._draws += 1
        clients: list[int] = chosen.tolist()
        return clients
