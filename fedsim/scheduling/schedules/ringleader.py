"""The schedule of Ringleader ASGD: one step for every client's gradient, in rounds of two phases."""

from __future__ import annotations

from typing import Any

from fedsim.scheduling.base import Dispatch, Selection, ServerPort
from fedsim.scheduling.continuous import Continuous


class Ringleader(Continuous):
    """All clients work all the time, each from the version that is current when it starts; no update is discarded.

    In the first phase of a round, updates are collected until there is one of every client (also if faster clients
    have sent several). The update that completes them creates a version from all of them, with the attribute
    ``restart`` of 1. In the second phase, the first update of every other client creates a version each; further
    updates of a client are kept for the next round, which begins when every client has created a version.
    """

    name = "ringleader"
    paper = (
        "Maranjyan and Richtarik, Ringleader ASGD: The First Asynchronous SGD with Optimal Time Complexity under Data "
        "Heterogeneity, ICLR 2026, Algorithm 1"
    )
    needs_all_clients = True

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._collected: list[Dispatch] = []
        self._missing = set(range(server.clients))
        # The clients that have yet to create a version in the second phase; empty in the first one.
        self._due: set[int] = set()

    def start(self) -> None:
        """Give work to all clients."""
        for client in range(self.server.clients):
            self.hand_out(client)

    def received(self, dispatch: Dispatch) -> None:
        """Collect an update, or create a version."""
        client = dispatch.client
        if client in self._due:
            self._due.discard(client)
            self.aggregate([dispatch], restart=0)
        else:
            self._collected.append(dispatch)
            self._missing.discard(client)
            if not self._missing and not self._due:
                complete, self._collected = self._collected, []
                self.aggregate(complete, restart=1)
                self._missing = set(range(self.server.clients))
                self._due = self._missing - {client}
        self.hand_out(client)

    def lost(self, dispatch: Dispatch) -> None:
        """Give the client work again when it is back."""
        self.hand_out(dispatch.client)
