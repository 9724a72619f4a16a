"""The schedules of Ringmaster and Ringleader ASGD: asynchronous without updates that are too old, or of all clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Literal

from pydantic import Field

from fedsim.scheduling.base import Dispatch, Selection, ServerPort
from fedsim.scheduling.continuous import Concurrent, Continuous, SlotParams
from fedsim.scheduling.process import ANYTHING, Story


class RingmasterParams(SlotParams):
    """Parameters of the schedule of Ringmaster ASGD."""

    threshold: int | None = Field(default=None, ge=1)
    """Delay threshold (R): an update is used only if fewer than R versions were created since its dispatch; default:
    the number of clients kept busy. (In the theory: the variance of a gradient divided by the squared gradient norm
    wanted.)"""
    stale: Literal["ignore", "stop"] = "ignore"
    """Treatment of work that has become too old: its update is ignored when it arrives (the paper's Algorithm 4), or
    the client is told to stop, which takes the latency of its downlink, and starts again (Algorithm 5)."""
    next_client: Literal["selection", "same"] = "same"
    """Which client gets the next dispatch when one ends: the same client when it next checks in, as in the paper, or a
    client newly drawn by the selection."""


class Ringmaster(Concurrent):
    """Every update younger than ``threshold`` versions creates a version immediately; older ones are not used.

    With an unlimited threshold it is the asynchronous schedule, with a threshold of 1 the first update of each version
    wins.
    """

    name = "ringmaster"
    paper = (
        "Maranjyan, Tyurin and Richtarik, Ringmaster ASGD: The First Asynchronous SGD with Optimal Time Complexity, "
        "ICML 2025, Algorithms 4 and 5"
    )
    Params = RingmasterParams

    def __init__(self, params: RingmasterParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection, 1, max_staleness=None)
        self._threshold = params.threshold or self._slots
        self._max_staleness = self._threshold - 1
        self._under_way: deque[Dispatch] = deque()
        if params.stale == "stop":
            self._on_dispatched = self.dispatched

    def dispatched(self, dispatch: Dispatch) -> None:
        """Remember a dispatch that may have to be stopped."""
        if self.params.stale == "stop":
            self._under_way.append(dispatch)
        if self._timeout_ns is not None:
            super().dispatched(dispatch)

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        groups: Sequence[int] | None = None,
        **attributes: float,
    ) -> None:
        """Create the next version, and stop the work that is too old for it."""
        super().aggregate(dispatches, groups, **attributes)
        oldest = self.server.version - self._threshold
        while self._under_way and self._under_way[0].version <= oldest:
            dispatch = self._under_way.popleft()
            if dispatch.arrived_ns < 0:
                self.server.cancel(dispatch, partial(self.on_failure, dispatch))


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
