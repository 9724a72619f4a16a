"""Checks whether the clients of a run can participate, fill a cohort, and finish in time.

An error is certain for every client and every draw. Everything else is a warning with the number of clients affected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedsim.composition.requirements import demands_of
from fedsim.devices.availability.trace import TraceAvailabilityParams
from fedsim.devices.population import Population
from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.columns import LinkParams
from fedsim.network.shared import SharedNetwork
from fedsim.network.topology import Topology
from fedsim.scenario.model import Scenario
from fedsim.scheduling.base import Demands, cohort_of
from fedsim.simulation.facts import Work
from fedsim.units import NEVER, NS_PER_S, duration_at_least, to_ns
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_energy,
    format_number,
)

Seconds = npt.NDArray[np.float64]
_HOUR_S, _WEEK_S = 3600.0, 7 * 86_400.0
_RARELY = 1e-3
"""Clients are reported if the share of their dispatches that survive is below this."""
_MANY = 0.1
"""Clients that are too slow for a deadline are reported if their share is above this; some stragglers are intended."""
_MOST_TRANSPORTS = 20_000
"""Clients up to which the duration of each one's transfers includes what the transport adds, which takes a second."""
_LONGEST_LATENCY_S = 5.0
"""Longer latencies are reported; a signal by satellite takes a tenth of it."""
_LONGEST_LATENCY_OF_LINK_S, _SLOWEST_LINK_OF_TOPOLOGY_BPS = 1.0, 10e3
"""Longer latencies and lower capacities of links of a topology, which many clients share, are reported."""
_FASTEST_LINK_BPS = 100e9
"""Faster links of clients are reported; servers in data centers have such links, devices do not."""
_SLOWEST_LINK_BPS = 1000.0
"""Links below this rate are reported; the slowest links that transfer models have a multiple of it."""

_LARGE_FACTOR, _FAST_LINK_BPS = 100, 1e9
"""If a factor on the rates is at least this large and makes links faster than this, it is reported."""
_MOST_WATTS = 1000.0
"""More power of a device is reported; only servers draw it, and a phone draws as many milliwatts."""


