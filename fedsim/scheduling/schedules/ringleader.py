"""The schedule of Ringleader ASGD: one step for every client's gradient, in rounds of two phases."""

from __future__ import annotations

from fedsim.scheduling.base import Dispatch
from fedsim.scheduling.continuous import Continuous
from fedsim.scheduling.process import ANYTHING, Story


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

    def run(self) -> Story[None]:
        """Give work to all clients; collect an update or create a version, and give the client work again."""
        everyone = range(self.server.clients)
        collected: list[Dispatch] = []
        missing = set(everyone)
        # The clients that have yet to create a version in the second phase; empty in the first one.
        due: set[int] = set()
        for client in everyone:
            self.dispatch(client)
        while True:
            dispatch = yield ANYTHING
            assert isinstance(dispatch, Dispatch)
            client = dispatch.client
            if not dispatch.arrived:
                pass
            elif client in due:
                due.discard(client)
                self.aggregate([dispatch], restart=0)
            else:
                collected.append(dispatch)
                missing.discard(client)
                if not missing and not due:
                    self.aggregate(collected, restart=1)
                    collected, missing = [], set(everyone)
                    due = missing - {client}
            self.dispatch(client)
