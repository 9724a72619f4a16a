"""A brute-force simulator of edge servers, for clients that are always online on links that are not shared.

One list of events, sorted whenever one is added; nothing is shared with fedsim. Times are random whole microseconds, so
that two events hardly ever coincide.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Case = dict[str, Any]


def random_case(seed: int) -> Case:
    """A hierarchy with random durations, schedules and limits."""
    draw = random.Random(seed)

    def ns(low_s: float, high_s: float) -> int:
        return 1000 * draw.randrange(round(low_s * 1e6), round(high_s * 1e6))

    edges = [[ns(1, 9) for _ in range(draw.randint(1, 4))] for _ in range(draw.randint(1, 4))]
    edge_deadline = draw.choice([None, None, ns(2, 9)])
    cloud_deadline = draw.choice([None, None, ns(8, 40)])
    return {
        "edges": edges,
        "down": [ns(0.1, 6) for _ in edges],
        "up": [ns(0.1, 6) for _ in edges],
        "rounds": draw.randint(1, 3),
        "edge": draw.choice([("sync", edge_deadline, draw.choice(["run", "cut"])), ("async",)]),
        "cloud": draw.choice([("sync", cloud_deadline, draw.choice(["run", "cut"])), ("async",)]),
        "partial": draw.random() < 0.5,
        "aggregation": draw.choice([0, ns(0.1, 1)]),
        "until": ns(60, 120),
    }


class Edge:
    """An edge server."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.clients = world.case["edges"][number]
        self.kind = world.case["edge"]
        self.version = 0
        self.work: dict[str, Any] | None = None  # the dispatch of the cloud
        self.active = False
        self.busy: set[int] = set()
        self.round: set[int] | None = None  # the clients of the open round
        self.arrived: list[int] = []
        self.waiting: list[Callable[[], None]] = []
        self.life = self.opened = self.free = 0  # free: when the last aggregation ends

    def begin(self, work: dict[str, Any]) -> None:
        self.work, self.active, self.done = work, True, 0
        self.began = self.world.now
        waiting, self.waiting = self.waiting, []
        if self.kind[0] == "async":
            for client in range(len(self.clients)):
                if client not in self.busy and not any(client == one[1] for one in waiting):
                    self.dispatch(client)
        for one in waiting:
            if self.active:
                self.receive(one[1])
            else:
                self.waiting.append(one)
        if self.kind[0] == "sync":
            self.open()

    def open(self) -> None:
        if self.world.now < self.free:
            life = self.life
            self.world.at(
                self.free - self.world.now,
                lambda: self.open() if life == self.life and self.active else None,
            )
            return
        idle = set(range(len(self.clients))) - self.busy
        if not idle:
            self.round = None  # until a client is done
            return
        self.round, self.arrived = idle, []
        for client in idle:
            self.dispatch(client)
        self.opened += 1
        if self.kind[1] is not None:
            number, life = self.opened, self.life
            self.world.at(self.kind[1], lambda: self.deadline(number, life))

    def dispatch(self, client: int) -> None:
        self.busy.add(client)
        life, opened = self.life, self.opened + (self.kind[0] == "sync" and 1)
        self.world.at(self.clients[client], lambda: self.end(client, life, opened))

    def end(self, client: int, life: int, opened: int) -> None:
        if life != self.life or (client, opened) in self.world.cut[self.number]:
            return
        self.busy.discard(client)
        if self.kind[0] == "async":
            if self.active:
                self.receive(client)
            else:
                self.waiting.append(("arrival", client))
        elif self.round is None:
            if self.active and self.world.now >= self.free:
                self.open()
        elif opened == self.opened and client in self.round:
            self.arrived.append(client)
            if set(self.arrived) == self.round:
                self.close()

    def receive(self, client: int) -> None:
        self.make([client])
        self.again(client)

    def again(self, client: int) -> None:
        if self.active and client not in self.busy and self.world.now >= self.free:
            self.dispatch(client)
        elif self.active:
            life = self.life
            self.world.at(
                self.free - self.world.now,
                lambda: self.again(client) if life == self.life and self.active else None,
            )

    def deadline(self, number: int, life: int) -> None:
        if life == self.life and self.round is not None and number == self.opened:
            self.close()

    def close(self) -> None:
        late = self.round - set(self.arrived)
        arrived, self.round = self.arrived, None
        if self.kind[2] == "cut":
            for client in late:
                self.world.cut[self.number].add((client, self.opened))
                self.busy.discard(client)
        self.make(arrived)
        if self.active:
            self.open()

    def make(self, clients: list[int]) -> None:
        world = self.world
        if clients:
            self.version += 1
            world.made.append((self.number, self.version, world.now, tuple(clients)))
            self.free = world.now + world.case["aggregation"]
        self.done += 1
        work, spent = self.work, world.now - self.began
        self.began = world.now
        late = work["deadline"] is not None and world.case["partial"]
        late = late and world.now + spent + world.case["up"][self.number] > work["deadline"]
        if self.done >= world.case["rounds"] or late:
            self.active = False
            self.free = 0
            world.at(world.case["aggregation"], lambda: self.send(work))

    def send(self, work: dict[str, Any]) -> None:
        if work["open"]:
            work["computed"], work["rounds"] = self.world.now, self.done
            self.world.at(
                self.world.case["up"][self.number], lambda: self.world.arrive(self.number, work)
            )

    def abandon(self) -> None:
        self.life += 1
        self.active, self.busy, self.round, self.waiting = False, set(), None, []


