"""Selections and schedules of the brute-force simulator, after docs/schedules.md and the scenario reference."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tests.oracle.base import Dispatch, Event, Wish
from tests.oracle.devices import FOREVER, exact, nanoseconds


class Selection:
    """Which clients get work: :meth:`draw` takes at most so many of some clients."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        self.section, self.server = section, server
        self.cohort = section.get("cohort")


class RoundRobin(Selection):
    """Least often drawn first, then longest ago, then by number."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        super().__init__(section, server)
        self.times = [0] * server.clients
        self.last = [-1] * server.clients
        self.draws = 0

    def draw(self, count: int, among: list[int]) -> list[int]:
        order = sorted(among, key=lambda c: (self.times[c], self.last[c], c))[:count]
        for client in order:
            self.times[client] += 1
            self.last[client] = self.draws
        self.draws += 1
        return order


class Cyclic(Selection):
    """The next clients by number, round and round; who is not there loses the turn."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        super().__init__(section, server)
        self.next = 0

    def draw(self, count: int, among: list[int]) -> list[int]:
        clients = self.server.clients
        turns = [(self.next + i) % clients for i in range(clients)]
        drawn = [client for client in turns if client in among][:count]
        if drawn:
            self.next = (drawn[-1] + 1) % clients
        return drawn


class Schedule:
    """When to hand out work, and what makes a version.

    :meth:`start` is called at time 0, :meth:`arrival` with an update, :meth:`gone` when the server learns of a failure.
    """

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        self.section, self.server = section, server
        self.watched: dict[Dispatch, Event] = {}

    def duration(self, key: str) -> int | None:
        """A duration of the schedule's section."""
        value = self.section.get(key)
        return None if value is None else nanoseconds(value)

    def watch(self, dispatch: Dispatch, given_up: Callable[[Dispatch], None]) -> None:
        """Give a dispatch up after the schedule's timeout."""
        timeout = self.duration("timeout")
        if timeout is not None:

            def late() -> None:
                self.server.cut(dispatch)
                given_up(dispatch)

            def begin() -> None:
                self.watched[dispatch] = self.server.timer(self.server.now + timeout, late)

            if dispatch.handed:
                begin()
            else:
                dispatch.on_handed = begin

    def unwatch(self, dispatch: Dispatch) -> None:
        """A dispatch has ended."""
        self.server.call_off(self.watched.pop(dispatch, None))


