"""Tiers: clients grouped by the duration of a full workload."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.scheduling.base import ServerPort

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def profile(server: ServerPort) -> FloatArray:
    """Expected duration of a full workload of every client, as a profiling run measures it; (N,) seconds."""
    return np.array([server.expected_duration_s(client) for client in range(server.clients)])


def tiers_by_ratio(
    durations_s: Sequence[float] | FloatArray, ratio: float, founders: IntArray | None = None
) -> IntArray:
    """Tier of each client, 0 the fastest: a new tier begins where a client takes more than ``ratio`` times as long as
    the fastest of the tier; (N,).

    With ``founders``, these clients form tiers first. The others join the slowest tier whose ratio admits them, and
    those that fit no tier form further tiers among themselves.
    """
    durations = np.asarray(durations_s, dtype=np.float64)
    order = np.argsort(durations, kind="stable")
    is_founder = np.full(len(durations), founders is None)
    is_founder[[] if founders is None else founders] = True
    fastest = np.full(len(durations), np.nan)  # of each client's tier
    within = ratio * (1 + 1e-12)
    for group in (order[is_founder[order]], order[~is_founder[order]]):
        founded = np.unique(fastest[~np.isnan(fastest)])
        first = np.inf
        for client in group.tolist():
            duration = durations[client]
            fitting = founded[(founded <= duration) & (duration <= within * founded)]
            if len(fitting):
                fastest[client] = fitting[-1]
                continue
            if not first <= duration <= within * first:
                first = duration
            fastest[client] = first
    return np.unique(fastest, return_inverse=True)[1].astype(np.int64)


def equal_tiers(
    durations_s: Sequence[float] | FloatArray, count: int, founders: IntArray | None = None
) -> IntArray:
    """Tier of each client, 0 the fastest: ``count`` tiers of equal size (to one client), by duration, then client;
    (N,).

    With ``founders``, only these clients form the tiers; each other client joins the slowest tier whose fastest client
    is not slower than it is.
    """
    durations = np.asarray(durations_s, dtype=np.float64)
    if founders is None:
        founders = np.arange(len(durations))
    order = founders[np.argsort(durations[founders], kind="stable")]
    pieces = np.array_split(order, min(count, len(order)))
    fastest = [durations[members].min() for members in pieces]
    tiers = np.maximum(np.searchsorted(fastest, durations, side="right") - 1, 0).astype(np.int64)
    for tier, members in enumerate(pieces):
        tiers[members] = tier
    return tiers
