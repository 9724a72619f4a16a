"""Devices of the brute-force simulator: when they are online, how long a dispatch takes if nothing is shared.

All instants are whole nanoseconds; amounts of data are fractions of a bit.
"""

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from fedsim.randomness import Purpose, Stream

NS = 10**9
FOREVER = 10**18
"""Later than anything that is simulated (30 years)."""


def exact(number: Any) -> Fraction:
    """A number of the scenario as the decimal fraction that is written there."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def nanoseconds(seconds: Any) -> int:
    """Seconds of the scenario in nanoseconds, rounded to the nearest, halves to even."""
    return round(exact(seconds) * NS)


def online_intervals(scenario: dict[str, Any], tables: dict[str, Any], until: int) -> list[Any]:
    """For each client, the intervals [start, end) in which it is online, merged, from 0 to beyond ``until``."""
    clients = scenario["task"]["clients"]
    section = scenario["devices"].get("availability", {"name": "always"})
    if section["name"] == "always":
        return [[(0, FOREVER)] for _ in range(clients)]
    offset = nanoseconds(section.get("start", 0))
    result = []
    for client in range(clients):
        device = tables["devices"][client]
        first, last = device["window"]
        period = device.get("period", last - first)
        pieces = [row[1:] for row in tables["availability"] if row[0] == client]
        pieces = [(start, end) for start, end, state in pieces if state == 1]
        moved = []
        match section.get("on_end", tables["on_end"]):
            case "wrap":
                count = (until + offset) // period + 3
                for lap in range(-count, count):
                    moved += [
                        (a + lap * period, min(b, first + period) + lap * period) for a, b in pieces
                    ]
            case "unavailable":
                moved = pieces
            case "hold":
                moved = list(pieces)
                if any(start == first for start, _ in pieces):
                    moved.append((-FOREVER, first))
                if any(end == last for _, end in pieces):
                    moved.append((last, 2 * FOREVER))
        shifted = sorted((a - offset, b - offset) for a, b in moved)
        result.append(_merged([(max(a, 0), b) for a, b in shifted if b > 0 and b > a]))
    return result


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in intervals:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass
class Rate:
    """Bit/s over time: ``pieces`` of (start, end, rate), end to end from 0, the last one without an end."""

    pieces: list[tuple[int, int, Fraction]]

    def moved(self, start: int, end: int) -> Fraction:
        """Bits between two instants."""
        return sum(
            (rate * max(0, min(end, b) - max(start, a)) / NS for a, b, rate in self.pieces),
            Fraction(0),
        )

    def when(self, start: int, bits: Fraction) -> int:
        """Instant at which so many bits have left, when the first leaves at ``start``; FOREVER if never."""
        if not bits:
            return start
        left = bits
        for a, b, rate in self.pieces:
            if b <= start or not rate:
                continue
            begin = max(a, start)
            if rate * (b - begin) >= left * NS:
                return begin + round(left * NS / rate)
            left -= rate * (b - begin) / NS
        return FOREVER


def constant(rate: Any) -> Rate:
    """A rate that never changes."""
    return Rate([(0, FOREVER, exact(rate))])


def series_rate(
    tables: dict[str, Any], client: int, direction: str, on_end: str, until: int, begin: int
) -> Rate:
    """The rate of a client that rides a series, from time 0 on, which is ``begin`` in the trace."""
    series, offset, scale = next(
        (s, o + begin, f) for c, s, o, f in tables["network_assign"] if c == client
    )
    rows = [
        (start, end, rate * exact(scale))
        for name, d, start, end, rate in tables["network_series"]
        if name == series and d in (direction, "both")
    ]
    length = max(end for _, end, _ in rows)
    laps = range((until + offset) // length + 3) if on_end == "wrap" else range(1)
    pieces = [
        (a + lap * length - offset, b + lap * length - offset, rate)
        for lap in laps
        for a, b, rate in rows
    ]
    last = pieces[-1]
    pieces.append((last[1], FOREVER, last[2] if on_end == "hold" else Fraction(0)))
    return Rate([(max(a, 0), b, Fraction(r)) for a, b, r in pieces if b > 0])


def series_mean(tables: dict[str, Any], client: int, direction: str) -> Fraction:
    """The nominal rate of a client that rides a series: the mean over the time of the series."""
    series, scale = next((s, f) for c, s, _, f in tables["network_assign"] if c == client)
    rows = [
        (end - start, rate)
        for name, d, start, end, rate in tables["network_series"]
        if name == series and d in (direction, "both")
    ]
    bits = sum(length * exact(rate) * exact(scale) for length, rate in rows)
    return bits / sum(length for length, _ in rows)


@dataclass
class Phase:
    """Work of one kind on a dispatch: stretches of time, and what is done at their ends.

    ``stretches`` are (start, end, latency, rate): for steps, latency 0 and a rate of nanoseconds of nominal work.
    """

    kind: str
    stretches: list[tuple[int, int]] = field(default_factory=list)

    def active(self, until: int) -> int:
        """Nanoseconds at work by an instant."""
        return sum(max(0, min(end, until) - start) for start, end in self.stretches)


@dataclass
class Life:
    """What becomes of a dispatch if the server does not call it off; ``None`` where something never happens."""

    start: int
    downloaded: int | None = None
    computed: int | None = None
    arrived: int | None = None
    ended: int | None = None
    phases: list[Phase] = field(default_factory=list)
    downs: list[tuple[int, int]] = field(default_factory=list)
    steps_ends: list[int] = field(default_factory=list)
    ups: list[tuple[int, int]] = field(default_factory=list)
    cause: str | None = None

    def work(self, until: int) -> dict[str, int]:
        """Nanoseconds at work in each phase by an instant."""
        result = {"download": 0, "compute": 0, "upload": 0}
        for phase in self.phases:
            result[phase.kind] += phase.active(until)
        return result

    def steps(self, until: int) -> int:
        """Local steps done by an instant."""
        return sum(end <= until for end in self.steps_ends)


class Devices:
    """The population of a scenario with unshared links."""

    def __init__(self, scenario: dict[str, Any], tables: dict[str, Any], until: int) -> None:
        devices = scenario["devices"]
        self.scenario, self.until = scenario, until
        self.clients = scenario["task"]["clients"]
        self.online = online_intervals(scenario, tables, until)
        self.policy = devices.get("availability", {}).get("on_disconnect", "drop")
        self.seed = scenario.get("seed", 0)
        self.failures = devices.get("failures", {})
        step = devices["compute"]["step"]
        steps = step if isinstance(step, list) else [step] * self.clients
        self.step = [nanoseconds(value) for value in steps]
        self.slow = [self._slow_spans(client) for client in range(self.clients)]
        self._read_network(devices["network"], tables)
        server = scenario["server"]
        size = exact(4 * scenario["task"]["parameters"])
        self.bytes_down = size
        self.bytes_up = size * exact(
            server.get("compression", {"up": {"factor": 1}})["up"]["factor"]
        )

    def _slow_spans(self, client: int) -> list[tuple[int, int, Fraction]]:
        spans = self.scenario["devices"]["compute"].get("perturbations", [])
        cuts = {0, FOREVER}
        mine = []
        for span in spans:
            if span.get("clients") is None or client in span["clients"]:
                a = nanoseconds(span["at"])
                b = nanoseconds(span["until"]) if "until" in span else FOREVER
                mine.append((a, b, exact(span["factor"])))
                cuts |= {a, b}
        edges = sorted(cuts)
        return [
            (a, b, math.prod((f for x, y, f in mine if x <= a < y), start=Fraction(1)))
            for a, b in itertools.pairwise(edges)
        ]

    def _read_network(self, network: dict[str, Any], tables: dict[str, Any]) -> None:
        self.shared = network["name"] == "shared"
        self.latency = nanoseconds(network.get("latency", 0.04))
        if network["name"] == "traced":
            on_end = network.get("on_end", tables["on_end"])
            begin = nanoseconds(self.scenario["devices"].get("availability", {}).get("start", 0))
            self.down = [
                series_rate(tables, c, "down", on_end, self.until, begin)
                for c in range(self.clients)
            ]
            self.up = [
                series_rate(tables, c, "up", on_end, self.until, begin) for c in range(self.clients)
            ]
            self.down_nominal, self.up_nominal = (
                [series_mean(tables, c, d) for c in range(self.clients)] for d in ("down", "up")
            )
            return

        def rates(key: str) -> list[Fraction]:
            if network.get(key, "bundle") == "bundle":
                return [exact(row[key]) for row in tables["network"]]
            return [exact(network[key])] * self.clients

        self.down_nominal, self.up_nominal = rates("down"), rates("up")
        self.down = [constant(rate) for rate in self.down_nominal]
        self.up = [constant(rate) for rate in self.up_nominal]

    def is_online(self, client: int, at: int) -> bool:
        """Whether the client is online."""
        return any(start <= at < end for start, end in self.online[client])

    def leaves(self, client: int, at: int) -> int:
        """When a client that is online leaves."""
        return next(end for start, end in self.online[client] if start <= at < end)

    def returns(self, client: int, at: int) -> int:
        """The first instant from ``at`` on at which the client is online; FOREVER if there is none."""
        for start, end in self.online[client]:
            if at < end:
                return max(at, start)
        return FOREVER

    def full_steps(self, client: int) -> int:
        """Local steps of a full piece of work."""
        training = self.scenario["training"]
        if "time_budget" in training:
            return max(1, nanoseconds(training["time_budget"]) // self.step[client])
        if "local_epochs" in training:
            return math.ceil(exact(training["local_epochs"]) * self.epoch_steps())
        return int(training.get("local_steps", 10))

    def epoch_steps(self) -> int:
        """Steps of one pass over a client's samples."""
        samples = self.scenario["task"].get("samples", 200)
        return math.ceil(Fraction(samples, self.scenario["training"].get("batch_size", 32)))

    def expected(self, client: int) -> Fraction:
        """Seconds of a full piece of work at nominal speed, as the server knows it."""
        transfers = 2 * Fraction(self.latency, NS)
        network = self.scenario["devices"]["network"]
        for size, rates, limit in (
            (self.bytes_down, self.down_nominal, "server_down"),
            (self.bytes_up, self.up_nominal, "server_up"),
        ):
            transfers += 8 * size / min(rates[client], exact(network.get(limit, FOREVER)))
        return transfers + self.full_steps(client) * Fraction(self.step[client], NS)

    def crash_after(self, client: int, sequence: int) -> int:
        """Nanoseconds of compute time after which a dispatch crashes."""
        per_hour = self.failures.get("crash_rate", 0)
        if not per_hour:
            return FOREVER
        draw = Stream(self.seed, Purpose.FAILURE, 0).uniform(client, sequence)
        return math.floor(-math.log(draw) / per_hour * 3600 * NS)

    def is_lost(self, client: int, sequence: int, attempt: int) -> bool:
        """Whether an upload does not arrive (the draw is forced: the probability is 0 or 1)."""
        return bool(self.failures.get("upload_loss", 0) == 1)

    def power(self) -> tuple[Fraction, Fraction, Fraction]:
        """Watts of download, compute and upload."""
        energy = self.scenario["devices"].get("energy", {})
        return (
            exact(energy.get("download_w", 0.8)),
            exact(energy.get("compute_w", 2.5)),
            exact(energy.get("upload_w", 1.2)),
        )

    def life(
        self,
        client: int,
        start: int,
        steps: int,
        sequence: int,
        deadline: int | None,
        charge: Fraction | None,
    ) -> Life:
        """The whole life of a dispatch on links that are not shared; ``charge`` in joules, None without a battery."""
        life = Life(start)
        self._live(life, client, steps, sequence, deadline)
        crash = self.crashes(life, self.crash_after(client, sequence))
        at = min(crash, self.empties(life, charge))
        cause = "crash" if crash == at else "battery"
        if life.ended is not None and life.ended == at and life.cause == "offline":
            life.cause = cause
        is_over = life.ended is not None and life.ended <= at
        return life if is_over or at >= FOREVER else _ended(life, at, cause)

    def crashes(self, life: Life, after: int) -> int:
        """The instant at which so much compute time is spent without pauses; FOREVER if the steps are done by then."""
        for phase in life.phases:
            for start, end in phase.stretches if phase.kind == "compute" else []:
                if after < end - start or (after == end - start and end != life.computed):
                    return start + after
                after -= end - start
        return FOREVER

    def empties(self, life: Life, charge: Fraction | None) -> int:
        """The instant, rounded down, at which the battery is empty; FOREVER if it lasts.

        A phase that ends at that very instant is done.
        """
        if charge is None:
            return FOREVER
        watts = dict(zip(("download", "compute", "upload"), self.power(), strict=True))
        for phase in life.phases:
            for number, (start, end) in enumerate(phase.stretches):
                power, last = watts[phase.kind], number == len(phase.stretches) - 1
                need = power * (end - start) / NS
                if power and (need > charge or (need == charge and not last)):
                    return start + math.floor(charge / power * NS)
                charge -= need
        return FOREVER

    def _live(
        self, life: Life, client: int, steps: int, sequence: int, deadline: int | None
    ) -> None:
        end = self.transfer(life, "download", client, life.start)
        if end is None:
            return
        life.downloaded = end
        computed = self.compute(life, client, end, steps, self.send_by(client, deadline))
        if computed is None:
            return
        life.computed = computed
        attempts = 1 + self.failures.get("upload_retries", 0)
        at = computed
        for attempt in range(attempts):
            arrival = self.transfer(life, "upload", client, at)
            if arrival is None:
                return
            if not self.is_lost(client, sequence, attempt):
                life.arrived = life.ended = arrival
                return
            at = arrival
        life.ended, life.cause = at, "lost upload"

    def send_by(self, client: int, deadline: int | None) -> int | None:
        """When a client that works for a deadline should send, as far as it can tell; None if it need not care."""
        server, network = self.scenario["server"], self.scenario["devices"]["network"]
        if deadline is None or server.get("partial_work") != "send":
            return None
        rate = min(self.up_nominal[client], exact(network.get("server_up", FOREVER)))
        return deadline - self.latency - round(8 * NS * self.bytes_up / rate)

    def transfer(self, life: Life, kind: str, client: int, at: int) -> int | None:
        """The instant at which the last byte has arrived; None (``life.ended`` says when) if it never does."""
        phase = Phase(kind)
        life.phases.append(phase)
        rate = (self.down if kind == "download" else self.up)[client]
        bits = 8 * (self.bytes_down if kind == "download" else self.bytes_up)
        log = life.downs if kind == "download" else life.ups
        left = bits
        while True:
            if not self.is_online(client, at):
                if self.policy == "drop":
                    life.ended, life.cause = at, "offline"
                    return None
                at = self.returns(client, at)
                if at >= FOREVER:
                    return None
            leave = self.leaves(client, at)
            sent = rate.when(at, left)
            arrival = min(sent + self.latency, FOREVER)
            if arrival <= leave and arrival < FOREVER:
                phase.stretches.append((at, arrival))
                log.append((at, arrival))
                return arrival
            if leave >= FOREVER:
                phase.stretches.append((at, FOREVER))
                return None
            phase.stretches.append((at, leave))
            if self.policy != "drop":
                left -= min(left, rate.moved(at, leave))
            at = leave

    def nominal(self, client: int, start: int, end: int) -> Fraction:
        """Nanoseconds of nominal work that are done between two instants of work."""
        return sum(
            (Fraction(max(0, min(end, b) - max(start, a))) / f for a, b, f in self.slow[client]),
            Fraction(0),
        )

    def when_done(self, client: int, start: int, amount: Fraction) -> Fraction:
        """The instant at which so much nominal work is done from ``start`` on."""
        for a, b, f in self.slow[client]:
            if b <= start:
                continue
            begin = max(Fraction(a), Fraction(start))
            if (b - begin) / f >= amount:
                return begin + amount * f
            amount -= (b - begin) / f
        return Fraction(FOREVER)

    def compute(
        self, life: Life, client: int, at: int, steps: int, limit: int | None
    ) -> int | None:
        """The instant at which the client has done its steps, or stops; None (``life.ended``) if it never does."""
        phase = Phase("compute")
        life.phases.append(phase)
        step = self.step[client]
        begin, done_before = at, Fraction(0)
        foresight = self.scenario["server"].get("foresight", False)
        if limit is not None and limit < begin:
            life.ended, life.cause = begin, "declined"
            return None
        while True:
            if not self.is_online(client, at) and self.policy != "finish":
                if self.policy == "drop":
                    life.ended, life.cause = at, "offline"
                    return None
                if self.policy == "send_partial":
                    self._whole(life)
                    return self._stopped(life, at, "offline")
                at = self.returns(client, at)
                if at >= FOREVER:
                    return None
            leave = FOREVER if self.policy == "finish" else self.leaves(client, at)
            for number in range(len(life.steps_ends), steps):
                end = round(self.when_done(client, at, (number + 1) * step - done_before))
                if foresight and limit is not None and end > limit:
                    self._whole(life)
                    stop = life.steps_ends[-1] if life.steps_ends else begin
                    phase.stretches.append((at, leave))
                    phase.stretches = [(a, min(b, stop)) for a, b in phase.stretches if a < stop]
                    return self._stopped(life, stop, "declined")
                if end > leave or end >= FOREVER:
                    break
                life.steps_ends.append(end)
                if limit is not None and not foresight:
                    worked = phase.active(FOREVER) + end - at
                    if self._should_send(len(life.steps_ends), steps, worked, limit - end):
                        phase.stretches.append((at, end))
                        return end
            if len(life.steps_ends) == steps:
                phase.stretches.append((at, life.steps_ends[-1]))
                return life.steps_ends[-1]
            phase.stretches.append((at, leave))
            done_before += round(self.nominal(client, at, leave))
            at = leave

    def _should_send(self, done: int, steps: int, worked: int, left: int) -> bool:
        """Whether the next step or epoch would take longer than what is left, at the pace of those done so far."""
        whole = self.scenario["server"].get("partial_unit") == "epoch"
        unit = self.epoch_steps() if whole else 1
        following = min(unit, steps - done)
        return done % unit == 0 and following > 0 and Fraction(worked, done) * following > left

    def _whole(self, life: Life) -> None:
        """Leave out the steps that are not sent."""
        if self.scenario["server"].get("partial_unit") == "epoch":
            del life.steps_ends[len(life.steps_ends) // self.epoch_steps() * self.epoch_steps() :]

    def _stopped(self, life: Life, at: int, cause: str) -> int | None:
        if not life.steps_ends:
            life.ended, life.cause = at, cause
            return None
        return at


def _ended(life: Life, at: int, cause: str) -> Life:
    """A life that ends without an arrival at an instant."""

    def past(instant: int | None) -> int | None:
        return instant if instant is not None and instant <= at else None

    return Life(
        life.start,
        past(life.downloaded),
        past(life.computed),
        None,
        at,
        [Phase(p.kind, [(a, min(b, at)) for a, b in p.stretches if a < at]) for p in life.phases],
        steps_ends=[end for end in life.steps_ends if end <= at],
        cause=cause,
    )
