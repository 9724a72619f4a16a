"""The window schedule: one update from every client, each when it is online."""

from __future__ import annotations

from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.scheduling.base import Dispatch, Schedule, Selection, ServerPort, Timer
from fedsim.units import Duration, to_ns


class WindowParams(Parameters):
    """Parameters of windows."""

    length: Duration = 0.0
    """Shortest window: a version is created when all clients have reported, but not before this time has passed. The
    paper creates one version per availability cycle."""
    deadline: Duration | None = Field(default=None, gt=0)
    """Longest window: the clients that have reported by then count, and busy clients are cut. Default: the server waits
    for all clients, forever if one never reports."""
    warm_up: int = Field(default=0, ge=0)
    """Ordinary rounds of the selection's cohort before the first window, as in the authors' experiments."""


class Window(Schedule):
    """Every client receives the window's model once, as soon as it checks in; all updates make one version.

    A client that drops out gets the work again at its next check-in. Only the rounds of ``warm_up`` use the selection;
    they wait for their clients, but not for those that drop out.
    """

    name = "window"
    synchronous = True
    patience = "deadline"
    draws_if = "warm_up"
    paper = (
        "Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client Participation, NeurIPS 2022, "
        "section 5 and appendix D.1 (waiting)"
    )
    Params = WindowParams

    def __init__(self, params: WindowParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        if params.deadline is not None and params.deadline < params.length:
            raise UserError(
                f"the longest window ({params.deadline:g} s) is shorter than the shortest ({params.length:g} s)",
                where="server.schedule.deadline",
                hint="give a deadline of at least the length, or none",
            )
        self._at_work: dict[int, Dispatch] = {}
        self._handouts: list[Timer] = []
        self._arrived: list[Dispatch] = []
        self._timers: list[Timer] = []
        self._opened_ns = 0
        self._needed = 0

    def draws(self) -> bool:
        """Only in the rounds of the warm-up."""
        return bool(self.params.warm_up)

    def start(self) -> None:
        """Open the first window."""
        self._open()

    @property
    def _is_warming_up(self) -> bool:
        return self.server.round < int(self.params.warm_up)

    def _open(self) -> None:
        now = self._opened_ns = self.server.now_ns
        if self._is_warming_up:
            clients = self.selection.cohort()
            self._needed = len(clients)
            if not clients:
                self.server.call_when_available(self._open)
            for client in clients:
                self._hand_out(client)
            return
        self._needed = self.server.clients
        if self.params.deadline is not None:
            deadline_ns = now + to_ns(self.params.deadline)
            self._timers.append(self.server.call_at(deadline_ns, self._close))
        for client in range(self.server.clients):
            self._hand_out(client)

    def _hand_out(self, client: int) -> None:
        self._handouts.append(self.server.dispatch(client, on_dispatched=self._on_dispatched))

    def _on_dispatched(self, dispatch: Dispatch) -> None:
        self._at_work[dispatch.dispatch_id] = dispatch

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Count a client's update; one of a closed window is late."""
        if self._at_work.pop(dispatch.dispatch_id, None) is None:
            self.server.discard(dispatch, late=True)
            return
        self._arrived.append(dispatch)
        self._close_if_complete()

    def _close_if_complete(self) -> None:
        if len(self._arrived) >= self._needed:
            end_ns = self._opened_ns + to_ns(self.params.length)
            if self._is_warming_up or self.server.now_ns >= end_ns:
                self._close()
            else:
                self._timers.append(self.server.call_at(end_ns, self._close))

    def on_failure(self, dispatch: Dispatch) -> None:
        """Dispatch the work again; in a warm-up round, continue without it."""
        if self._at_work.pop(dispatch.dispatch_id, None) is None:
            return
        if self._is_warming_up:
            self._needed -= 1
            self._close_if_complete()
        else:
            self._hand_out(dispatch.client)

    def _close(self) -> None:
        for timer in [*self._timers, *self._handouts]:
            timer.cancel()
        stragglers, self._at_work = list(self._at_work.values()), {}
        self._timers, self._handouts = [], []
        for dispatch in stragglers:
            self.server.cut(dispatch)
        arrived, self._arrived = self._arrived, []
        self.close_round(arrived)
        self.server.call_at(self.server.now_ns, self._open)
