"""Schedules without rounds: clients are kept busy, and new versions are created while they work.

Invariant: a client that goes offline or never responds delays no other client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.scheduling.base import (
    ANYTHING,
    Demands,
    Dispatch,
    Schedule,
    Selection,
    ServerPort,
    Story,
    WakeUp,
)
from fedsim.units import Duration, to_ns
from fedsim.vocabulary.arrays import Ints


class Continuous(Schedule):
    """A schedule that stops a client whose update does not come in time; each version counts as a round.

    The process receives every dispatch that :meth:`dispatch` hands out once: with its update, or without if the client
    has gone offline or the timeout has passed.
    """

    patience = "timeout"

    class Params(Parameters):
        timeout: Duration | None = Field(default=None, gt=0)
        """Longest wait for an update, after which the client is stopped; default: the server waits until the update
        arrives or it detects that the client has gone offline."""

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._timeout_ns = None if params.timeout is None else to_ns(params.timeout)
        self._on_dispatched = None if self._timeout_ns is None else self.dispatched

    def dispatch(self, client: int, steps: Callable[[], int] | None = None) -> None:
        """Dispatch work to a client: now, or when it next checks in; ``steps`` is called at that moment."""
        self.server.dispatch(client, steps=steps, on_dispatched=self._on_dispatched)

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        groups: Sequence[int] | None = None,
        **attributes: float,
    ) -> None:
        """Create the next version from these updates."""
        self.server.aggregate(dispatches, groups=groups, attributes=attributes)

    def dispatched(self, dispatch: Dispatch) -> None:
        """Limit the wait for a dispatch that has begun; called only if there is a limit."""
        assert self._timeout_ns is not None
        due_ns = self.server.now_ns + self._timeout_ns
        self.server.call_at(due_ns, partial(self._give_up, dispatch))

    def on_failure(self, dispatch: Dispatch) -> None:
        super().on_failure(dispatch)
        dispatch.round_is_closed = True  # Its timeout does not matter any more.

    def _give_up(self, dispatch: Dispatch) -> None:
        if not (dispatch.arrived or dispatch.round_is_closed):
            dispatch.round_is_closed = True
            self.server.cut(dispatch)
            self.process_of(dispatch).resume(dispatch)


class Concurrent(Continuous):
    """Keeps ``concurrency`` clients busy and creates a version from every few updates.

    An arriving update is handled completely before the next one of the same instant: the version is created if the
    update completes it, and then the free slot is filled, so that the next client starts from that version. A slot
    that no available client can fill is filled when the next client checks in.
    """

    draws_if = "next_client: selection"

    class Params(Continuous.Params):
        concurrency: int | None = Field(default=None, ge=1)
        """Clients kept busy; default: the selection's cohort, or all clients if it has none."""
        next_client: Literal["selection", "same"] = "selection"
        """Which client gets the next dispatch when one ends: a client newly drawn by the selection, or the same client
        when it next checks in, as with silos that always participate."""
        local_steps: Literal["full", "by_speed"] = "full"
        """Local steps of a dispatch: those of the client's full workload, or in proportion to its steps per second,
        with the full workload for the fastest, so that all compute for about as long (dynamic local updates of Liu et
        al., arXiv:2401.09135)."""

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._updates = self.demands(params).updates
        self._keeps_clients = params.next_client == "same"
        self._max_staleness: int | None = getattr(params, "max_staleness", None)
        self._slots = params.concurrency or selection.cohort_size()
        self._steps = steps_by_speed(server) if params.local_steps == "by_speed" else None
        # With ``next_client: same``: the clients that have a slot, (N,).
        self._owners = np.zeros(server.clients, dtype=np.bool_)

    @classmethod
    def demands(cls, params: Params) -> Demands:
        return replace(super().demands(params), concurrency=params.concurrency)

    def draws(self) -> bool:
        """Unless every client keeps a slot."""
        return not self._keeps_clients or self._slots < self.server.clients

    def dispatch(self, client: int, steps: Callable[[], int] | None = None) -> None:
        if self._steps is not None:
            steps = partial(int, self._steps[client])
        super().dispatch(client, steps)

    def run(self) -> Story[None]:
        """Fill all slots; then handle one end of a dispatch after another, and fill its slot."""
        server, keeps_clients, limit = self.server, self._keeps_clients, self._max_staleness
        buffer: list[Dispatch] = []
        free = self._slots
        if not self.draws():
            free = 0
            for client in range(server.clients):
                self.dispatch(client)
        refill: WakeUp | None = None
        while True:
            if free and refill is None:
                busy_until_ns = server.busy_until_ns
                if busy_until_ns and server.now_ns < busy_until_ns:
                    refill = self.server_free()
                else:
                    for client in self._draw(free):
                        free -= 1
                        self.dispatch(client)
                    refill = self.client_available() if free else None
            event = yield ANYTHING
            if isinstance(event, WakeUp):
                refill = None
                continue
            if not event.arrived:
                pass
            elif limit is not None and event.staleness > limit:
                server.discard(event)
            else:
                buffer.append(event)
                if self.is_complete(buffer):
                    self.aggregate(buffer)
                    buffer = []
            if keeps_clients:
                self.dispatch(event.client)
            else:
                free += 1

    def is_complete(self, buffer: Sequence[Dispatch]) -> bool:
        """Whether these updates make a version."""
        return len(buffer) >= self._updates

    def _draw(self, count: int) -> list[int]:
        """Clients for free slots, never one that has a slot, even if the server does not know yet that its work was
        dropped."""
        # Only then is it worth looking at all clients.
        if not self._keeps_clients:
            return self.selection.draw(count)
        if self._owners[self.server.online_clients()].any():
            clients = self.selection.draw_among(count, ~self._owners)
        else:
            clients = self.selection.draw(count)
        self._owners[clients] = True
        return clients


def steps_by_speed(server: ServerPort) -> Ints:
    """Local steps of each client in proportion to its steps per second, (N,): all for the fastest, at least one."""
    step_s = np.array([server.step_s(client) for client in range(server.clients)])
    speeds = 1 / np.maximum(step_s, np.finfo(float).tiny)
    steps: Ints = np.floor(server.default_steps * speeds / speeds.max() + 1e-9)
    return np.maximum(steps, 1).astype(np.int64)
