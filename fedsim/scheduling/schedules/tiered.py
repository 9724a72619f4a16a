"""The tiered schedule: synchronous rounds within tiers of similar speed, which do not wait for each other."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fedsim.scheduling.base import ANYTHING, Dispatch, Process, Selection, ServerPort, Story
from fedsim.scheduling.continuous import Continuous
from fedsim.scheduling.drawing import equal_tiers, profile, tiers_by_ratio
from fedsim.vocabulary.arrays import Bools, Floats, Ints


class Tiered(Continuous):
    """Every tier runs its own rounds: it waits for its clients, creates a version, and starts again from it.

    Tiers follow from the expected duration of a full workload, are formed before the first round, and never change. A
    round of a tier takes the selection's cohort from the tier's clients (all that are available if there is no cohort).
    Each update is marked with its tier (0 the fastest), and every version passes ``tier`` and ``tiers``, the number of
    tiers, to the method. Updates that arrive at one instant are handled in order of dispatching; a tier whose round
    they complete starts the next at once.
    """

    name = "tiered"
    needs_choice = True
    paper = (
        "Chai et al., FedAT: A High-Performance and Communication-Efficient Federated Learning System with "
        "Asynchronous Tiers, SC 2021, Algorithm 1; tiers by speed ratio: Li et al., FedCompass, ICLR 2024, App. E.2"
    )

    class Params(Continuous.Params):
        speed_ratio: float = Field(default=2.0, ge=1)
        """Longest duration within a tier, as a multiple of the duration of its fastest client."""
        tiers: int | None = Field(default=None, ge=1)
        """Number of tiers of equal size, instead of tiers by speed ratio."""
        profiled: Literal["online", "all"] = "online"
        """Clients that define the tiers: those online when the first round starts, or all, reachable or not. Other
        clients join a tier that has their speed, or form further tiers (with ``tiers``, the nearest tier)."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._tier_of: list[int] = []
        self._rounds: list[Process] = []

    @classmethod
    def tiers(cls, params: Params, durations_s: Floats, online: Ints) -> Ints:
        """Tiers of the profiled clients by duration; the others join them."""
        founders = np.arange(len(durations_s)) if params.profiled == "all" else online
        if params.tiers is None:
            return tiers_by_ratio(durations_s, params.speed_ratio, founders)
        return equal_tiers(durations_s, params.tiers, founders)

    def run(self) -> Story[None]:
        """Form the tiers, and begin the rounds of every tier, the fastest first."""
        online = self.server.online_clients()
        while self.params.profiled == "online" and not len(online):
            yield self.client_available()
            online = self.server.online_clients()
        tiers = self.tiers(self.params, profile(self.server), online)
        self._tier_of = tiers.tolist()
        count = int(tiers.max()) + 1
        for tier in range(count):
            self._rounds.append(self.begin(self.rounds(tier, count, tiers == tier)))

    def rounds(self, tier: int, count: int, members: Bools) -> Story[None]:
        """One round of a tier after another; there are ``count`` tiers."""
        while True:
            clients = yield from self.clients(members)
            for client in clients:
                self.dispatch(client)
            arrived: list[Dispatch] = []
            for _ in clients:
                dispatch = yield ANYTHING
                if isinstance(dispatch, Dispatch) and dispatch.arrived:
                    arrived.append(dispatch)
            if arrived:
                self.aggregate(arrived, [tier] * len(arrived), tier=tier, tiers=count)

    def clients(self, members: Bools) -> Story[list[int]]:
        """Wait for clients of a tier; returns the cohort."""
        server, size = self.server, self.selection.cohort_size()
        while True:
            yield self.server_free()
            clients = self.selection.draw_among(size, members)
            if clients:
                return clients
            yield self.client_available()
            # The one that is available may belong to another tier.
            while (
                server.now_ns < server.busy_until_ns and not members[server.online_clients()].any()
            ):
                yield self.client_available()

    def process_of(self, dispatch: Dispatch) -> Process:
        return self._rounds[self._tier_of[dispatch.client]]
