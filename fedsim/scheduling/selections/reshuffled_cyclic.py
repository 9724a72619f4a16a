"""Clients in a random order that is redrawn every lap."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.randomness import Purpose
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.turns import Turns


class ReshuffledCyclic(Selection):
    """The next block of clients in a random order; when all have had their turn, a new order is drawn.

    If all clients are always online, each participates exactly once in every N / cohort rounds ("regularized
    participation" of Wang and Ji, NeurIPS 2022). An unavailable client loses its turn.
    """

    name: ClassVar[str] = "reshuffled_cyclic"
    Params = CohortParams

    def __init__(self, params: CohortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        orders = server.stream(Purpose.SELECTION, 3)

        def lap(number: int) -> npt.NDArray[np.int64]:
            return orders.generator(k=number).permutation(server.clients)

        self._turns = Turns(lap)

    def draw(self, count: int) -> list[int]:
        """Draw the next clients in turn."""
        return self._turns.take(count, self.available())
