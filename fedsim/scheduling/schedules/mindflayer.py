"""The schedule of MindFlayer SGD: trials with a time limit."""

from __future__ import annotations

import math
from functools import partial

from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.scheduling.base import Demands, Dispatch, Schedule, Selection, ServerPort, Timer
from fedsim.units import NEVER, Duration, to_ns


class MindFlayerParams(Parameters):
    """Parameters of the schedule of MindFlayer SGD."""

    limit: Duration | None = Field(default=None, gt=0)
    """Time limit of a trial, from the server's request to the arrival; default: ``limit_factor`` times
    the client's expected duration."""
    limit_factor: float = Field(default=1.5, gt=0)
    """Time limit of a trial, as a multiple of the client's expected duration."""
    horizon: Duration | None = Field(default=None, gt=0)
    """Clients get as many trials per version as their limits fit into this time (B_i), none if not even one does;
    default: one trial each."""


class MindFlayer(Schedule):
    """Every version is made of a fixed number of trials of each client, all from the same version.

    A trial is a dispatch. A client that does not answer within its limit is told to stop, which takes the latency of
    its downlink, and its trial has failed; so has that of a client that is offline for so long. An update that arrives
    after the limit is discarded. The version is created when all trials are over. A client whose compute times have a
    heavy tail thus costs no more than its limits.
    """

    name = "mindflayer"
    paper = (
        "Maranjyan, Omar and Richtarik, MindFlayer SGD: Efficient Parallel SGD in the Presence of Heterogeneous and "
        "Random Worker Compute Times, UAI 2025, Algorithm 1"
    )
    needs_all_clients = True
    Params = MindFlayerParams

    def __init__(self, params: MindFlayerParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        limits_s = [
            params.limit or params.limit_factor * server.expected_duration_s(client)
            for client in range(server.clients)
        ]
        # A client without any expected end has no trial.
        self._limits_ns = [max(to_ns(s), 1) if s < math.inf else NEVER for s in limits_s]
        horizon_ns = None if params.horizon is None else to_ns(params.horizon)
        self._trials = [
            int(limit_ns < NEVER) if horizon_ns is None else horizon_ns // limit_ns
            for limit_ns in self._limits_ns
        ]
        self._left: dict[int, int] = {}
        # By client: the end of its trial until it is over or has passed, and the dispatch unless the client is offline.
        self._timers: dict[int, Timer] = {}
        self._under_way: dict[int, Dispatch] = {}
        self._arrived: list[Dispatch] = []

    @classmethod
    def demands(cls, params: MindFlayerParams) -> Demands:
        """The limit, if it is the same for all clients."""
        return Demands(limit_s=params.limit)

    def start(self) -> None:
        """Begin the trials of a version."""
        if self.server.now_ns < self.server.busy_until_ns:
            self.server.call_at(self.server.busy_until_ns, self.start)
            return
        self._left = {client: count for client, count in enumerate(self._trials) if count}
        for client in list(self._left):
            self._try(client)

    def _try(self, client: int) -> None:
        self._under_way.pop(client, None)
        handout = self.server.dispatch(client, on_dispatched=self._on_dispatched)
        self._timers[client] = self.server.call_at(
            self.server.now_ns + self._limits_ns[client], partial(self._give_up, client, handout)
        )

    def _on_dispatched(self, dispatch: Dispatch) -> None:
        self._under_way[dispatch.client] = dispatch

    def _give_up(self, client: int, handout: Timer) -> None:
        del self._timers[client]
        if client in self._under_way:
            self.server.cancel(self._under_way[client], partial(self._tried, client))
        else:
            handout.cancel()
            self._tried(client)

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Keep an update that is within its limit."""
        timer = self._timers.pop(dispatch.client, None)
        if timer is None:
            self.server.discard(dispatch)
        else:
            timer.cancel()
            self._arrived.append(dispatch)
        self._tried(dispatch.client)

    def on_failure(self, dispatch: Dispatch) -> None:
        """Count a failed trial."""
        timer = self._timers.pop(dispatch.client, None)
        if timer is not None:
            timer.cancel()
        self._tried(dispatch.client)

    def _tried(self, client: int) -> None:
        """Begin the client's next trial, or create the version if this was the last one of all."""
        self._left[client] -= 1
        if self._left[client]:
            self._try(client)
            return
        del self._left[client]
        if self._left:
            return
        arrived, self._arrived = self._arrived, []
        self.close_round(arrived)
        self.server.call_at(self.server.now_ns, self.start)
