"""Clients in turn, lap after lap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt


class Turns:
    """Hands out turns in an order that may change from lap to lap.

    A client that cannot be taken when its turn comes loses it for this lap. A turn that comes up twice in one draw (at
    the seam of two laps) is kept for the next draw, so that no client is drawn twice at once or loses a turn.

    Args:
        lap: the order of the n-th lap, n = 0, 1, ...
    """

    def __init__(self, lap: Callable[[int], npt.NDArray[np.int64]]) -> None:
        self._lap = lap
        self._laps = 0
        self._queue: deque[int] = deque()

    def take(self, count: int, available: npt.NDArray[np.int64]) -> list[int]:
        """The next ``count`` clients of those ``available``, in their order; fewer if there are fewer."""
        left = set(available.tolist())
        count = min(count, len(left))
        taken: list[int] = []
        kept: list[int] = []
        chosen: set[int] = set()
        while len(taken) < count:
            if not self._queue:
                self._queue.extend(self._lap(self._laps).tolist())
                self._laps += 1
            client = self._queue.popleft()
            if client in left:
                left.discard(client)
                chosen.add(client)
                taken.append(client)
            elif client in chosen:
                kept.append(client)
        self._queue.extendleft(reversed(kept))
        return taken
