"""Clients in a random order that is redrawn every lap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.randomness import Purpose
from fedsim.scheduling.selections.cyclic import Cyclic


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
