"""The schedule of MindFlayer SGD: trials with a time limit."""

from __future__ import annotations

import math

from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.scheduling.base import (
    ANYTHING,
    Demands,
    Dispatch,
    Process,
    Round,
    Schedule,
    Selection,
    ServerPort,
    Story,
    WakeUp,
)
from fedsim.units import NEVER, Duration, to_ns


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

    class Params(Parameters):
        limit: Duration | None = Field(default=None, gt=0)
        """Time limit of a trial, from the server's request to the arrival; default: ``limit_factor`` times
        the client's expected duration."""
        limit_factor: float = Field(default=1.5, gt=0)
        """Time limit of a trial, as a multiple of the client's expected duration."""
        horizon: Duration | None = Field(default=None, gt=0)
        """Clients get as many trials per version as their limits fit into this time (B_i), none if not even one does;
        default: one trial each."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
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
        self._of_client: dict[int, Process] = {}

    @classmethod
    def demands(cls, params: Params) -> Demands:
        """The limit, if it is the same for all clients."""
        return Demands(limit_s=params.limit)

    def run(self) -> Story[None]:
        """One version after another: begin the trials of all clients, and wait until they are over."""
        while any(self._trials):
            yield self.server_free()
            version = Round(self.server)
            self._of_client = {
                client: self.begin(self.trials(client, count, version))
                for client, count in enumerate(self._trials)
                if count
            }
            for _ in self._of_client:
                yield ANYTHING  # the end of a client's trials
            version.close()
            yield self.after(0)

    def trials(self, client: int, count: int, version: Round) -> Story[None]:
        """The trials of a client for a version, one after another."""
        for _ in range(count):
            begun: list[Dispatch] = []
            waiting = self.server.dispatch(client, on_dispatched=begun.append)
            limit = self.at(self.server.now_ns + self._limits_ns[client])
            event = yield ANYTHING
            if isinstance(event, Dispatch):
                limit.cancel()
                if event.arrived:
                    version.arrived.append(event)
            elif not begun:
                waiting.cancel()
            else:
                self.server.cancel(begun[0], WakeUp(self.active).happen)
                # It has stopped, or the message has crossed with its update, or with its failure.
                event = yield ANYTHING
                if isinstance(event, Dispatch) and event.arrived:
                    self.server.discard(event)

    def process_of(self, dispatch: Dispatch) -> Process:
        return self._of_client[dispatch.client]
