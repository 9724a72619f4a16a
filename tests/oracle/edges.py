"""A brute-force simulator of edge servers, for clients that are always online, on links that are not shared.

Clients may move. One list of events, sorted whenever one is added; nothing is shared with fedsim. Times are random
whole microseconds, so that two events hardly ever coincide; or whole seconds, of which many do. Then the order is that
of docs/time.md: ends of work, the model of the cloud, timers.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

Case = dict[str, Any]

END, MODEL, TIMER = range(3)
"""The order of the events of an instant."""


def random_case(seed: int) -> Case:
    """A hierarchy with random durations, schedules and limits."""
    draw = random.Random(seed)

    def ns(low_s: float, high_s: float) -> int:
        return 1000 * draw.randrange(round(low_s * 1e6), round(high_s * 1e6))

    edges = [[ns(1, 9) for _ in range(draw.randint(1, 4))] for _ in range(draw.randint(1, 4))]
    of_client = [edge for edge, clients in enumerate(edges) for _ in clients]
    moves = []
    for time in sorted(ns(1, 100) for _ in range(draw.choice([0, 0, 5, 40]))):
        client, edge = draw.randrange(len(of_client)), draw.randrange(len(edges))
        if of_client[client] != edge:
            of_client[client] = edge
            moves.append((time, client, edge))
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
        "moves": moves,
        "drops": draw.random() < 0.5,
        "until": ns(60, 120),
        "ties": False,
    }


def case_with_ties(seed: int) -> Case:
    """A hierarchy of rounds with durations in whole seconds, whose clients stay."""
    draw = random.Random(seed)

    def ns(low_s: int, high_s: int) -> int:
        return 10**9 * draw.randint(low_s, high_s)

    edges = [[ns(1, 9) for _ in range(draw.randint(1, 4))] for _ in range(draw.randint(1, 3))]
    return {
        "edges": edges,
        "down": [ns(1, 4) for _ in edges],
        "up": [ns(1, 4) for _ in edges],
        "rounds": draw.randint(1, 3),
        "edge": ("sync", draw.choice([None, ns(3, 8)]), draw.choice(["run", "cut"])),
        "cloud": ("sync", draw.choice([None, ns(8, 20)]), draw.choice(["run", "cut"])),
        "partial": False,
        "aggregation": 0,
        "moves": [],
        "drops": False,
        "until": ns(60, 60),
        "ties": True,
    }


class Edge:
    """An edge server."""

    def __init__(self, world: "World", number: int) -> None:
        self.world, self.number = world, number
        self.kind = world.case["edge"]
        self.version = 0
        self.work: dict[str, Any] | None = None  # the dispatch of the cloud
        self.active = False
        self.round: set[int] | None = None  # the clients of the open round
        self.arrived: list[int] = []
        # Clients whose updates have come, or were lost, while it was not active.
        self.waiting: list[tuple[int, bool]] = []
        self.life = self.opened = self.free = 0  # free: when the last aggregation ends
        self.opens: tuple[int, int] | None = (
            None  # the life and instant in which a round will be opened
        )

    def idle(self) -> set[int]:
        here = (client for client, edge in enumerate(self.world.where) if edge == self.number)
        return {client for client in here if client not in self.world.busy}

    def begin(self, work: dict[str, Any]) -> None:
        self.work, self.active, self.done = work, True, 0
        self.began = self.world.now
        waiting, self.waiting = self.waiting, []
        if self.kind[0] == "async":
            for client in self.idle().difference(client for client, _ in waiting):
                self.dispatch(client)
        for client, has_arrived in waiting:
            if not self.active:
                self.waiting.append((client, has_arrived))
            elif has_arrived:
                self.receive(client)
            else:
                self.again(client)
        if self.kind[0] == "sync":
            self.open()

    def open_later(self) -> None:
        """Open a round after the ends of this instant."""
        opens = (self.life, self.world.now)
        if self.opens == opens:
            return
        self.opens = opens

        def open_now() -> None:
            if self.opens == opens and self.life == opens[0] and self.active and self.round is None:
                self.opens = None
                self.open()

        self.world.at(0, open_now, TIMER)

    def open(self) -> None:
        if self.world.now < self.free:
            life = self.life
            self.world.at(
                self.free - self.world.now,
                lambda: self.open() if life == self.life and self.active else None,
            )
            return
        idle = self.idle()
        if not idle:
            self.round = None  # until a client is there and done
            return
        self.round, self.arrived = idle, []
        self.opened += 1
        for client in idle:
            self.dispatch(client)
        if self.kind[1] is not None:
            number, life = self.opened, self.life
            self.world.at(self.kind[1], lambda: self.deadline(number, life), TIMER)

    def dispatch(self, client: int) -> None:
        world = self.world
        world.count += 1
        world.busy[client] = work = (self.number, self.opened, world.count)
        world.at(world.durations[client], lambda: self.end(client, work))

    def end(self, client: int, work: tuple[int, int, int]) -> None:
        if self.world.busy.get(client) != work:
            return  # stopped
        del self.world.busy[client]
        if self.kind[0] == "async":
            if self.active:
                self.receive(client)
            else:
                self.waiting.append((client, True))
        elif self.round is not None and work[1] == self.opened:
            self.arrived.append(client)
            self.close_if_complete()
        self.world.free(client)

    def available(self, client: int) -> None:
        if self.kind[0] == "async":
            if client not in dict(self.waiting):
                self.again(client)
        elif self.round is None and self.active and self.world.now >= self.free:
            self.open_later()

    def lost(self, client: int, opened: int) -> None:
        if self.kind[0] == "async" and not self.active:
            self.waiting.append((client, False))
        elif self.kind[0] == "sync" and self.round is not None and opened == self.opened:
            self.round.remove(client)
            self.close_if_complete()

    def close_if_complete(self) -> None:
        if set(self.arrived) == self.round:
            self.close()

    def receive(self, client: int) -> None:
        self.make([client])
        self.again(client)

    def again(self, client: int) -> None:
        if not self.active or client not in self.idle():
            return
        if self.world.now >= self.free:
            self.dispatch(client)
            return
        life = self.life
        self.world.at(
            self.free - self.world.now, lambda: self.again(client) if life == self.life else None
        )

    def deadline(self, number: int, life: int) -> None:
        if life == self.life and self.round is not None and number == self.opened:
            self.close()

    def close(self) -> None:
        late = self.round - set(self.arrived)
        arrived, self.round = self.arrived, None
        if self.kind[2] == "cut":
            for client in late:
                del self.world.busy[client]
        self.make(arrived)
        if self.active:
            self.open_later()
        if self.kind[2] == "cut":
            for client in late:
                self.world.free(client)

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
        self.active, self.round, self.waiting = False, None, []
        stopped = [client for client, work in self.world.busy.items() if work[0] == self.number]
        for client in stopped:
            del self.world.busy[client]
        for client in stopped:
            self.world.free(client)


class World:
    """The cloud and its edge servers."""

    def __init__(self, case: Case) -> None:
        self.case, self.now = case, 0
        self.events: list[tuple[int, int, int, Callable[[], None]]] = []
        self.count = 0
        self.made: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.versions: list[tuple[int, tuple[int, ...]]] = []
        self.sent: list[dict[str, Any]] = []
        self.durations = [duration for clients in case["edges"] for duration in clients]
        self.where = [edge for edge, clients in enumerate(case["edges"]) for _ in clients]
        # By client: the edge server that it works for, its round, and the number of the work.
        self.busy: dict[int, tuple[int, int, int]] = {}
        self.edges = [Edge(self, number) for number in range(len(case["edges"]))]
        self.engaged: set[int] = set()
        self.opened = 0
        for time, client, edge in case["moves"]:
            self.at(time, partial(self.move, client, edge))

    def move(self, client: int, edge: int) -> None:
        self.where[client] = edge
        work = self.busy.get(client)
        if work is not None and self.case["drops"]:
            del self.busy[client]
            self.edges[work[0]].lost(client, work[1])
        self.free(client)

    def free(self, client: int) -> None:
        """Let the edge server at which a client is give it work, unless it has some."""
        if client not in self.busy:
            self.edges[self.where[client]].available(client)

    def at(self, delay: int, call: Callable[[], None], order: int = END) -> None:
        self.count += 1
        self.events.append((self.now + delay, order, self.count, call))
        self.events.sort(key=lambda event: event[:3])

    def run(self) -> None:
        if self.case["cloud"][0] == "sync":
            self.open()
        else:
            for edge in range(len(self.edges)):
                self.dispatch(edge, None)
        while self.events and self.events[0][0] <= self.case["until"]:
            self.now, _, _, call = self.events.pop(0)
            call()

    def open_later(self) -> None:
        """Open a round after the ends of this instant."""
        number = self.opened
        self.at(0, lambda: self.open() if number == self.opened else None, TIMER)

    def open(self) -> None:
        idle = [edge for edge in range(len(self.edges)) if edge not in self.engaged]
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
            self.at(
                limit, lambda: self.close() if number == self.opened and self.round else None, TIMER
            )

    def dispatch(self, edge: int, deadline: int | None) -> dict[str, Any]:
        work = {"edge": edge, "dispatched": self.now, "deadline": deadline, "open": True}
        self.sent.append(work)
        self.engaged.add(edge)

        def begin() -> None:
            if work["open"]:
                work["downloaded"] = self.now
                self.edges[edge].begin(work)

        self.at(self.case["down"][edge], begin, MODEL)
        return work

    def arrive(self, edge: int, work: dict[str, Any]) -> None:
        if not work["open"]:
            return
        work["open"], work["arrived"] = False, self.now
        self.engaged.discard(edge)
        if self.case["cloud"][0] == "async":
            self.versions.append((self.now, (edge,)))
            self.dispatch(edge, None)
        elif self.round is None:
            self.open_later()
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
                self.engaged.discard(work["edge"])
                if "downloaded" in work and "computed" not in work:
                    self.edges[work["edge"]].abandon()
        self.round = None
        self.open_later()