@dataclass(frozen=True)
class Feasibility:
    """Compares the demands of a scenario with its clients' devices.

    Args:
        scenario: the scenario.
        population: the clients' devices.
        work: work per dispatch.
        traffic_bytes: bytes of the download and of the upload of a dispatch.
        memory_in_trace: reads the memory of each client's device from its trace, (N,), NaN if unknown; None if no trace
            gives memory. Only called for a hint.
    """

    scenario: Scenario
    population: Population
    work: Work
    traffic_bytes: tuple[float, float]
    memory_in_trace: Callable[[], npt.NDArray[np.float64] | None]

    def errors(self) -> Iterator[UserError]:
        """Mistakes that are certain for every client and draw."""
        yield from self._counts()
        if not self._usable.any():
            yield UserError(
                f"none of the {format_count(self.population.clients)} clients can ever be given work: "
                f"{self._exclusions}",
                where="devices",
                hint=self._inclusion,
            )
            return
        cohort = self._demands.cohort
        if cohort is not None and cohort > self._count and self._demands.updates:
            yield UserError(
                f"a round needs {format_counted(cohort, 'client')}, but {self._available}",
                where="server.schedule.min_cohort",
                hint=f"set at most {self._count}",
            )
        if self._late.all() and self._is_certain:
            yield UserError(
                f"no client can {self._finish}; the fastest needs {_duration(self._needed_s.min())}",
                where=self._limit_key,
                hint=self._more_time(self._needed_s.min(), self._needed_s.max()),
            )
        failures, stop = self.scenario.devices.failures, self.scenario.stop
        ends = stop.simulated_time or stop.dispatches
        if stop.rounds and self.scenario.server.schedule.type.synchronous:
            ends = True
        if failures.upload_loss == 1 and not ends:
            yield UserError(
                "every upload is lost, so the run never ends",
                where="devices.failures.upload_loss",
                hint="set it below 1, or give stop.simulated_time or stop.dispatches",
            )

    def _counts(self) -> Iterator[UserError]:
        """Numbers that exceed the number of clients, or the limits of the run."""
        server, stop, clients = self.scenario.server, self.scenario.stop, self.population.clients
        cohort = cohort_of(server.selection.params)
        if cohort is not None and cohort > clients and not server.selection.type.with_replacement:
            yield UserError(
                f"a cohort of {format_count(cohort)} cannot be drawn from {format_counted(clients, 'client')}",
                where="server.selection.cohort",
                hint=f"set at most {clients}, or leave it out to select all clients that are available",
            )
        concurrency, updates = self._demands.concurrency, self._demands.updates
        if concurrency is not None and concurrency > clients:
            yield UserError(
                f"{format_count(concurrency)} clients cannot be busy at once: there are only {format_count(clients)}",
                where="server.schedule.concurrency",
                hint=f"set at most {clients}, or leave it out to keep all clients busy",
            )
        for limit in ("arrivals", "dispatches"):
            allowed = getattr(stop, limit)
            if allowed is not None and updates > allowed:
                yield UserError(
                    f"a version needs {format_count(updates)} updates, but the run ends after "
                    f"{format_count(allowed)} {limit}",
                    where=_key(needed := server.schedule.type.updates_needed),
                    hint=f"set at most {allowed}, or raise stop.{limit}"
                    if needed
                    else f"raise stop.{limit} to at least {updates}",
                )

    def warnings(self) -> Iterator[UserError]:
        """Mistakes that are likely, or that affect only some clients."""
        server, failures = self.scenario.server, self.scenario.devices.failures
        cohort = cohort_of(server.selection.params)
        if cohort is not None and not server.selection.type.with_replacement:
            selected = math.ceil(cohort * self._demands.over_selection - 1e-9)
            if selected > self._count:
                yield UserError(
                    f"{format_count(selected)} clients should work at once, but {self._available}",
                    where="server.selection.cohort",
                    hint="rounds will have fewer clients than the scenario requests",
                )
        late = self._if_many(self._late)
        if late and not (late == self._count and self._is_certain):
            slowest = self._needed_s.max()
            yield UserError(
                f"at nominal speed, {format_count(late)} of {self._those} cannot {self._finish}; the slowest needs "
                f"{_duration(slowest)}",
                where=self._limit_key,
                hint=self._more_time(slowest),
            )
        if failures.upload_loss == 1:
            yield UserError(
                "every upload is lost, so no update ever arrives",
                where="devices.failures.upload_loss",
                hint="it is a probability from 0 to 1",
            )
        survives = np.exp(-failures.crash_rate * self._compute_s / _HOUR_S)
        crashing = int(np.count_nonzero(survives < _RARELY))
        if crashing:
            yield UserError(
                f"for {format_count(crashing)} of {format_count(self._count)} clients, fewer than 1 in 1,000 "
                "dispatches finish before a crash",
                where="devices.failures.crash_rate",
                hint="it is the number of crashes per hour of computing",
            )

        yield from self.forgotten_units()
        yield from self._small_batteries()
        yield from self._silent_tiers()
        if self.scenario.stop.simulated_time is not None:
            yield from drifting_hours(self.population, self._end_ns)

    def _small_batteries(self) -> Iterator[UserError]:
        """Warnings if a full battery, or one at its floor, does not last for a dispatch."""
        batteries, power = self.population.batteries, self.population.power
        if batteries is None:
            return
        down_s, up_s = self._transfers_s
        of_client = power.of_client[self._usable]
        with np.errstate(all="ignore"):
            works_s = np.stack([down_s, self._compute_s, up_s], axis=1)
            needed_j = (power.watts[of_client] * works_s).sum(axis=1)
        full_j, floor_j = (
            np.array(of_class)[of_client] for of_class in (batteries.capacity_j, batteries.floor_j)
        )
        lasts = needed_j <= full_j
        if empty := self._if_many(~lasts):
            worst = int(np.where(lasts, -np.inf, needed_j).argmax())
            yield UserError(
                f"for {format_count(empty)} of {self._those}, a full battery ({format_energy(full_j[worst])}) does not "
                f"last for a dispatch, which needs up to {format_energy(needed_j[worst])}",
                where=self._energy_key(of_client[worst], "battery_j"),
                hint="it is in joules, 3,600 per watt-hour; a phone's battery has about 50 kJ",
            )
        is_low = lasts & (needed_j > floor_j)
        if low := self._if_many(is_low):
            share = np.divide(needed_j, full_j, out=np.zeros_like(needed_j), where=is_low)
            worst = int(share.argmax())
            floor = math.ceil(share[worst] * 100) / 100
            yield UserError(
                f"for {format_count(low)} of {self._those}, a battery at its floor ({format_energy(floor_j[worst])}) "
                f"does not last for a dispatch, which needs up to {format_energy(needed_j[worst])}, so that dispatches "
                "are dropped",
                where=self._energy_key(of_client[worst], "battery_floor"),
                hint=f"set at least {floor:g}"
                if floor < 1
                else "raise battery_j, or give less work",
            )

    def _energy_key(self, of_class: int, key: str) -> str:
        """The path of a key of ``devices.energy``, or of a class that gives it."""
        classes = self.scenario.devices.energy.classes
        name = [None, *classes][of_class]
        given = name is not None and getattr(classes[name], key) is not None
        return f"devices.energy.classes.{name}.{key}" if given else f"devices.energy.{key}"

    def forgotten_units(self) -> Iterator[UserError]:
        """Warnings about values so small or large that a unit was probably forgotten."""
        yield from self._links_without_units()
        yield from self._short_run()
        energy = self.scenario.devices.energy
        of_kinds = {f"devices.energy.classes.{kind}": each for kind, each in energy.classes.items()}
        for where, power in {"devices.energy": energy, **of_kinds}.items():
            for key in ("compute_w", "download_w", "upload_w"):
                if (watts := getattr(power, key)) > _MOST_WATTS:
                    yield UserError(
                        f"{format_number(watts)} W is more than a phone or a PC draws",
                        where=f"{where}.{key}",
                        hint="it is in watts, not milliwatts; a phone that trains draws about 2.5",
                    )

    def _short_run(self) -> Iterator[UserError]:
        """A warning if the run ends before most clients could finish one dispatch."""
        until_s = self.scenario.stop.simulated_time
        if until_s is None:
            return
        longer = int(np.count_nonzero(self._needed_s > until_s))
        if longer > self._count / 2:
            yield UserError(
                f"at nominal speed, {format_count(longer)} of {self._those} need longer for one dispatch than the run "
                f"lasts, {format_duration(until_s)}; the fastest needs {_duration(self._needed_s.min())}",
                where="stop.simulated_time",
                hint="a time without a unit is in seconds; write, for example, 2d",
            )

    def _links_without_units(self) -> Iterator[UserError]:
        """Warnings about links that are so slow, fast or far that a unit was probably forgotten."""
        network, params = self.population.network, self.scenario.devices.network.params
        factor = params.rate_factor if isinstance(params, LinkParams) else 1.0
        down_bps = network.rates_bps(Direction.DOWN)[self._usable]
        raised = np.isfinite(down_bps) & (down_bps > _FAST_LINK_BPS)
        if factor >= _LARGE_FACTOR and (number := self._if_many(raised)):
            yield UserError(
                f"the downlink of {format_count(number)} of {self._those} has more than 1 Gbit/s, because all rates "
                f"are multiplied by {format_number(factor)}",
                where="devices.network.rate_factor",
                hint="it is a factor, not a rate: 2 doubles the rates",
            )
        latencies_s = network.latencies_ns(Direction.DOWN)[self._usable] / NS_PER_S
        if far := self._if_many(latencies_s > _LONGEST_LATENCY_S):
            yield UserError(
                f"the latency of {format_count(far)} of {self._those} is above {format_duration(_LONGEST_LATENCY_S)}",
                where="devices.network",
                hint="a latency without a unit is in seconds; write, for example, 40ms",
            )
        if isinstance(network, SharedNetwork):
            yield from _topology_without_units(network.topology)
        for direction in Direction:
            rates_bps = network.rates_bps(direction)[self._usable]
            if fast := self._if_many(np.isfinite(rates_bps) & (rates_bps > _FASTEST_LINK_BPS)):
                yield UserError(
                    f"the {direction.name.lower()}link of {format_count(fast)} of {self._those} has more than 100 "
                    "Gbit/s",
                    where="devices.network",
                    hint="check the unit of the rates; of an imported trace, its option rate_unit",
                )
            if slow := self._if_many((rates_bps > 0) & (rates_bps < _SLOWEST_LINK_BPS)):
                yield UserError(
                    f"the {direction.name.lower()}link of {format_count(slow)} of {self._those} has less than 1 kbit/s",
                    where="devices.network",
                    hint="a rate without a unit is in bits per second; write, for example, 5Mbps",
                )

    def _silent_tiers(self) -> Iterator[UserError]:
        """A warning if the clients of a tier are rarely online."""
        first_ns = self._first_ns[self._usable]
        online = np.flatnonzero(first_ns == first_ns.min(initial=NEVER))
        schedule = self.scenario.server.schedule
        tiers = schedule.type.tiers(schedule.params, self._needed_s, online)
        if tiers is None or not len(tiers):
            return
        availability = self.population.availability
        until_ns = min(self._end_ns, availability.horizon_ns, to_ns(_WEEK_S))
        shares = availability.online_between_ns(0, until_ns)[self._usable] / max(1, until_ns)
        present = np.bincount(tiers, shares)
        tier = int(present.argmin())
        if present[tier] < 1:
            yield UserError(
                f"tier {tier + 1} of {len(present)} (1 is the fastest) has {format_number(present[tier])} clients "
                "online on average, so it often has no available client",
                where="server.schedule",
                hint="form fewer tiers (tiers, or a larger speed_ratio), or use a trace with more clients online",
            )

    @cached_property
    def _demands(self) -> Demands:
        return demands_of(self.scenario.server.schedule)

    # -- which clients can participate --------------------------------------------------------------------------------

    @cached_property
    def _first_ns(self) -> npt.NDArray[np.int64]:
        """When each client is first online, (N,); NEVER if it never is."""
        clients = np.arange(self.population.clients)
        return self.population.availability.next_online_many(clients, np.zeros_like(clients))

    @cached_property
    def _end_ns(self) -> int:
        until_s = self.scenario.stop.simulated_time
        return NEVER - 1 if until_s is None else to_ns(until_s)

    @cached_property
    def _usable(self) -> npt.NDArray[np.bool_]:
        """Clients that can be given work, (N,)."""
        return self.population.eligible & (self._first_ns <= self._end_ns)

    @cached_property
    def _count(self) -> int:
        return int(np.count_nonzero(self._usable))

    def _if_many(self, affected: npt.NDArray[np.bool_]) -> int:
        """The number of affected clients among those that can be given work; 0 if they are only a few."""
        number = int(np.count_nonzero(affected))
        return number if number > _MANY * self._count else 0

    @property
    def _those(self) -> str:
        """The clients that can be given work."""
        everybody = self._count == self.population.clients
        return format_counted(self._count, "client") + (
            "" if everybody else " that can be given work"
        )

    @property
    def _available(self) -> str:
        clients = self.population.clients
        if self._count == clients:
            return f"there are {format_count(clients)}"
        return f"only {format_count(self._count)} of {format_count(clients)} can ever be given work: {self._exclusions}"

    @property
    def _never(self) -> npt.NDArray[np.bool_]:
        """Eligible clients that are never online, (N,)."""
        return self.population.eligible & (self._first_ns >= NEVER)

    @property
    def _why_never(self) -> str:
        return f"never meet the rule '{self._rule}'" if self._rule else "are never online"

    @property
    def _rule(self) -> str | None:
        """The eligibility rule that the scenario gives."""
        params = self.scenario.devices.availability.params
        return params.require if isinstance(params, TraceAvailabilityParams) else None

    @cached_property
    def _exclusions(self) -> str:
        """Number of clients that each rule excludes."""
        eligible = self.population.eligible
        later = eligible & (self._first_ns > self._end_ns) & ~self._never
        rules = (
            (~eligible, "have less memory than training needs"),
            (self._never, self._why_never),
            (later, "come online only after stop.simulated_time"),
        )
        counts = [(int(np.count_nonzero(excluded)), text) for excluded, text in rules]
        return ", ".join(f"{format_count(count)} {text}" for count, text in counts if count)

    @property
    def _inclusion(self) -> str:
        """How to let the excluded clients participate."""
        eligible, replayed = self.population.eligible, self.scenario.devices.availability.params
        fixes = []
        if not eligible.all():
            in_trace = self.memory_in_trace()
            given = in_trace is not None and not np.isnan(in_trace[~eligible]).any()
            memory = (
                "ram_bytes (in bytes) in the trace's compute table" if given else "devices.memory"
            )
            fixes.append(f"raise {memory}, or choose a smaller model")
        if self._never.any():
            begins_late = isinstance(replayed, TraceAvailabilityParams) and replayed.start
            earlier = (
                f"choose an earlier devices.availability.start (now {format_duration(replayed.start)}), "
                if begins_late
                else ""
            )
            key = "require" if self._rule else "on_end"
            fixes.append(f"{earlier}change devices.availability.{key}, or take another trace")
        if (eligible & ~self._never).any():
            fixes.append("let the run last longer (stop.simulated_time)")
        return "; ".join(fixes)

    # -- which clients can finish in time -----------------------------------------------------------------------------

    @property
    def _limit_key(self) -> str:
        """The parameter that limits the time of a dispatch."""
        return _key(self.scenario.server.schedule.type.patience)

    @property
    def _limit_s(self) -> float | None:
        return self._demands.limit_s

    @property
    def _sends_partial_work(self) -> bool:
        return self.scenario.server.partial_work == "send"

    @property
    def _finish(self) -> str:
        assert self._limit_s is not None
        work = "one local step" if self._sends_partial_work else "a dispatch"
        return f"finish {work} within {format_duration(self._limit_s)}"

    def _more_time(self, needed_s: float, slowest_s: float = math.inf) -> str:
        """The fix for clients that need ``needed_s``; with what the slowest client needs, unless it never finishes."""
        if math.isinf(needed_s):
            return "give every link a rate above zero"
        limited = self.scenario.server.schedule.type.patience
        wait = f"raise {self._limit_key} to" if limited else "let the schedule wait"
        least = duration_at_least(needed_s)
        of_all = least if math.isinf(slowest_s) else duration_at_least(slowest_s)
        both = "" if of_all == least else f" for the fastest client, {of_all} for all"
        return f"{wait} at least {least}{both}, or give less work"

    @cached_property
    def _late(self) -> npt.NDArray[np.bool_]:
        """Whether each client that can be given work needs longer than the schedule waits."""
        limit_s = math.inf if self._limit_s is None else self._limit_s
        # A few nanoseconds of rounding are not worth a message.
        return self._needed_s > limit_s + 10 / NS_PER_S

    @cached_property
    def _compute_s(self) -> Seconds:
        """Least duration of the local steps at nominal speed, of each client that can be given work."""
        step_s = self.population.compute.step_s
        steps = self.work.nominal_steps(step_s)
        if self._sends_partial_work or self.scenario.training.limited is not None:
            steps = np.ones_like(steps)
        return (steps * step_s)[self._usable]

    @cached_property
    def _transfers_s(self) -> tuple[Seconds, Seconds]:
        """Duration of download and upload at nominal rates, of each client that can be given work."""
        network, usable = self.population.network, self._usable
        down_s, up_s = (
            self._wires_s(direction, size) + network.latencies_ns(direction)[usable] / NS_PER_S
            for direction, size in zip(Direction, self.traffic_bytes, strict=True)
        )
        return down_s, up_s

    def _wires_s(self, direction: Direction, size_bytes: float) -> Seconds:
        """The same without the latency; without what the transport adds if there are many clients."""
        network, clients = self.population.network, np.flatnonzero(self._usable)
        if not size_bytes:
            return np.zeros(len(clients))
        if len(clients) <= _MOST_TRANSPORTS:
            return np.array(
                [network.nominal_wire_s(int(one), direction, size_bytes) for one in clients]
            )
        with np.errstate(all="ignore"):
            return size_bytes * 8 / network.rates_bps(direction)[clients]

    @cached_property
    def _needed_s(self) -> Seconds:
        """Least duration of a dispatch at nominal speed and rates, of each client that can be given work."""
        down_s, up_s = self._transfers_s
        return self._compute_s + down_s + up_s

    @property
    def _is_certain(self) -> bool:
        """Whether no draw makes a dispatch shorter than at nominal speed and rates."""
        compute, network = self.population.compute, self.population.network
        steady = compute.steady and compute.constant_steps_ns() is not None
        # On shared links, a client gets the nominal rate if no other client uses them.
        return steady and (
            isinstance(network, SharedNetwork)
            or all(
                network.constant_transfers_ns(direction, size) is not None
                for direction, size in zip(Direction, self.traffic_bytes, strict=True)
            )
        )


