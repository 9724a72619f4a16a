"""Tiers: clients grouped by the duration of a full workload."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.scheduling.base import ServerPort

IntArray = npt.NDArray[np.int64]


def profile(server: ServerPort) -> npt.NDArray[np.float64]:
    """Expected duration of a full workload of every client, as a profiling run measures it; (N,) seconds."""
    return np.array([server.expected_duration_s(client) for client in range(server.clients)])


def tiers_by_ratio(
    durations_s: Sequence[float] | npt.NDArray[np.float64], ratio: float
) -> IntArray:
    """Tier of each client, 0 the fastest: a new tier begins where a client takes more than ``ratio`` times as long as
    the fastest of the tier; (N,)."""
    durations = np.asarray(durations_s, dtype=np.float64)
    tiers = np.zeros(len(durations), dtype=np.int64)
    tier, fastest = -1, -np.inf
    for client in np.argsort(durations, kind="stable").tolist():
        if tier < 0 or durations[client] > ratio * fastest * (1 + 1e-12):
            tier, fastest = tier + 1, durations[client]
        tiers[client] = tier
    return tiers


def equal_tiers(durations_s: Sequence[float] | npt.NDArray[np.float64], count: int) -> IntArray:
    """Tier of each client, 0 the fastest: ``count`` tiers of equal size (to one client), by duration, then client;
    (N,)."""
    order = np.argsort(np.asarray(durations_s, dtype=np.float64), kind="stable")
    tiers = np.empty(len(order), dtype=np.int64)
    for tier, members in enumerate(np.array_split(order, min(count, len(order)))):
        tiers[members] = tier
    return tiers
