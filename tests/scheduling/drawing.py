"""Rounds of a selection in a tiny world, and as much of a server as a selection needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.scheduling.worlds import NO_NETWORK
from tests.simulation.harness import Book, simulate


def draws(selection: dict[str, Any], *, clients: int, rounds: int, **world: Any) -> Book:
    """Rounds of one second in which everybody is always there, unless said otherwise."""
    return simulate(
        step_s=world.pop("step_s", [1.0] * clients),
        steps=1,
        selection=selection,
        rounds=rounds,
        **NO_NETWORK,
        **world,
    )


def by_round(book: Book) -> list[list[int]]:
    """Clients of each round in order of dispatching; rounds without clients are left out."""
    clients: dict[int, list[int]] = {}
    for row in sorted(book.rows, key=lambda row: int(row["dispatch_id"])):
        clients.setdefault(row["round"], []).append(row["client"])
    return [clients[key] for key in sorted(clients)]


def flat(rounds: list[list[int]]) -> list[int]:
    """The clients of several rounds, one after the other."""
    return [client for clients in rounds for client in clients]


def frequency(book: Book, clients: int, rounds: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Share of the rounds in which each client took part."""
    return np.bincount([row["client"] for row in book.rows], minlength=clients) / rounds


class Port:
    """As much of a server as a selection needs to be built."""

    def __init__(self, clients: int, duration_s: list[float] | None = None) -> None:
        self.clients = clients
        self.now_ns = 0
        self.samples = np.ones(clients, dtype=np.int64)
        self._duration_s = duration_s or [1.0] * clients
        self.idle = np.arange(clients)
        self.losses: dict[int, float] = {}
        self.accuracies: list[float] = []

    def stream(self, purpose: Any, *keys: int) -> Any:
        from fedsim.randomness import Stream

        return Stream(0, purpose, *keys)

    def online_clients(self) -> Any:
        return self.idle

    def expected_duration_s(self, client: int) -> float:
        return self._duration_s[client]

    def training_losses(self, dispatches: Any) -> Any:
        return np.array([self.losses[dispatch.client] for dispatch in dispatches])

    def client_accuracies(self) -> Any:
        return np.array(self.accuracies)
