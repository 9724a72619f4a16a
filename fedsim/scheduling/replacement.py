"""Drawing with replacement: a client that is drawn several times works once and counts several times."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.scheduling.base import Selection, ServerPort


class Replacing(Selection):
    """A selection whose draws may name a client several times; see :meth:`Selection.multiplicity`."""

    def __init__(self, params: Any, server: ServerPort) -> None:
        super().__init__(params, server)
        self._times: dict[int, int] = {}

    def counted(self, drawn: npt.NDArray[np.int64]) -> list[int]:
        """The different clients among those drawn, ascending; remembers how often each was."""
        clients, times = np.unique(drawn, return_counts=True)
        found: list[int] = clients.tolist()
        self._times.update(zip(found, times.tolist(), strict=True))
        return found

    def multiplicity(self, client: int) -> int:
        """How often the last draw that included ``client`` drew it."""
        return self._times.get(client, 1)
