"""Clients in turn: in an order, the least often drawn first, by groups, or by a script."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.drawing import Turns
from fedsim.units import Duration, to_ns
from fedsim.vocabulary.arrays import Ints


class Cyclic(Selection):
    """The next block of clients in numerical order, cyclically; an unavailable client loses its turn."""

    name = "cyclic"
    Params = CohortParams

    def __init__(self, params: CohortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        self._turns = Turns(self.lap)

    def lap(self, number: int) -> Ints:
        """The order of the clients in the lap of this number, from 0."""
        return np.arange(self.server.clients)

    def draw(self, count: int) -> list[int]:
        return self._turns.take(count, self.available())


class ReshuffledCyclic(Cyclic):
    """The next block of clients in a random order; when all have had their turn, a new order is drawn.

    If all clients are always online, each participates exactly once in every N / cohort rounds ("regularized
    participation" of Wang and Ji, NeurIPS 2022). An unavailable client loses its turn.
    """

    name = "reshuffled_cyclic"

    def lap(self, number: int) -> Ints:
        orders = self.server.stream(Purpose.SELECTION, 3)
        return orders.generator(k=number).permutation(self.server.clients)


class RoundRobin(Selection):
    """Least often drawn clients first; ties go to the least recently drawn, then to the lowest number.

    If all clients are always online, this is ``cyclic``; otherwise a client catches up on missed turns.
    """

    name = "round_robin"
    Params = CohortParams

    def __init__(self, params: CohortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        self._draws = 0
        self._times = np.zeros(server.clients, dtype=np.int64)
        self._last = np.full(server.clients, -1, dtype=np.int64)

    def draw(self, count: int) -> list[int]:
        available = self.available()
        order = np.lexsort((available, self._last[available], self._times[available]))
        chosen = available[order[: max(0, count)]]
        self._times[chosen] += 1
        self._last[chosen] = self._draws
        self._draws += 1
        clients: list[int] = chosen.tolist()
        return clients


class PeriodicGroups(Selection):
    """Groups participate in turn, each for a slot of rounds or time during which clients are drawn from that group.

    The periodic availability of Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client
    Participation, NeurIPS 2022, section 6, with a separate order per group that continues where the group's last
    slot ended. Rounds in which no client of the group is available are skipped.
    """

    name = "periodic_groups"

    class Params(CohortParams):
        groups: int = Field(default=5, ge=1)
        """Number of groups: equal blocks of consecutive clients (to one client)."""
        slot_rounds: int = Field(default=100, ge=1)
        """Rounds per slot, in which one group participates."""
        slot: Duration | None = Field(default=None, gt=0)
        """Simulated time per slot, instead of rounds."""
        offset: Literal["random"] | Annotated[float, Field(ge=0, lt=1)] = 0.0
        """Share of the first slot that has already passed at the start, or a random share drawn from the seed."""
        order: Literal["permutation", "independent"] = "permutation"
        """Within a slot: all clients in turn in a random order, redrawn every lap; or an independent uniform draw per
        round."""

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        if params.groups > server.clients:
            raise UserError(
                f"there are {params.groups} groups, but {server.clients} clients",
                where="server.selection.groups",
            )
        offset = params.offset
        if offset == "random":
            offset = server.stream(Purpose.SELECTION, 4).uniform(0)
        self._slot_ns = None if params.slot is None else to_ns(params.slot)
        length = params.slot_rounds if self._slot_ns is None else self._slot_ns
        self._offset = int(offset * length)
        self._round = 0
        blocks = np.array_split(np.arange(server.clients), params.groups)
        self._is_member = [np.isin(np.arange(server.clients), block) for block in blocks]
        self._turns = [
            Turns(partial(_lap, block, server.stream(Purpose.SELECTION, 5, group)))
            for group, block in enumerate(blocks)
        ]

    @property
    def group(self) -> int:
        """The group of the current slot."""
        if self._slot_ns is None:
            slot = (self._round + self._offset) // int(self.params.slot_rounds)
        else:
            slot = (self.server.now_ns + self._offset) // self._slot_ns
        return slot % int(self.params.groups)

    def next_change_ns(self) -> int | None:
        """The start of the next slot if slots are measured in time."""
        if self._slot_ns is None:
            return None
        elapsed = (self.server.now_ns + self._offset) % self._slot_ns
        return self.server.now_ns + self._slot_ns - elapsed

    def draw(self, count: int) -> list[int]:
        present = self.available()
        available = present[self._is_member[self.group][present]]
        if self._slot_ns is None:
            slot_rounds = int(self.params.slot_rounds)
            while not len(available) and len(present):
                self._round += slot_rounds - (self._round + self._offset) % slot_rounds
                available = present[self._is_member[self.group][present]]
        group = self.group
        self._round += 1
        if self.params.order == "permutation":
            return self._turns[group].take(count, available)
        chosen: list[int] = self.generator().permutation(available)[:count].tolist()
        return chosen


def _lap(members: Ints, stream: Stream, lap: int) -> Ints:
    """The order of one group in a lap."""
    return stream.generator(k=lap).permutation(members)


class Scripted(Selection):
    """Dispatches exactly the clients of the script; one that is offline gets its work when it checks in.

    Imposes a paper's participation pattern. Under asynchronous schedules the script is read as one long queue of
    clients.
    """

    name = "scripted"
    chooses = False

    class Params(CohortParams):
        cohort: int | None = Field(default=None, ge=1, le=10**9)
        """Updates that close a round of a schedule with ``over_selection``; default: those of all its clients."""
        rounds: list[list[int]] = Field(min_length=1)
        """Clients of each round, each at most once per round. After the last round, the script starts again. Edge
        servers follow the same script, each with its own clients, counted from 0 in the order of their numbers."""

    def __init__(self, params: Params, server: ServerPort) -> None:
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
