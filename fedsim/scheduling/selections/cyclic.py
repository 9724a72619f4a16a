"""Clients in a fixed order, block after block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
