"""Schedules without rounds: clients are kept busy, and new versions are created while they work.

Invariant: a client that goes offline or never responds delays no other client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.scheduling.base import Demands, Dispatch, Schedule, Selection, ServerPort, Timer
from fedsim.units import Duration, to_ns


class ContinuousParams(Parameters):
    """Parameters of schedules without rounds."""

    timeout: Duration | None = Field(default=None, gt=0)
    """Longest wait for an update, after which the client is stopped; default: the server waits until the update arrives
    or it detects that the client has gone offline."""


class Continuous(Schedule):
    """Tracks which clients are busy; each version counts as a round.

    Subclasses dispatch work with :meth:`hand_out`; every dispatch ends in one call of either :meth:`received` or
    :meth:`lost`.
    """

    Params = ContinuousParams
    patience = "timeout"

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._timeout_ns = None if params.timeout is None else to_ns(params.timeout)
        self._on_dispatched = None if self._timeout_ns is None else self.dispatched
        self._timers: dict[int, Timer] = {}

    @abstractmethod
    def received(self, dispatch: Dispatch) -> None:
        """Handle an arrived update."""

    @abstractmethod
    def lost(self, dispatch: Dispatch) -> None:
        """Handle a dispatch without an update: the client has gone offline, or the timeout has passed."""

    def hand_out(self, client: int, steps: Callable[[], int] | None = None) -> None:
        """Dispatch work to a client: now, or when it next checks in; ``steps`` is called at that moment."""
        self.server.dispatch(client, steps=steps, on_dispatched=self._on_dispatched)

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        groups: Sequence[int] | None = None,
        **attributes: float,
    ) -> None:
        """Create the next version from these updates."""
        self.server.aggregate(dispatches, groups=groups, attributes=attributes, closes_round=True)

    def dispatched(self, dispatch: Dispatch) -> None:
        """Limit the wait for a dispatch that has been handed out; called only if there is a limit."""
        assert self._timeout_ns is not None
        self._timers[dispatch.dispatch_id] = self.server.call_at(
            self.server.now_ns + self._timeout_ns, partial(self._give_up, dispatch)
        )

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Handle an arrived update."""
        if self._timeout_ns is not None:
            self._timers.pop(dispatch.dispatch_id).cancel()
        self.received(dispatch)

    def on_failure(self, dispatch: Dispatch) -> None:
        """Handle a failed client, unless its timeout has passed."""
        if self._timeout_ns is not None:
            timer = self._timers.pop(dispatch.dispatch_id, None)
            if timer is None:
                return  # the timeout had passed
            timer.cancel()
        self.lost(dispatch)

    def _give_up(self, dispatch: Dispatch) -> None:
        del self._timers[dispatch.dispatch_id]
        self.server.cut(dispatch)
        self.lost(dispatch)


class SlotParams(ContinuousParams):
    """Parameters of schedules that keep a number of clients busy."""

    concurrency: int | None = Field(default=None, ge=1)
    """Clients kept busy; default: the selection's cohort, or all clients if it has none."""
    next_client: Literal["selection", "same"] = "selection"
    """Which client gets the next dispatch when one ends: a client newly drawn by the selection, or the same client when
    it next checks in, as with silos that always participate."""
    local_steps: Literal["full", "by_speed"] = "full"
    """Local steps of a dispatch: those of the client's full workload, or in proportion to its steps per second, with
    the full workload for the fastest, so that all compute for about as long (dynamic local updates of Liu et al.,
    arXiv:2401.09135)."""


class ConcurrentParams(SlotParams):
    """Parameters of schedules that may discard stale updates."""

    max_staleness: int | None = Field(default=None, ge=0)
    """Updates whose staleness exceeds this many versions are discarded."""


