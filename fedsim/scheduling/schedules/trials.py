"""Schedules for clients of very different speed, all of which participate: ATA's tasks and MindFlayer's trials."""

from __future__ import annotations

import heapq
import math

import numpy as np
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
from fedsim.units import NEVER, NS_PER_S, Duration, to_ns
from fedsim.vocabulary.arrays import Floats


class Ata(Schedule):
    """Rounds that distribute a fixed number of tasks so that the slowest client is done as early as possible.

    The times of tasks are unknown at first. In round k, a client with K observed tasks of mean time m counts as one of
    time m max(0, 1 - 2 spread max(sqrt(L / K), L / K)), L = ln(2 k^2), a lower confidence bound; one that was never
    observed as one of time 0. Tasks are assigned one by one to the client that would finish its tasks first, which
    minimizes the latest end. The time of a task is the duration of the dispatch, with its transfers, divided by its
    steps. A round waits for all its clients. With as many tasks as clients, tasks are spread evenly until a client has
    been observed more than 4 ln(2 k^2) times, for 32 rounds with a spread of 1.
    """

    name = "ata"
    paper = (
        "Maranjyan, Saad, Richtarik and Orabona, ATA: Adaptive Task Allocation for Efficient Resource "
        "Management in Distributed Machine Learning, ICML 2025, Algorithm 1 (ATA-Empirical)"
    )
    synchronous = True
    needs_all_clients = True

    class Params(Parameters):
        tasks: int = Field(default=10, ge=1, le=10**6)
        """Tasks per version (B); a task is one local step."""
        spread: float = Field(default=1.0, ge=0)
        """Bound on the spread of a client's task times relative to their mean (alpha / mu, 1 for exponential times).
        Larger values explore more; with 0, the clients' mean times are trusted as they are."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._observed = np.zeros(server.clients)
        self._total_s = np.zeros(server.clients)
        self._rounds = 0

    def run(self) -> Story[None]:
        """Assign the tasks of a round, observe their times, and aggregate."""
        while True:
            self._rounds += 1
            work = Round(self.server)
            for client, count in enumerate(allocated(self.lower_bounds_s(), self.params.tasks)):
                if count:
                    work.dispatch(client, count)
            while work.left:
                event = yield ANYTHING
                if isinstance(event, Dispatch) and work.receive(event):
                    self._observed[event.client] += event.steps_done
                    spent_ns = event.arrived_ns - event.dispatched_ns
                    self._total_s[event.client] += spent_ns / NS_PER_S
            work.close()
            yield self.after(0)

    def lower_bounds_s(self) -> Floats:
        """Lower confidence bounds of the clients' mean times per task in seconds, (N,)."""
        observed = np.maximum(self._observed, 1)
        surprise = math.log(2 * self._rounds**2) / observed
        width = 2 * self.params.spread * np.maximum(np.sqrt(surprise), surprise)
        bounds_s: Floats = self._total_s / observed * np.maximum(1 - width, 0)
        return bounds_s


def allocated(times_s: Floats, tasks: int) -> list[int]:
    """Numbers of tasks that sum to ``tasks`` and minimize the latest end max(a_i times_s[i]).

    Among equal ends, clients with fewer tasks come first, then those with lower numbers.
    """
    counts = [0] * len(times_s)
    queue = [(float(time_s), 1, client) for client, time_s in enumerate(times_s)]
    heapq.heapify(queue)
    for _ in range(tasks):
        _, count, client = queue[0]
        counts[client] = count
        ends_s = (count + 1) * float(times_s[client])
        heapq.heapreplace(queue, (ends_s, count + 1, client))
    return counts


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
