"""The schedules of Rennala and Malenia SGD: a batch of gradients at one model, of any clients or of every client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.scheduling.base import Dispatch, Selection, ServerPort
from fedsim.scheduling.continuous import Concurrent, SlotParams


class RennalaParams(SlotParams):
    """Parameters of the schedule of Rennala SGD."""

    batch: int = Field(default=10, ge=1)
    """Updates per version (S); several may come from one client."""
    next_client: Literal["selection", "same"] = "same"
    """Which client gets the next dispatch when one ends: the same client when it next checks in, as in the paper, or a
    client newly drawn by the selection."""


class Rennala(Concurrent):
    """Clients are busy all the time, and ``batch`` updates that started from the current version create the next one.

    An update that started from an earlier version is discarded, and its client starts again from the current one; no
    work is stopped. With constant times tau_1 <= tau_2 <= ... per update and no transfers, a version that all clients
    start together takes the least t with floor(t / tau_1) + floor(t / tau_2) + ... >= S.
    """

    name = "rennala"
    paper = (
        "Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed "
        "Computation Model, NeurIPS 2023, Methods 4 and 5"
    )
    updates_needed = "batch"
    Params = RennalaParams

    def __init__(self, params: RennalaParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection, params.batch, max_staleness=0)


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