class Concurrent(Continuous):
    """Keeps ``concurrency`` clients busy and creates a version from every few updates.

    An arriving update is handled completely before the next one of the same instant: the version is created if the
    update completes it, and then the free slot is filled, so that the next client starts from that version. A slot
    that no available client can fill is filled when the next client checks in.
    """

    Params = SlotParams
    draws_if = "next_client: selection"

    def __init__(
        self,
        params: SlotParams,
        server: ServerPort,
        selection: Selection,
        updates: int,
        max_staleness: int | None,
    ) -> None:
        super().__init__(params, server, selection)
        self._updates = updates
        self._keeps_clients = params.next_client == "same"
        self._max_staleness = max_staleness
        self._buffer: list[Dispatch] = []
        self._slots = params.concurrency or selection.cohort_size()
        self._steps = steps_by_speed(server) if params.local_steps == "by_speed" else None
        self._filled = 0
        self._fill_is_due = False
        # With ``next_client: same``: the clients that have a slot, (N,).
        self._owners = np.zeros(server.clients, dtype=np.bool_)

    @classmethod
    def demands(cls, params: SlotParams) -> Demands:
        """Those of every schedule, and the concurrency."""
        return replace(super().demands(params), concurrency=params.concurrency)

    def draws(self) -> bool:
        """Unless every client keeps a slot."""
        return not self._keeps_clients or self._slots < self.server.clients

    def hand_out(self, client: int, steps: Callable[[], int] | None = None) -> None:
        """Dispatch work to a client: now, or when it next checks in."""
        if self._steps is not None:
            steps = partial(int, self._steps[client])
        super().hand_out(client, steps)

    def start(self) -> None:
        """Fill all slots."""
        if not self.draws():
            self._filled = self._slots = self.server.clients
            for client in range(self.server.clients):
                self.hand_out(client)
        else:
            self._fill()

    def received(self, dispatch: Dispatch) -> None:
        """Buffer an update; create a version when there are enough."""
        limit = self._max_staleness
        if limit is not None and dispatch.staleness > limit:
            self.server.discard(dispatch)
        else:
            self._buffer.append(dispatch)
            if self.is_complete(self._buffer):
                complete, self._buffer = self._buffer, []
                self.aggregate(complete)
        self._replace(dispatch.client)

    def is_complete(self, buffer: Sequence[Dispatch]) -> bool:
        """Whether these updates make a version."""
        return len(buffer) >= self._updates

    def lost(self, dispatch: Dispatch) -> None:
        """Fill the slot with the next client."""
        self._replace(dispatch.client)

    def _replace(self, client: int) -> None:
        if self._keeps_clients:
            self.hand_out(client)
        else:
            self._filled -= 1
            self._fill()

    def _fill(self) -> None:
        if self._fill_is_due:
            return
        busy_until_ns = self.server.busy_until_ns
        if busy_until_ns and self.server.now_ns < busy_until_ns:
            # The clients drawn must still be online when the server can dispatch again.
            self._fill_is_due = True
            self.server.call_at(busy_until_ns, self._fill_now)
            return
        for client in self._draw(self._slots - self._filled):
            self._filled += 1
            if self._keeps_clients:
                self._owners[client] = True
            self.hand_out(client)
        if self._filled < self._slots:
            self._fill_is_due = True
            self.server.call_when_available(self._fill_now)

    def _draw(self, count: int) -> list[int]:
        """Clients for free slots, never one that has a slot, even if the server does not know yet that its work was
        dropped."""
        # Only then is it worth looking at all clients.
        if self._keeps_clients and self._owners[self.server.online_clients()].any():
            return self.selection.draw_among(count, ~self._owners)
        return self.selection.draw(count)

    def _fill_now(self) -> None:
        self._fill_is_due = False
        self._fill()


def steps_by_speed(server: ServerPort) -> npt.NDArray[np.int64]:
    """Local steps of each client in proportion to its steps per second, (N,): all for the fastest, at least one."""
    step_s = np.array([server.step_s(client) for client in range(server.clients)])
    speeds = 1 / np.maximum(step_s, np.finfo(float).tiny)
    steps: npt.NDArray[np.int64] = np.floor(server.default_steps * speeds / speeds.max() + 1e-9)
    return np.maximum(steps, 1).astype(np.int64)
