"""Schedules that keep clients busy: asynchronous, buffered, Rennala, Malenia, Ringmaster and Ringleader."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.scheduling.base import ANYTHING, Dispatch, Selection, ServerPort, Story
from fedsim.scheduling.continuous import Concurrent, Continuous


class KeepingParams(Concurrent.Params):
    """Parameters of schedules whose clients keep their slots by default."""

    next_client: Literal["selection", "same"] = "same"
    """Which client gets the next dispatch when one ends: the same client when it next checks in, as in the paper, or a
    client newly drawn by the selection."""


class Asynchronous(Concurrent):
    """Every update creates a version immediately, and the client's slot is filled immediately.

    Updates that arrive at one instant are handled one after the other, in order of dispatching.
    """

    name = "async"
    paper = (
        "Xie, Koyejo and Gupta, Asynchronous Federated Optimization, arXiv:1903.03934, Algorithm 1"
    )

    class Params(Concurrent.Params):
        max_staleness: int | None = Field(default=None, ge=0)
        """Updates whose staleness exceeds this many versions are discarded."""


class Buffered(Concurrent):
    """Clients work asynchronously, and every ``buffer_size`` updates create a version.

    Updates that arrive at one instant are handled one after the other, in order of dispatching. The slot of the client
    whose update completes the buffer goes to a client that starts from the new version.
    """

    name = "buffered"
    paper = "Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022, Algorithm 1"
    updates_needed = "buffer_size"

    class Params(Asynchronous.Params):
        buffer_size: int = Field(default=10, ge=1)
        """Updates per version (K); several may come from one client."""


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

    class Params(KeepingParams):
        batch: int = Field(default=10, ge=1)
        """Updates per version (S); several may come from one client."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._max_staleness = 0


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

    def __init__(self, params: Rennala.Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        if self._keeps_clients and self._slots < server.clients:
            raise UserError(
                f"a version needs updates of all {server.clients} clients, but only {self._slots} get work",
                where="server.schedule",
                hint="leave out concurrency and the selection's cohort, or set next_client: selection",
            )

    def is_complete(self, buffer: Sequence[Dispatch]) -> bool:
        clients = self.server.clients
        if len(buffer) < clients:
            return False
        counts = np.bincount([dispatch.client for dispatch in buffer], minlength=clients)
        # n / sum(1 / B_i) >= S / n
        return bool(counts.all()) and self._updates * (1 / counts).sum() <= clients**2


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

    class Params(KeepingParams):
        threshold: int | None = Field(default=None, ge=1)
        """Delay threshold (R): an update is used only if fewer than R versions were created since its dispatch;
        default: the number of clients kept busy. (In the theory: the variance of a gradient divided by the squared
        gradient norm wanted.)"""
        stale: Literal["ignore", "stop"] = "ignore"
        """Treatment of work that has become too old: its update is ignored when it arrives (the paper's Algorithm 4),
        or the client is told to stop, which takes the latency of its downlink, and starts again (Algorithm 5)."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
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