class Sync(Schedule):
    """Rounds: select, dispatch, wait, aggregate."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        super().__init__(section, server)
        self.is_open = False
        self.waiting: Wish | None = None
        self.pending: list[Dispatch] = []
        self.updates: list[Dispatch] = []
        self.timer: Event | None = None
        self.goal = FOREVER

    def start(self) -> None:
        """Start a round, or wait until enough clients are there."""
        server = self.server
        server.forget(self.waiting)
        if server.busy_until > server.now:
            server.timer(server.busy_until, self.start)
            return
        there = server.there()
        over = exact(self.section.get("over_selection", 1))
        cohort = server.selection.cohort
        count = server.clients if cohort is None else math.ceil(cohort * over)
        least = max(1, self.section.get("min_cohort", 1))
        chosen = server.selection.draw(count, there)
        empty = not chosen and self.section.get("min_updates", 1) == 0
        if len(chosen) < least and not empty:
            self.waiting = server.when_somebody(self.start)
            return
        self.is_open = True
        self.updates, self.pending = [], []
        self.goal = len(chosen) if cohort is None or over == 1 else min(cohort, len(chosen))
        length = self.duration("deadline")
        deadline = None if length is None else server.now + length
        for client in chosen:
            self.pending.append(server.hand_out(client, deadline=deadline))
        self.timer = None
        if deadline is not None:
            self.timer = server.timer(deadline, self.close)
        elif empty:
            self.close()

    def arrival(self, dispatch: Dispatch) -> None:
        if self.is_open and dispatch in self.pending:
            self.pending.remove(dispatch)
            self.updates.append(dispatch)
            if len(self.updates) >= self.goal or not self.pending:
                self.close()
            return
        dispatch.outcome = "late"

    def gone(self, dispatch: Dispatch) -> None:
        if self.is_open and dispatch in self.pending:
            self.pending.remove(dispatch)
            if not self.pending:
                self.close()

    def close(self) -> None:
        """End the round."""
        server = self.server
        self.is_open = False
        server.call_off(self.timer)
        if self.section.get("stragglers") == "cut":
            for dispatch in self.pending:
                server.cut(dispatch)
        self.pending = []
        if len(self.updates) >= self.section.get("min_updates", 1):
            server.make_version(self.updates)
        else:
            for update in self.updates:
                update.outcome = "discarded"
        server.count_round()
        pause = self.duration("pause") or 0
        if server.finished or server.over:
            return
        server.timer(server.now + pause, self.start)


class Continuous(Schedule):
    """Every arrival, or every ``buffer_size``-th one, makes a version; places are filled at once."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        super().__init__(section, server)
        cohort = server.selection.cohort
        self.places = section.get("concurrency", server.clients if cohort is None else cohort)
        self.places = min(self.places, server.clients)
        self.size = section.get("buffer_size", 10) if section["name"] == "buffered" else 1
        self.same = section.get("next_client") == "same"
        self.owners: set[int] = set()
        self.taken = 0
        self.buffer: list[Dispatch] = []
        self.waiting: Wish | None = None
        self.later: Event | None = None

    def start(self) -> None:
        """Give free places to clients."""
        server = self.server
        server.forget(self.waiting)
        server.call_off(self.later)
        if server.busy_until > server.now:
            self.later = server.timer(server.busy_until, self.start)
            return
        free = self.places - self.taken
        if free > 0:
            there = [client for client in server.there() if client not in self.owners]
            for client in server.selection.draw(free, there) if there else []:
                if self.same:
                    self.owners.add(client)
                self.give(client)
        if self.taken < self.places:
            self.waiting = server.when_somebody(self.start)

    def give(self, client: int) -> None:
        """Hand out work."""
        self.taken += 1
        self.watch(self.server.hand_out(client), self.free)

    def free(self, dispatch: Dispatch) -> None:
        """A place is free again."""
        self.taken -= 1
        if self.same:
            self.give(dispatch.client)
        elif self.waiting not in self.server.wishes:
            self.start()

    def arrival(self, dispatch: Dispatch) -> None:
        server = self.server
        self.unwatch(dispatch)
        most = self.section.get("max_staleness")
        assert dispatch.staleness is not None
        if most is not None and dispatch.staleness > most:
            dispatch.outcome = "discarded"
        else:
            self.buffer.append(dispatch)
            if len(self.buffer) >= self.size:
                server.make_version(self.buffer)
                self.buffer = []
                server.count_round()
        self.free(dispatch)

    def gone(self, dispatch: Dispatch) -> None:
        self.unwatch(dispatch)
        self.free(dispatch)


