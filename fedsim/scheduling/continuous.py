"""Schedules without rounds: clients are kept at work, and the model moves on while they are.

What these schedules share: no client that is gone, or never answers, holds anything up.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedsim.components import Parameters
from fedsim.scheduling.base import Dispatch, Schedule, Selection, ServerPort, Timer
from fedsim.scheduling.standstill import Standstill
from fedsim.units import Duration, to_ns


class ContinuousParams(Parameters):
    """Parameters of schedules without rounds."""

    timeout: Duration | None = Field(default=None, gt=0)
    """An update that has not come after this long is given up: the client is told to stop. Without it the server
    waits until the update comes or it learns that the client is gone."""


class Continuous(Schedule):
    """Keeps track of who is at work; its versions count as rounds.

    Subclasses hand out work with :meth:`hand_out`, and every hand-out ends in one call of :meth:`received` or of
    :meth:`lost`.
    """

    patience: ClassVar[str] = "timeout"

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._timeout_ns = None if params.timeout is None else to_ns(params.timeout)
        self._timers: dict[int, Timer] = {}
        self._standstill = Standstill("updates", allowance=2 * server.clients)

    @abstractmethod
    def received(self, dispatch: Dispatch) -> None:
        """An update has arrived."""

    @abstractmethod
    def lost(self, dispatch: Dispatch) -> None:
        """No update will come of this dispatch: the client is gone, or its time is up."""

    def hand_out(self, client: int, steps: Callable[[], int] | None = None) -> None:
        """Give a client work: now, or when it next checks in; ``steps`` is asked at that moment."""
        on_dispatched = None if self._timeout_ns is None else self._set_timer
        self.server.dispatch(client, steps=steps, on_dispatched=on_dispatched)

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        groups: Sequence[int] | None = None,
        **attributes: float,
    ) -> None:
        """Make the next version from these updates."""
        self.server.aggregate(dispatches, groups=groups, attributes=attributes, closes_round=True)

    def _set_timer(self, dispatch: Dispatch) -> None:
        assert self._timeout_ns is not None
        self._timers[dispatch.dispatch_id] = self.server.call_at(
            self.server.now_ns + self._timeout_ns, partial(self._give_up, dispatch)
        )

    def on_arrival(self, dispatch: Dispatch) -> None:
        """See :class:`fedsim.scheduling.base.Schedule`."""
        self._standstill.count(dispatch.arrived_ns)
        if self._timeout_ns is not None:
            self._timers.pop(dispatch.dispatch_id).cancel()
        self.received(dispatch)

    def on_failure(self, dispatch: Dispatch) -> None:
        """See :class:`fedsim.scheduling.base.Schedule`."""
        if self._timeout_ns is not None:
            timer = self._timers.pop(dispatch.dispatch_id, None)
            if timer is None:
                return  # given up before
            timer.cancel()
        self.lost(dispatch)

    def _give_up(self, dispatch: Dispatch) -> None:
        del self._timers[dispatch.dispatch_id]
        self.server.cut(dispatch)
        self.lost(dispatch)


class ConcurrentParams(ContinuousParams):
    """Parameters of schedules that keep a number of clients at work."""

    concurrency: int | None = Field(default=None, ge=1)
    """Clients kept at work; the selection's cohort when not given, and all clients without one."""
    next_client: Literal["selection", "same"] = "selection"
    """Who gets the place of a client whose work has ended: a fresh draw of the selection, or the client itself
    (when it next checks in), as silos do that always take part."""
    max_staleness: int | None = Field(default=None, ge=0)
    """An update that arrives with more versions made since its dispatch is thrown away."""


class Concurrent(Continuous):
    """Keeps ``concurrency`` clients at work and makes a version of every few updates.

    An arriving update is handled to its end before the next one of that instant: the version is made if the update
    completes it, and then the free place is filled, so that a client dispatched here starts from that version. A
    place that nobody can take is filled when the next client checks in.
    """

    def __init__(
        self, params: ConcurrentParams, server: ServerPort, selection: Selection, updates: int
    ) -> None:
        super().__init__(params, server, selection)
        self._updates = updates
        self._buffer: list[Dispatch] = []
        self._places = params.concurrency or selection.cohort_size()
        self._taken = 0
        self._filling_later = False

    def start(self) -> None:
        """Fill all places."""
        if self.params.next_client == "same" and self._places >= self.server.clients:
            self._taken = self._places = self.server.clients
            for client in range(self.server.clients):
                self.hand_out(client)
        else:
            self._fill()

    def received(self, dispatch: Dispatch) -> None:
        """Take an update up; make a version when enough have come."""
        most = self.params.max_staleness
        if most is not None and dispatch.staleness > most:
            self.server.discard(dispatch)
        else:
            self._buffer.append(dispatch)
            if len(self._buffer) >= self._updates:
                complete, self._buffer = self._buffer, []
                self.aggregate(complete)
        self._replace(dispatch.client)

    def lost(self, dispatch: Dispatch) -> None:
        """Give the place to the next client."""
        self._replace(dispatch.client)

    def _replace(self, client: int) -> None:
        if self.params.next_client == "same":
            self.hand_out(client)
        else:
            self._taken -= 1
            self._fill()

    def _fill(self) -> None:
        if self._filling_later:
            return
        busy_until_ns = self.server.busy_until_ns
        if busy_until_ns and self.server.now_ns < busy_until_ns:
            # Whoever is drawn must still be there when the server can hand out work.
            self._filling_later = True
            self.server.call_at(busy_until_ns, self._fill_now)
            return
        for client in self.selection.draw(self._places - self._taken):
            self._taken += 1
            self.hand_out(client)
        if self._taken < self._places:
            self._filling_later = True
            self.server.call_when_available(self._fill_now)

    def _fill_now(self) -> None:
        self._filling_later = False
        self._fill()