class World:
    """The cloud and its edge servers."""

    def __init__(self, case: Case) -> None:
        self.case, self.now = case, 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.made: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.versions: list[tuple[int, tuple[int, ...]]] = []
        self.sent: list[dict[str, Any]] = []
        self.cut: list[set[tuple[int, int]]] = [set() for _ in case["edges"]]
        self.edges = [Edge(self, number) for number in range(len(case["edges"]))]
        self.busy: set[int] = set()
        self.opened = 0

    def at(self, delay: int, call: Callable[[], None]) -> None:
        self.count += 1
        self.events.append((self.now + delay, self.count, call))
        self.events.sort(key=lambda event: event[:2])

    def run(self) -> None:
        if self.case["cloud"][0] == "sync":
            self.open()
        else:
            for edge in range(len(self.edges)):
                self.dispatch(edge, None)
        while self.events and self.events[0][0] <= self.case["until"]:
            self.now, _, call = self.events.pop(0)
            call()

    def open(self) -> None:
        idle = [edge for edge in range(len(self.edges)) if edge not in self.busy]
        self.round: list[dict[str, Any]] | None = None
        if not idle:
            return
        self.opened += 1
        limit = self.case["cloud"][1]
        deadline = None if limit is None else self.now + limit
        self.round = [self.dispatch(edge, deadline) for edge in idle]
        self.arrived: list[int] = []
        if limit is not None:
            number = self.opened
            self.at(limit, lambda: self.close() if number == self.opened and self.round else None)

    def dispatch(self, edge: int, deadline: int | None) -> dict[str, Any]:
        work = {"edge": edge, "dispatched": self.now, "deadline": deadline, "open": True}
        self.sent.append(work)
        self.busy.add(edge)

        def begin() -> None:
            if work["open"]:
                work["downloaded"] = self.now
                self.edges[edge].begin(work)

        self.at(self.case["down"][edge], begin)
        return work

    def arrive(self, edge: int, work: dict[str, Any]) -> None:
        if not work["open"]:
            return
        work["open"], work["arrived"] = False, self.now
        self.busy.discard(edge)
        if self.case["cloud"][0] == "async":
            self.versions.append((self.now, (edge,)))
            self.dispatch(edge, None)
        elif self.round is None:
            self.open()
        elif work in self.round:
            self.arrived.append(edge)
            if len(self.arrived) == len(self.round):
                self.close()

    def close(self) -> None:
        late = [work for work in self.round if work["open"]]
        if self.arrived:
            self.versions.append((self.now, tuple(self.arrived)))
        if self.case["cloud"][2] == "cut":
            for work in late:
                work["open"] = False
                self.busy.discard(work["edge"])
                if "downloaded" in work and "computed" not in work:
                    self.edges[work["edge"]].abandon()
        self.open()