class Tiered(Schedule):
    """Rounds of tiers of like speed."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        super().__init__(section, server)
        self.tiers: list[list[int]] = []
        self.pending: list[list[Dispatch]] = []
        self.updates: list[list[Dispatch]] = []
        self.waiting: list[Wish | None] = []
        self.later: list[Event | None] = []

    def start(self) -> None:
        """Form the tiers once somebody is online, and begin a round of each."""
        server = self.server
        everybody = list(range(server.clients))
        first = everybody if self.section.get("profiled") == "all" else server.there()
        if not first:
            server.when_somebody(self.start)
            return
        others = [client for client in everybody if client not in first]
        if "tiers" in self.section:
            self._divide(first, self.section["tiers"])
            for client in others:
                slower = [tier for tier in self.tiers if self._least(tier) <= self._takes(client)]
                (slower[-1] if slower else self.tiers[0]).append(client)
        else:
            ratio = exact(self.section.get("speed_ratio", 2))
            self._group(first, ratio)
            for client in list(others):
                takes = self._takes(client)
                like = [t for t in self.tiers if takes / ratio <= self._least(t) <= takes]
                if like:
                    max(like, key=self._least).append(client)
                    others.remove(client)
            self._group(others, ratio)
            self.tiers.sort(key=self._least)
        self.pending, self.updates = [[] for _ in self.tiers], [[] for _ in self.tiers]
        self.waiting, self.later = [None for _ in self.tiers], [None for _ in self.tiers]
        for tier in range(len(self.tiers)):
            self.begin(tier)

    def _takes(self, client: int) -> Fraction:
        """Seconds of a full workload at nominal speed."""
        return self.server.devices.expected(client)

    def _least(self, tier: list[int]) -> Fraction:
        """Seconds of the fastest client of a tier."""
        return min(self._takes(client) for client in tier)

    def _divide(self, clients: list[int], count: int) -> None:
        """So many tiers of equal size, the larger ones first, without empty ones."""
        rest = sorted(clients, key=lambda c: (self._takes(c), c))
        for left in range(count, 0, -1):
            size = math.ceil(len(rest) / left)
            if size:
                self.tiers.append(rest[:size])
            rest = rest[size:]

    def _group(self, clients: list[int], ratio: Fraction) -> None:
        """Tiers in which nobody takes more than so many times as long as the fastest."""
        rest = list(clients)
        while rest:
            fastest = min(self._takes(client) for client in rest)
            self.tiers.append([c for c in rest if self._takes(c) <= ratio * fastest])
            rest = [c for c in rest if self._takes(c) > ratio * fastest]

    def begin(self, tier: int) -> None:
        """Start a tier's round, or wait for somebody of it."""
        server = self.server
        server.forget(self.waiting[tier])
        server.call_off(self.later[tier])
        if server.busy_until > server.now:
            self.later[tier] = server.timer(server.busy_until, lambda: self.begin(tier))
            return
        there = [client for client in server.there() if client in self.tiers[tier]]
        cohort = server.selection.cohort or server.clients
        chosen = server.selection.draw(cohort, there) if there else []
        if not chosen:
            self.waiting[tier] = server.when_somebody(lambda: self.begin(tier), self.tiers[tier])
            return
        self.updates[tier], self.pending[tier] = [], []
        for client in chosen:
            dispatch = server.hand_out(client, group=tier)
            self.pending[tier].append(dispatch)
            self.watch(dispatch, self.gone)

    def arrival(self, dispatch: Dispatch) -> None:
        self.unwatch(dispatch)
        tier = dispatch.group
        self.updates[tier].append(dispatch)
        self.pending[tier].remove(dispatch)
        self.close(tier)

    def gone(self, dispatch: Dispatch) -> None:
        self.unwatch(dispatch)
        self.pending[dispatch.group].remove(dispatch)
        self.close(dispatch.group)

    def close(self, tier: int) -> None:
        """End the tier's round if nobody of it is awaited."""
        if self.pending[tier]:
            return
        if self.updates[tier]:
            self.server.make_version(self.updates[tier])
            self.server.count_round()
        self.updates[tier] = []
        self.begin(tier)


