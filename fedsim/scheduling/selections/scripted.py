"""Scripted participation: exactly these clients in these rounds."""

from __future__ import annotations

from pydantic import Field

from fedsim.errors import UserError
from fedsim.scheduling.base import CohortParams, Selection, ServerPort


class ScriptedParams(CohortParams):
    """Parameters of scripted participation."""

    cohort: int | None = Field(default=None, ge=1)
    """Updates that close a round of a schedule with ``over_selection``; default: those of all its clients."""
    rounds: list[list[int]] = Field(min_length=1)
    """Clients of each round, each at most once per round. After the last round, the script starts again. Edge servers
    follow the same script, each with its own clients, counted from 0 in the order of their numbers."""


class Scripted(Selection):
    """Dispatches exactly the clients of the script; one that is offline gets its work when it checks in.

    Imposes a paper's participation pattern. Under asynchronous schedules the script is read as one long queue of
    clients.
    """

    name = "scripted"
    chooses = False
    Params = ScriptedParams

    def __init__(self, params: ScriptedParams, server: ServerPort) -> None:
        super().__init__(params, server)
        self._next_round = 0
        self._queue: list[int] = []
        for number, clients in enumerate(params.rounds):
            if outside := set(clients) - set(range(server.clients)):
                raise UserError(
                    f"round {number} names client {min(outside)}, but there are {server.clients} clients",
                    where="server.selection.rounds",
                    hint=f"clients are 0 to {server.clients - 1}, those of an edge server in its own count",
                )
            if len(set(clients)) < len(clients):
                raise UserError(
                    f"round {number} of the script names a client twice",
                    where="server.selection.rounds",
                    hint="name each client once per round",
                )

    def cohort(self, factor: float = 1.0) -> list[int]:
        """The next round of the script; ``factor`` is ignored."""
        clients = self.params.rounds[self._next_round % len(self.params.rounds)]
        self._next_round += 1
        return list(clients)

    def draw(self, count: int) -> list[int]:
        """The next clients of the script that are idle; the first busy one ends the draw."""
        drawn: list[int] = []
        while len(drawn) < count:
            if not self._queue:
                self._queue = self.cohort()
                if not self._queue:
                    break
            if self.server.is_busy(self._queue[0]) or self._queue[0] in drawn:
                break
            drawn.append(self._queue.pop(0))
        return drawn