def _topology_without_units(topology: Topology) -> Iterator[UserError]:
    """Warnings about links of a topology that are so slow that a unit was probably forgotten."""
    capacity_bps, latency_s = topology.capacity_bps, topology.latency_ns / NS_PER_S
    slow = (capacity_bps > 0) & (capacity_bps < _SLOWEST_LINK_OF_TOPOLOGY_BPS)
    far = latency_s > _LONGEST_LATENCY_OF_LINK_S
    for affected, what, hint in (
        (
            slow,
            "less than 10 kbit/s",
            "a capacity without a unit is in bits per second; write 1Gbps",
        ),
        (far, "a latency above 1 s", "a latency without a unit is in seconds; write 5ms"),
    ):
        if affected.any():
            source, target = topology.links[int(affected.argmax())]
            count = int(np.count_nonzero(affected))
            yield UserError(
                f"{format_count(count)} of {format_counted(len(affected), 'link')} of the topology "
                f"{'has' if count == 1 else 'have'} {what}, the first from {source} to {target}",
                where="devices.network.topology",
                hint=hint,
            )


def drifting_hours(population: Population, until_ns: int) -> Iterator[UserError]:
    """A warning if many traces repeat within a run, but not at the hour of the day at which they began."""
    count, period_s = population.availability.drifting(until_ns)
    if count > _MANY * population.clients:
        yield UserError(
            f"the availability of {format_count(count)} of {format_counted(population.clients, 'client')} repeats "
            f"every {format_duration(period_s)}, which is not a whole number of days, so their hours of the day drift",
            where="devices.availability",
            hint="end the run within the trace, import the trace with a window of whole days, or set on_end",
        )


def _key(parameter: str) -> str:
    """The key of a parameter of the schedule; that of the schedule if it names none."""
    return f"server.schedule.{parameter}" if parameter else "server.schedule"


def _duration(seconds: float) -> str:
    return "forever" if math.isinf(seconds) else format_duration(seconds)
