"""Clients in a fixed order, block after block."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.turns import Turns


class Cyclic(Selection):
    """The next block of clients in numerical order, cyclically; an unavailable client loses its turn."""

    name: ClassVar[str] = "cyclic"
    Params = CohortParams

    def __init__(self, params: CohortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        order = np.arange(server.clients)
        self._turns = Turns(lambda lap: order)

    def draw(self, count: int) -> list[int]:
        """Draw the next clients in turn."""
        return self._turns.take(count, self.available())
