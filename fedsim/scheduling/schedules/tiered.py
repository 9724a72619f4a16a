"""The tiered schedule: synchronous rounds within tiers of similar speed, which do not wait for each other."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.scheduling.base import Dispatch, Selection, ServerPort
from fedsim.scheduling.continuous import Continuous, ContinuousParams
from fedsim.scheduling.tiers import equal_tiers, profile, tiers_by_ratio


class TieredParams(ContinuousParams):
    """Parameters of the tiered schedule."""

    speed_ratio: float = Field(default=2.0, ge=1)
    """Longest duration within a tier, as a multiple of the duration of its fastest client."""
    tiers: int | None = Field(default=None, ge=1)
    """Number of tiers of equal size, instead of tiers by speed ratio."""
    profiled: Literal["online", "all"] = "online"
    """Clients that define the tiers: those online when the first round starts, or all, reachable or not. Other clients
    join a tier that has their speed, or form further tiers (with ``tiers``, the nearest tier)."""


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
    Params = TieredParams

    def __init__(self, params: TieredParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._tier_of: list[int] = []
        self._members: list[npt.NDArray[np.bool_]] = []
        self._outstanding: list[int] = []
        self._arrived: list[list[Dispatch]] = []

    @classmethod
    def tiers(
        cls,
        params: TieredParams,
        durations_s: npt.NDArray[np.float64],
        online: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """Tiers of the profiled clients by duration; the others join them."""
        founders = np.arange(len(durations_s)) if params.profiled == "all" else online
        if params.tiers is None:
            return tiers_by_ratio(durations_s, params.speed_ratio, founders)
        return equal_tiers(durations_s, params.tiers, founders)

    def start(self) -> None:
        """Form the tiers, and start a round of every tier, the fastest first."""
        online = self.server.online_clients()
        if self.params.profiled == "online" and not len(online):
            self.server.call_when_available(self.start)
            return
        self._form_tiers(online)
        for tier in range(len(self._members)):
            self._start_round(tier)

    def _form_tiers(self, online: npt.NDArray[np.int64]) -> None:
        """Assign all clients to tiers; no member of a tier is at work yet."""
        tiers = self.tiers(self.params, profile(self.server), online)
        self._tier_of = tiers.tolist()
        self._members = [tiers == tier for tier in range(int(tiers.max()) + 1)]
        self._outstanding = [0] * len(self._members)
        self._arrived = [[] for _ in self._members]

    def _start_round(self, tier: int) -> None:
        server = self.server
        if server.now_ns < server.busy_until_ns:
            server.call_at(server.busy_until_ns, partial(self._start_round, tier))
            return
        clients = self.selection.draw_among(self.selection.cohort_size(), self._members[tier])
        if not clients:
            server.call_when_available(partial(self._search, tier))
            return
        self._outstanding[tier] = len(clients)
        for client in clients:
            self.hand_out(client)

    def _search(self, tier: int) -> None:
        """Start the round that waits for a client, unless the one that is available belongs to another tier."""
        server = self.server
        is_busy = server.now_ns < server.busy_until_ns
        if is_busy and not self._members[tier][server.online_clients()].any():
            server.call_when_available(partial(self._search, tier))
        else:
            self._start_round(tier)

    def received(self, dispatch: Dispatch) -> None:
        """Count an update; the last one of a tier's round completes a version."""
        tier = self._tier_of[dispatch.client]
        self._arrived[tier].append(dispatch)
        self._count_down(tier)

    def lost(self, dispatch: Dispatch) -> None:
        """Stop waiting for this client."""
        self._count_down(self._tier_of[dispatch.client])

    def _count_down(self, tier: int) -> None:
        self._outstanding[tier] -= 1
        if self._outstanding[tier]:
            return
        arrived, self._arrived[tier] = self._arrived[tier], []
        if arrived:
            self.aggregate(arrived, [tier] * len(arrived), tier=tier, tiers=len(self._members))
        self._start_round(tier)
