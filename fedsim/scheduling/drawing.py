"""Ways to draw and group clients that several parts share: in turn, by weights, with replacement, by tiers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedsim.scheduling.base import Selection, ServerPort
from fedsim.vocabulary.arrays import Floats, Ints


class Turns:
    """Clients in turn, lap after lap, in the order ``lap(n)`` of the n-th lap, n = 0, 1, ...

    A client that is not available when its turn comes loses that turn for this lap. A turn that comes up twice in one
    draw, where one lap ends and the next begins, is kept for the next draw, so that no client is drawn twice at once or
    loses a turn.
    """

    def __init__(self, lap: Callable[[int], Ints]) -> None:
        self._lap = lap
        self._laps = 0
        self._queue: deque[int] = deque()

    def take(self, count: int, available: Ints) -> list[int]:
        """The next ``count`` clients of those ``available``, in their order; fewer if there are fewer."""
        takeable = set(available.tolist())
        count = min(count, len(takeable))
        taken: list[int] = []
        postponed: list[int] = []
        chosen: set[int] = set()
        while len(taken) < count:
            if not self._queue:
                self._queue.extend(self._lap(self._laps).tolist())
                self._laps += 1
            client = self._queue.popleft()
            if client in takeable:
                takeable.discard(client)
                chosen.add(client)
                taken.append(client)
            elif client in chosen:
                postponed.append(client)
        self._queue.extendleft(reversed(postponed))
        return taken


def weighted_order(generator: np.random.Generator, clients: Ints, weights: Floats) -> list[int]:
    """Clients of positive weight in the order of successive draws, each in proportion to the weights that remain.

    (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006: order by exponential times / weight.)
    """
    positive = weights > 0
    times = generator.exponential(size=len(clients))[positive] / weights[positive]
    order: list[int] = clients[positive][np.argsort(times, kind="stable")].tolist()
    return order


class Replacing(Selection):
    """A selection with replacement: a client that is drawn several times works once and counts several times."""

    with_replacement = True

    def __init__(self, params: Any, server: ServerPort) -> None:
        super().__init__(params, server)
        self._times: dict[int, int] = {}

    def counted(self, drawn: Ints) -> list[int]:
        """The different clients among those drawn, ascending; records how often each was drawn."""
        clients, times = np.unique(drawn, return_counts=True)
        different: list[int] = clients.tolist()
        self._times.update(zip(different, times.tolist(), strict=True))
        return different

    def multiplicity(self, client: int) -> int:
        """How often the last draw that included ``client`` drew it."""
        return self._times.get(client, 1)


def profile(server: ServerPort) -> Floats:
    """Expected duration of a full workload of every client, as a profiling run measures it; (N,) seconds."""
    return np.array([server.expected_duration_s(client) for client in range(server.clients)])


def tiers_by_ratio(
    durations_s: Sequence[float] | Floats, ratio: float, founders: Ints | None = None
) -> Ints:
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
    durations_s: Sequence[float] | Floats, count: int, founders: Ints | None = None
) -> Ints:
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