class Window(Schedule):
    """Every client reports once; all updates make one version."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        super().__init__(section, server)
        self.timers: list[Event] = []
        self.pending: list[Dispatch] = []
        self.updates: list[Dispatch] = []
        self.least_until = 0

    def start(self) -> None:
        """Start a window: every client gets work, as soon as it can take it."""
        server = self.server
        length, deadline = self.duration("length") or 0, self.duration("deadline")
        self.least_until = server.now + length
        self.timers = []
        if length:
            self.timers.append(server.timer(self.least_until, self.close_if_all))
        self.deadline = None if deadline is None else server.now + deadline
        if self.deadline is not None:
            self.timers.append(server.timer(self.deadline, self.close))
        for client in range(server.clients):
            self.pending.append(server.hand_out(client, deadline=self.deadline))

    def close_if_all(self) -> None:
        """End the window if everybody has reported and its length has passed."""
        if self.server.now >= self.least_until and not self.pending:
            self.close()

    def close(self) -> None:
        """End the window."""
        server = self.server
        for timer in self.timers:
            server.call_off(timer)
        for dispatch in sorted(self.pending, key=lambda pending: pending.number):
            server.cut(dispatch)
        if self.updates:
            server.make_version(self.updates)
        self.pending, self.updates = [], []
        server.count_round()
        server.timer(server.now, self.start)

    def arrival(self, dispatch: Dispatch) -> None:
        self.pending.remove(dispatch)
        self.updates.append(dispatch)
        self.close_if_all()

    def gone(self, dispatch: Dispatch) -> None:
        self.pending.remove(dispatch)
        self.pending.append(self.server.hand_out(dispatch.client, deadline=self.deadline))


class Group:
    """Clients of compass that are to arrive together."""

    def __init__(self, number: int, target: int, latest: int) -> None:
        self.number, self.target, self.latest = number, target, latest
        self.members: list[int] = []
        self.awaited: list[Dispatch] = []
        self.updates: list[Dispatch] = []
        self.timer: Event | None = None


class Compass(Schedule):
    """FedCompass: steps such that clients arrive together."""

    def __init__(self, section: dict[str, Any], server: Any) -> None:
        super().__init__(section, server)
        full = max(server.devices.full_steps(client) for client in range(server.clients))
        self.most = section.get("max_steps", full)
        self.least = section.get("min_steps", max(1, self.most // 5))
        self.warmup = section.get("warmup_steps", self.least)
        self.factor = exact(section.get("latest_factor", 1.2))
        self.speed: dict[int, Fraction] = {}
        self.groups: list[Group] = []
        self.numbers = 0
        self.late: list[Dispatch] = []
        self.group_of: dict[Dispatch, Group] = {}

    def start(self) -> None:
        for client in range(self.server.clients):
            self.need(client)

    def need(self, client: int) -> None:
        """Give work to a client as soon as the server has aggregated and the client is there."""
        server = self.server
        at = server.next_chance(client)
        if client in server.recharging:
            server.needs[client] = lambda: self.need(client)
        elif at > server.now:
            server.timer(at, lambda: self.need(client))
        else:
            self.give(client)

    def give(self, client: int) -> None:
        """Hand out work: measure, join or create."""
        server, now = self.server, self.server.now
        if client not in self.speed:
            self.watch(server.hand_out(client, self.warmup), self.gone)
            return
        speed = self.speed[client]
        best, steps = None, 0
        for group in self.groups:
            fit = (group.target - now) // speed
            if self.least <= fit <= self.most and fit >= steps:
                best, steps = group, int(fit)
        if best is None:
            fits = []
            for group in (one for one in self.groups if one.target > now):
                fastest = min(self.speed[member] for member in group.members)
                fits.append((group.target + self.most * fastest - now) // speed)
            steps = int(max(fits)) if fits else self.most
            steps = min(max(steps, self.least), self.most)
            self.numbers += 1
            length = math.ceil(steps * speed)
            best = Group(self.numbers, now + length, now + round(self.factor * length))
            self.groups.append(best)
            group = best
            best.timer = server.timer(best.latest, lambda: self.close(group))
        dispatch = server.hand_out(client, steps, group=best.number)
        best.awaited.append(dispatch)
        best.members.append(client)
        self.group_of[dispatch] = best
        self.watch(dispatch, self.gone)

    def arrival(self, dispatch: Dispatch) -> None:
        server = self.server
        self.unwatch(dispatch)
        client = dispatch.client
        self.speed[client] = Fraction(server.now - dispatch.at, dispatch.life.steps(server.now))
        group = self.group_of.get(dispatch)
        if group is None:
            server.make_version([dispatch])
            server.count_round()
            self.need(client)
        elif group in self.groups:
            group.awaited.remove(dispatch)
            group.updates.append(dispatch)
            if not group.awaited:
                self.close(group)
        else:
            self.late.append(dispatch)
            self.need(client)

    def close(self, group: Group) -> None:
        """The group makes a version, and its members get new work."""
        server = self.server
        self.groups.remove(group)
        server.call_off(group.timer)
        updates = group.updates + self.late
        if group.updates or (self.late and self.section.get("empty_timer", "flush") == "flush"):
            self.late = []
            server.make_version(updates)
            server.count_round()
        members = [update.client for update in group.updates]
        for client in sorted(members, key=lambda c: self.speed[c]):
            self.need(client)

    def gone(self, dispatch: Dispatch) -> None:
        self.unwatch(dispatch)
        group = self.group_of.get(dispatch)
        if group is not None and dispatch in group.awaited:
            group.awaited.remove(dispatch)
            group.members.remove(dispatch.client)
        if group is not None and group in self.groups and not group.awaited:
            if group.updates:
                self.close(group)
            else:
                self.groups.remove(group)
                self.server.call_off(group.timer)
        self.need(dispatch.client)


SELECTIONS = {"round_robin": RoundRobin, "cyclic": Cyclic}
SCHEDULES = {
    "sync": Sync,
    "async": Continuous,
    "buffered": Continuous,
    "tiered": Tiered,
    "compass": Compass,
    "window": Window,
}
