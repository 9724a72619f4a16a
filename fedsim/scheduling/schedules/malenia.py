"""The schedule of Malenia SGD: enough gradients of every client at one model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.errors import UserError
from fedsim.scheduling.base import Dispatch, Selection, ServerPort
from fedsim.scheduling.schedules.rennala import Rennala, RennalaParams


class Malenia(Rennala):
    """Rennala for clients with different data: a version needs updates of every client.

    It is created when the harmonic mean of the numbers B_i of updates of the n clients reaches S / n, with S the
    ``batch``.
    """

    name = "malenia"
    paper = (
        "Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed "
        "Computation Model, NeurIPS 2023, Method 6"
    )

    def __init__(self, params: RennalaParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        if self._keeps_clients and self._slots < server.clients:
            raise UserError(
                f"a version needs updates of all {server.clients} clients, but only {self._slots} get work",
                where="server.schedule",
                hint="leave out concurrency and the selection's cohort, or set next_client: selection",
            )

    def is_complete(self, buffer: Sequence[Dispatch]) -> bool:
        """Whether the harmonic mean of the clients' numbers of updates is large enough."""
        clients = self.server.clients
        if len(buffer) < clients:
            return False
        counts = np.bincount([dispatch.client for dispatch in buffer], minlength=clients)
        # n / sum(1 / B_i) >= S / n
        return bool(counts.all()) and self._updates * (1 / counts).sum() <= clients**2
