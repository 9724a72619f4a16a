"""Clients in turn: in a fixed order, in one that is redrawn every lap, or the least often drawn first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.randomness import Purpose
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.drawing import Turns


class Cyclic(Selection):
    """The next block of clients in numerical order, cyclically; an unavailable client loses its turn."""

    name = "cyclic"
    Params = CohortParams

    def __init__(self, params: CohortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        self._turns = Turns(self.lap)

    def lap(self, number: int) -> npt.NDArray[np.int64]:
        """The order of the clients in the lap of this number, from 0."""
        return np.arange(self.server.clients)

    def draw(self, count: int) -> list[int]:
        """Draw the next clients in turn."""
        return self._turns.take(count, self.available())


class ReshuffledCyclic(Cyclic):
    """The next block of clients in a random order; when all have had their turn, a new order is drawn.

    If all clients are always online, each participates exactly once in every N / cohort rounds ("regularized
    participation" of Wang and Ji, NeurIPS 2022). An unavailable client loses its turn.
    """

    name = "reshuffled_cyclic"

    def lap(self, number: int) -> npt.NDArray[np.int64]:
        """A random order of the clients."""
        orders = self.server.stream(Purpose.SELECTION, 3)
        return orders.generator(k=number).permutation(self.server.clients)


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
