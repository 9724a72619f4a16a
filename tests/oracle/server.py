"""The server of the brute-force simulator: one list of events, one list of dispatches, no clever index."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from tests.oracle.base import END, LAST, LEAVE, TIMER, Dispatch, Event, Wish
from tests.oracle.devices import FOREVER, NS, Devices, Life, nanoseconds
from tests.oracle.schedules import SCHEDULES, SELECTIONS
from tests.oracle.shared import SharedLinks


class Simulation:
    """One run of a scenario; ``rows`` and ``versions`` are what fedsim's tables hold.

    Args:
        scenario: as a YAML file would hold it, with every value that matters given.
        tables: the trace: ``on_end``, ``devices`` (window, period in ns), ``availability`` rows (client, start, end,
            state), ``network`` rows, ``network_series`` rows (series, direction, start, end, rate) and
            ``network_assign`` rows (client, series, offset, scale), in nanoseconds and bit/s.
        observed: ends of transfers in the tables under comparison, of which shared links adopt the rounding.
    """

    def __init__(
        self,
        scenario: dict[str, Any],
        tables: dict[str, Any],
        observed: Mapping[tuple[int, str], int] | None = None,
    ) -> None:
        self.scenario = scenario
        self.stop = scenario["stop"]
        self.until = nanoseconds(self.stop["simulated_time"])
        self.devices = Devices(scenario, tables, self.until)
        self.links = SharedLinks(self, observed or {}) if self.devices.shared else None
        self.clients = self.devices.clients
        server = scenario["server"]
        detection = server.get("failure_detection", 0)
        self.detection = None if detection == "never" else nanoseconds(detection)
        self.aggregation = nanoseconds(server.get("aggregation_time", 0))
        self.now = 0
        self.busy_until = 0
        self.version = self.round = self.arrivals = 0
        self.finished = self.over = False
        self.events: list[Event] = []
        self.set = 0
        self.dispatches: list[Dispatch] = []
        self.working: dict[int, Dispatch] = {}
        self.awaited: dict[int, Dispatch] = {}
        self.versions: list[dict[str, Any]] = []
        self.sequence = [0] * self.clients
        energy = scenario["devices"].get("energy", {})
        self.capacity = energy.get("battery_j")
        self.floor = Fraction(str(energy.get("battery_floor", 0.2)))
        self.recharge = Fraction(str(energy.get("recharge_w", 5.0)))
        self.charge = [Fraction(self.capacity or 0)] * self.clients
        self.charged_at = [0] * self.clients
        self.resting = [0] * self.clients
        self.recharging: set[int] = set()
        self.needs: dict[int, Callable[[], None]] = {}
        self.wishes: list[Wish] = []
        selection, schedule = server["selection"], server["schedule"]
        self.selection = SELECTIONS[selection["name"]](selection, self)
        self.schedule = SCHEDULES[schedule["name"]](schedule, self)

    def add(self, at: int, kind: int, order: int, act: Callable[[], None]) -> Event:
        """Put an event on the list."""
        event = Event(at, kind, order, act)
        if at < FOREVER:
            self.events.append(event)
        return event

    def timer(self, at: int, act: Callable[[], None]) -> Event:
        """An event among the timers, which follow the order in which they were set."""
        self.set += 1
        return self.add(at, TIMER, self.set, act)

    def call_off(self, event: Event | None) -> None:
        """Take an event from the list."""
        if event in self.events:
            self.events.remove(event)

    def run(self) -> None:
        """Until the end."""
        self.schedule.start()
        while self.events and not self.finished:
            event = min(self.events, key=lambda item: item.key)
            if event.key[0] > self.until:
                break
            self.events.remove(event)
            self.now = event.key[0]
            event.act()
        if not self.finished:
            self.now = self.until
        for dispatch in self.dispatches:
            if not dispatch.over:
                if self.links is not None:
                    self.links.forget(dispatch)
                self._settle(dispatch, "unfinished", self.now)
            elif dispatch.outcome is None:
                dispatch.outcome = "unfinished" if dispatch.arrived else "dropped"

    def next_free(self, client: int) -> int:
        """The first instant from now on at which a client that is not at work can be asked."""
        return self.devices.returns(client, max(self.now, self.resting[client]))

    def next_chance(self, client: int) -> int:
        """The first such instant at which, as far as is known now, the server does not aggregate."""
        return self.devices.returns(client, max(self.now, self.resting[client], self.busy_until))

    def can_be_asked(self, client: int) -> bool:
        """Whether the client is checked in and not at work."""
        return (
            client not in self.working
            and client not in self.awaited
            and client not in self.recharging
            and self.next_free(client) == self.now
        )

    def there(self) -> list[int]:
        """Clients that can be asked, by number."""
        return [client for client in range(self.clients) if self.can_be_asked(client)]

    def hand_out(
        self, client: int, steps: int | None = None, group: int = 0, deadline: int | None = None
    ) -> Dispatch:
        """Give work to a client, now or as soon as the server has aggregated and the client is there."""
        if steps is None:
            steps = self.devices.full_steps(client)
        dispatch = Dispatch(-1, client, -1, -1, -1, -1, steps, group, Life(-1), deadline)
        self.awaited[client] = dispatch
        self._try(dispatch)
        return dispatch

    def _try(self, dispatch: Dispatch) -> None:
        client = dispatch.client
        at = self.next_chance(client)
        if len(self.dispatches) >= self.stop.get("dispatches", FOREVER):
            return
        if client in self.working or client in self.recharging:
            dispatch.waiting = None
        elif at > self.now:
            dispatch.waiting = self.timer(at, lambda: self._try(dispatch))
        else:
            del self.awaited[client]
            self._hand(dispatch)

    def _hand(self, dispatch: Dispatch) -> None:
        client = dispatch.client
        dispatch.number, dispatch.sequence = len(self.dispatches), self.sequence[client]
        dispatch.version, dispatch.round, dispatch.at = self.version, self.round, self.now
        dispatch.handed = True
        self.sequence[client] += 1
        if self.capacity is not None:
            self.charge[client] = self.charge_at(client, self.now)
        dispatch.life.start = self.now
        self.dispatches.append(dispatch)
        self.working[client] = dispatch
        if self.links is not None:
            self.links.begin(dispatch)
        else:
            dispatch.life = self.devices.life(
                client,
                self.now,
                dispatch.steps,
                dispatch.sequence,
                dispatch.deadline,
                None if self.capacity is None else self.charge[client],
            )
            self.end_at(dispatch)
        if len(self.dispatches) == self.stop.get("dispatches"):
            self.add(self.now, LAST, 0, self._finish)
        dispatch.on_handed()

    def _finish(self) -> None:
        self.finished = True

    def end_at(self, dispatch: Dispatch) -> None:
        """Note when a dispatch whose life is known ends."""
        ended = dispatch.life.ended
        if ended is not None and ended < FOREVER:
            self.add(ended, END, dispatch.number, lambda: self.end(dispatch))

    def end(self, dispatch: Dispatch) -> None:
        """A dispatch ends: its update arrives, or it is lost."""
        if dispatch.over:
            return
        if dispatch.life.arrived is not None:
            self._free(dispatch, self.now)
            dispatch.arrived = True
            dispatch.staleness = self.version - dispatch.version
            self.arrivals += 1
            if self.over:
                dispatch.outcome = "late"
                return
            if self.arrivals >= self.stop.get("arrivals", FOREVER):
                self.finished = True
            self.schedule.arrival(dispatch)
        else:
            # The server learns of it among the timers, before anybody who waited for this client.
            if self.detection is not None and not self.over:
                self.timer(self.now + self.detection, lambda: self._detected(dispatch))
            self._settle(dispatch, "dropped", self.now)

    def _detected(self, dispatch: Dispatch) -> None:
        if not dispatch.given_up:
            self.schedule.gone(dispatch)

    def cut(self, dispatch: Dispatch) -> None:
        """Call a dispatch off, now."""
        if not dispatch.handed:
            self.call_off(dispatch.waiting)
            del self.awaited[dispatch.client]
        elif not dispatch.over:
            if self.links is not None:
                self.links.cut(dispatch)
            self._settle(dispatch, "cut", self.now)
        else:
            dispatch.given_up = True

    def _settle(self, dispatch: Dispatch, outcome: str, at: int) -> None:
        dispatch.outcome = outcome
        self._free(dispatch, at)

    def _free(self, dispatch: Dispatch, at: int) -> None:
        dispatch.over = True
        dispatch.ended = at
        client = dispatch.client
        self.working.pop(client, None)
        if self.capacity is not None:
            self.charge[client] -= self.energy(dispatch)
            assert self.charge[client] >= 0
            self.charged_at[client] = at
            self.resting[client] = at
            missing = self.capacity * max(self.floor, Fraction(1, 100)) - self.charge[client]
            if missing > 0:
                nanos = missing / self.recharge * NS
                self.resting[client] = at + math.ceil(nanos)
                self.recharging.add(client)
                self.timer(self.resting[client], lambda: self._recharged(client))
        self._look_again(client)

    def _recharged(self, client: int) -> None:
        self.recharging.remove(client)
        if client in self.awaited:
            dispatch = self.awaited[client]
            dispatch.waiting = self.timer(self.now, lambda: self._try(dispatch))
        if client in self.needs:
            self.timer(self.now, self.needs.pop(client))
        self._look_again(client)

    def _look_again(self, client: int) -> None:
        for wish in self.wishes:
            if client in wish.clients:
                self._look_out(wish)

    def charge_at(self, client: int, at: int) -> Fraction:
        """Joules in the battery of a client that rests."""
        rested = Fraction(at - self.charged_at[client], NS)
        return min(Fraction(self.capacity), self.charge[client] + rested * self.recharge)

    def energy(self, dispatch: Dispatch) -> Fraction:
        """Joules that a dispatch has cost by its end."""
        watts = dict(zip(("download", "compute", "upload"), self.devices.power(), strict=True))
        work = dispatch.life.work(dispatch.ended if dispatch.ended is not None else self.now)
        return sum((watts[kind] * Fraction(ns, NS) for kind, ns in work.items()), Fraction(0))

    def make_version(self, updates: list[Dispatch], **attributes: Any) -> None:
        """One server update of these, now."""
        self.version += 1
        for update in updates:
            update.outcome, update.entered = "aggregated", self.version
        self.versions.append(
            {
                "version": self.version,
                "time": self.now,
                "round": self.round,
                "contributors": [update.number for update in updates],
                "staleness": [update.staleness for update in updates],
                **attributes,
            }
        )
        self.busy_until = self.now + self.aggregation

    def count_round(self) -> None:
        """A round is over (or a version is made, under schedules without rounds)."""
        self.round += 1
        if self.round >= self.stop.get("rounds", FOREVER):
            self.over = True
            self.add(self.now, LEAVE, -1, self._finish)

    def when_somebody(self, act: Callable[[], None], clients: list[int] | None = None) -> Wish:
        """Act at the next instant at which one of these clients can be asked who cannot now."""
        wish = Wish(act, list(range(self.clients)) if clients is None else clients)
        self._look_out(wish)
        self.wishes.append(wish)
        return wish

    def forget(self, wish: Wish | None) -> None:
        """Drop a wish."""
        if wish in self.wishes:
            self.call_off(wish.event)
            self.wishes.remove(wish)

    def _look_out(self, wish: Wish) -> None:
        at = min(
            (
                self.next_free(client)
                for client in wish.clients
                if not {client} & {*self.working, *self.awaited, *self.recharging}
                and not (wish.event is None and self.next_free(client) == self.now)
            ),
            default=FOREVER,
        )
        if wish.event is None or wish.event.key[0] > at:
            self.call_off(wish.event)
            wish.event = self.timer(at, lambda: self._fulfil(wish))

    def _fulfil(self, due: Wish) -> None:
        """Act on this wish, and on all others that can be acted on by now, the oldest first."""
        for wish in list(self.wishes):
            if wish is due or any(self.can_be_asked(client) for client in wish.clients):
                self.forget(wish)
                wish.act()

    def rows(self) -> list[dict[str, Any]]:
        """The table of dispatches."""
        result = []
        for d in self.dispatches:
            at, life = d.ended, d.life
            assert at is not None

            def by(instant: int | None, end: int = at) -> int | None:
                return instant if instant is not None and instant <= end else None

            result.append(
                {
                    "dispatch_id": d.number,
                    "client_id": d.client,
                    "version": d.version,
                    "round": d.round,
                    "dispatched": d.at,
                    "downloaded": by(life.downloaded),
                    "computed": by(life.computed),
                    "arrived": at if d.arrived else None,
                    "steps_assigned": d.steps,
                    "steps_done": life.steps(at),
                    "outcome": d.outcome,
                    "cause": life.cause if d.outcome == "dropped" else None,
                    "staleness": d.staleness,
                    "aggregated_version": d.entered,
                    "energy": float(self.energy(d)),
                    "sequence": d.sequence,
                    "group": d.group if d.outcome == "aggregated" else 0,
                    "ended": at,
                    **life.work(at),
                }
            )
        return result
