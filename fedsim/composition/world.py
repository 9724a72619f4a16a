"""What is built from a scenario before its run, and what follows from it: bytes, durations, what clients can do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.composition.devices import Devices
from fedsim.devices.availability.trace import TraceAvailability
from fedsim.devices.population import Population
from fedsim.errors import UserError, cut
from fedsim.learning.metrics import Metric
from fedsim.learning.submodels.parts import Parts
from fedsim.methods.base import Method, Vector
from fedsim.network.base import Direction, Network
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Scenario, Server
from fedsim.scenario.training import Training
from fedsim.scheduling.base import Demands, cohort_of
from fedsim.simulation.workload import History
from fedsim.tasks.base import Task
from fedsim.units import LONGEST_S, NEVER, NS_PER_S, duration_at_least
from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.formatting import format_count, format_counted, format_duration
from fedsim.vocabulary.metrics import MetricDefinition

if TYPE_CHECKING:
    from fedsim.composition.edges import EdgeServers

Bytes = Floats | float
_MOST_TRANSPORTS = 20_000
"""Clients up to which the duration of each one's transfers includes what the transport adds, which takes a second."""


@dataclass(frozen=True)
class World:
    """The parts of a run that do not change during it; :func:`fedsim.composition.build.build` makes them.

    Attributes:
        loaded: the scenario.
        devices: the devices of the clients, as the scenario and its traces describe them.
        training: the scenario's section, with the threads of this process.
        learns: whether a model is trained; otherwise only time is simulated.
        method: the learning rules.
        population: the clients' devices, ready for the method.
        metrics: metrics besides those of every run.
        measured: the metrics that the run may measure, by name; empty if only time is simulated.
        parts: the parts of the model that clients train; None if all train the whole model.
        edges: the edge servers between the clients and the cloud; ``method`` is theirs and the clients'; None without.
    """

    loaded: LoadedScenario
    devices: Devices
    training: Training
    learns: bool
    method: Method
    population: Population
    metrics: tuple[Metric, ...] = ()
    measured: Mapping[str, MetricDefinition] = field(default_factory=dict)
    parts: Parts | None = None
    edges: EdgeServers | None = None

    @property
    def scenario(self) -> Scenario:
        """The scenario's sections."""
        return self.loaded.scenario

    @property
    def task(self) -> Task:
        """The task that is learned or timed."""
        return self.devices.task

    @cached_property
    def server(self) -> Server:
        """The scenario's section of the servers that dispatch to the clients."""
        return self.scenario.server.of_devices

    @cached_property
    def cohort(self) -> int | None:
        """Clients that the selection draws for a round; None if it has no such number."""
        return cohort_of(self.server.selection.params)

    @cached_property
    def prospects(self) -> Prospects:
        """What the clients can do."""
        return Prospects(self)

    def names(self) -> dict[str, Any]:
        """What the clients are called: columns of their table, as far as known.

        Their names in the data set, the names and kinds of their devices, the part of the model that each trains, and
        their edge servers.
        """
        names: dict[str, Any] = dict(self.devices.names)
        if self.task.client_names:
            names["name"] = self.task.client_names
        if self.parts is not None:
            names["part"] = self.parts.of_clients(self.parts.rates)
        if self.edges is not None:
            names["edge"] = self.edges.stays.of_client
        return names

    @property
    def levels(self) -> range:
        """Numbers of the parts of the model; only 0 if all clients train the whole model."""
        return range(1 if self.parts is None else len(self.parts.rates))

    def traffic_bytes(self, level: int = 0) -> tuple[float, float]:
        """Bytes of the download and of the upload of a dispatch, of a part of the model; the largest has level 0."""
        down, up = self.method.download(), self.method.upload()
        return self.bytes_of(down, level), self.bytes_of(up, level)

    @property
    def client_bytes(self) -> tuple[Bytes, Bytes]:
        """Bytes of the download and of the upload of a dispatch; one number, or one per client, (N,)."""
        if self.parts is None:
            return self.traffic_bytes()
        down, up = zip(*map(self.traffic_bytes, self.levels), strict=True)
        return self.parts.of_clients(down), self.parts.of_clients(up)

    @property
    def prologue_bytes(self) -> tuple[float, float] | None:
        """Bytes of the download and of the upload of the method's prologue; None without one."""
        prologue = self.method.prologue()
        if prologue is None:
            return None
        return self.bytes_of(prologue.download, fixed=True), self.bytes_of(prologue.upload)

    def first_download_bytes(self, level: int = 0) -> float:
        """Bytes of the download of a client's first dispatch, which includes what training does not change."""
        complete = (vector.in_full for vector in self.method.download())
        return self.bytes_of([*complete, *self.method.first_download()], level, fixed=True)

    def bytes_of(
        self, vectors: Iterable[Vector], level: int = 0, *, fixed: bool | None = None
    ) -> float:
        """:meth:`Devices.bytes_of` of the method's model."""
        return self.devices.bytes_of(vectors, self.method, self.parts, level, fixed=fixed)

    def history(self) -> History | None:
        """What clients have from earlier dispatches, before the first one; None if that does not matter."""
        continues = self.method.continues_models
        differs = any(vector.in_full is not vector for vector in self.method.download())
        if not (continues or differs):
            return None
        online_until = self.population.availability.online_until
        return History(online_until, continues=continues, differs=differs)

    @property
    def vectors(self) -> list[dict[str, Any]]:
        """The vectors of a dispatch and their bytes: without compression, as sent, and in a client's first dispatch."""
        item, wire_bytes = self.devices.item_bytes, self.devices.wire_bytes
        ways = (("down", self.method.download()), ("up", self.method.upload()))
        return [
            {
                "direction": direction,
                "vector": vector.name,
                "compression": vector.compression.name or type(vector.compression).__name__
                if vector.compression
                else "none",
                "bytes_raw": wire_bytes(vector.raw_bytes(item)),
                "bytes": wire_bytes(vector.size_bytes(item)),
                "bytes_first": wire_bytes(
                    (vector.in_full if direction == "down" else vector).size_bytes(item)
                ),
            }
            for direction, vectors in ways
            for vector in vectors
        ]

    @property
    def durations_s(self) -> Floats:
        """Duration of a full dispatch of each client at nominal speed and rates, without the transport's, (N,)."""
        network = self.population.network
        durations_s = self._compute_s + sum(
            network.latencies_ns(way) / NS_PER_S
            + size * 8 / np.maximum(network.rates_bps(way), np.finfo(float).tiny)
            for way, size in zip(Direction, self.traffic_bytes(), strict=True)
        )
        return np.minimum(durations_s, LONGEST_S)

    @property
    def part_rows(self) -> list[dict[str, float]]:
        """Each part of the model and what it costs; empty if all clients train the whole model."""
        if (parts := self.parts) is None:
            return []
        return [
            {
                "rate": rate,
                "parameters": parts.tasks[level].parameters,
                "operations": parts.flops_shares[level],
                "memory_bytes": float(self.devices.memory_of_part(self.method, parts, level).max()),
                **dict(zip(("bytes_down", "bytes_up"), self.traffic_bytes(level), strict=True)),
            }
            for level, rate in enumerate(parts.rates)
        ]

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full dispatch of a client at its nominal speed and rates.

        If clients exchange their updates among themselves: among a cohort of clients that are like it.
        """
        parts = self.parts
        sizes = self.traffic_bytes(0 if parts is None else int(parts.level[client]))
        network = self.population.network
        if self._shares:
            latency_s = sum(int(network.latencies_ns(way)[client]) for way in Direction) / NS_PER_S
            transfers_s = sum(
                count
                * (
                    latency_s
                    + max(
                        network.nominal_wire_s(client, way, share * sizes[1]) for way in Direction
                    )
                )
                for share, count in self._shares.items()
            )
        else:
            transfers_s = expected_transfers_s(network, client, sizes)
        return transfers_s + float(self._compute_s[client])

    @cached_property
    def _shares(self) -> Counter[float]:
        """How many steps of an exchange among clients transfer which share of the update; empty without one."""
        members = self.cohort or self.population.clients
        return Counter(step.share for step in self.server.exchange.create().steps(members))

    @cached_property
    def _compute_s(self) -> Floats:
        """Duration of each client's full workload at its nominal speed, (N,)."""
        step_s = self.population.compute.step_s
        return self.devices.work.nominal_steps(step_s) * step_s


class Prospects:
    """Compares what the scenario of a world and the ``demands`` of its schedule expect with the clients' devices."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.scenario, self.population, self.server = world.scenario, world.population, world.server
        schedule = self.server.schedule
        self.demands: Demands = schedule.type.demands(schedule.params)

    # -- which clients can participate --------------------------------------------------------------------------------

    @cached_property
    def _idle(self) -> list[tuple[Bools, str, str]]:
        """Clients that cannot be given work, (N,) each: which, why, and how to let them participate."""
        replayed, end_ns = self.scenario.devices.availability.params, self.scenario.stop.until_ns
        clients = np.arange(self.population.clients)
        online, change_ns = self.population.availability.state_many(clients, 0)
        first_ns = np.where(online, 0, change_ns)
        kept_out, short = self.population.excluded, self.population.short_of_memory
        barred, never = kept_out | short, first_ns >= NEVER
        change, why = "on_end", "are never online"
        if isinstance(replayed, TraceAvailability.Params):
            if replayed.start:
                change += f" or an earlier start (now {format_duration(replayed.start)})"
            if replayed.require:
                change += " or require"
                why = f"never meet the rule '{cut(replayed.require)}'"
        edges = self.scenario.server.edges
        if edges is not None and edges.availability.name != "always":
            change, why = (
                f"{change}, or server.edges.availability",
                f"{why} while an edge server is",
            )
        return [
            (kept_out, "are excluded", "leave some of them out of devices.exclude"),
            (
                short,
                "have less memory than training needs",
                "raise devices.memory, or ram_bytes in the trace's compute table, or choose a smaller model",
            ),
            (~barred & never, why, f"change devices.availability: {change}, or take another trace"),
            (
                ~barred & ~never & (first_ns > (NEVER if end_ns is None else end_ns)),
                "come online only after stop.simulated_time",
                "let the run last longer (stop.simulated_time)",
            ),
        ]

    @cached_property
    def usable(self) -> Bools:
        """Clients that can be given work, (N,)."""
        idle: Bools = np.any([one[0] for one in self._idle], axis=0)
        return ~idle

    @cached_property
    def count(self) -> int:
        """Number of clients that can be given work."""
        return int(np.count_nonzero(self.usable))

    @property
    def those(self) -> str:
        """The clients that can be given work, in words."""
        is_all = self.count == self.population.clients
        return format_counted(self.count, "client") + ("" if is_all else " that can be given work")

    @property
    def available(self) -> str:
        """How many clients can be given work, and why the others cannot."""
        clients = self.population.clients
        if self.count == clients:
            return f"there are {format_count(clients)}"
        return f"only {format_count(self.count)} of {format_count(clients)} can ever be given work: {self.exclusions}"

    @property
    def exclusions(self) -> str:
        """Number of clients that cannot be given work, for each reason."""
        counts = [(int(np.count_nonzero(clients)), why) for clients, why, _ in self._idle]
        return ", ".join(f"{format_count(count)} {why}" for count, why in counts if count)

    @property
    def inclusion(self) -> str:
        """How to let the other clients participate."""
        return "; ".join(fix for clients, _, fix in self._idle if clients.any())

    # -- which clients can finish in time -----------------------------------------------------------------------------

    @property
    def limit_key(self) -> str:
        """The parameter that limits the time of a dispatch."""
        return self.schedule_key(self.server.schedule.type.patience)

    def schedule_key(self, parameter: str) -> str:
        """The key of a parameter of the schedule; that of the schedule if it names none."""
        key = f"{self.server.section_of_devices}.schedule"
        return f"{key}.{parameter}" if parameter else key

    @property
    def finish(self) -> str:
        """What clients that are late cannot do."""
        assert self.demands.limit_s is not None
        work = "one local step" if self.server.partial_work == "send" else "a dispatch"
        return f"finish {work} within {format_duration(self.demands.limit_s)}"

    def more_time(self, needed_s: float, slowest_s: float = math.inf) -> str:
        """The fix for clients that need ``needed_s``; with what the slowest client needs, unless it never finishes."""
        if math.isinf(needed_s):
            return "give every link a rate above zero"
        if needed_s > LONGEST_S:
            return "give less work, or faster clients"
        limited = self.server.schedule.type.patience
        wait = f"raise {self.limit_key} to" if limited else "let the schedule wait"
        least = duration_at_least(needed_s)
        of_all = least if slowest_s > LONGEST_S else duration_at_least(slowest_s)
        both = "" if of_all == least else f" for the fastest client, {of_all} for all"
        return f"{wait} at least {least}{both}, or give less work"

    @cached_property
    def late(self) -> Bools:
        """Whether each client that can be given work needs longer than the schedule waits."""
        limit_s = math.inf if self.demands.limit_s is None else self.demands.limit_s
        # A few nanoseconds of rounding are not worth a message.
        return self.needed_s > limit_s + 10 / NS_PER_S

    @cached_property
    def compute_s(self) -> Floats:
        """Least duration of the local steps at nominal speed, of each client that can be given work."""
        step_s = self.population.compute.step_s
        steps = self._world.devices.work.nominal_steps(step_s)
        if self.server.partial_work == "send" or self.scenario.training.limited is not None:
            steps = np.ones_like(steps)
        return (steps * step_s)[self.usable]

    @cached_property
    def transfers_s(self) -> list[Floats]:
        """Duration of download and upload at nominal rates, of each client that can be given work."""
        clients, sizes = np.flatnonzero(self.usable), self._world.client_bytes
        return transfers_s(self.population.network, clients, sizes)

    @cached_property
    def needed_s(self) -> Floats:
        """Least duration of a dispatch at nominal speed and rates, of each client that can be given work."""
        down_s, up_s = self.transfers_s
        return self.compute_s + down_s + up_s

    @cached_property
    def batteries(self) -> tuple[Floats, Floats, Floats] | None:
        """Energy of a dispatch, capacity of the battery and charge at its floor, of each client that can be given work.

        None if no device has a battery.
        """
        batteries, power = self.population.batteries, self.population.power
        if batteries is None:
            return None
        of_client = power.of_client[self.usable]
        down_s, up_s = self.transfers_s
        with np.errstate(all="ignore"):
            works_s = np.stack([down_s, self.compute_s, up_s], axis=1)
            needed_j = (power.watts[of_client] * works_s).sum(axis=1)
        full_j, floor_j = (
            np.array(of_class)[of_client] for of_class in (batteries.capacity_j, batteries.floor_j)
        )
        return needed_j, full_j, floor_j

    def energy_key(self, client: int, key: str) -> str:
        """The path of a key of ``devices.energy``, or of the class that gives it for one of the usable clients."""
        classes = self.scenario.devices.energy.classes
        name = [None, *classes][self.population.power.of_client[self.usable][client]]
        given = name is not None and getattr(classes[name], key) is not None
        return f"devices.energy.classes.{name}.{key}" if given else f"devices.energy.{key}"

    @property
    def is_certain(self) -> bool:
        """Whether no draw makes a dispatch shorter than at nominal speed and rates."""
        compute, network = self.population.compute, self.population.network
        # On shared links, a client gets the nominal rate if no other client uses them.
        return compute.steady and compute.constant and network.constant


def transfers_s(network: Network, clients: Ints, traffic_bytes: Iterable[Bytes]) -> list[Floats]:
    """Duration of download and upload of clients at nominal rates, (n,) each.

    Without what the transport adds if there are many clients. ``traffic_bytes`` has a number, or one per client, (N,),
    for each direction.
    """
    durations_s = []
    for direction, size in zip(Direction, traffic_bytes, strict=True):
        rates_bps = network.rates_bps(direction)
        sizes = np.broadcast_to(size, rates_bps.shape)[clients]
        if not np.any(size):
            wires_s = np.zeros(len(clients))
        elif len(clients) <= _MOST_TRANSPORTS:
            each = zip(clients.tolist(), sizes.tolist(), strict=True)
            wires_s = np.array([network.nominal_wire_s(one, direction, sent) for one, sent in each])
        else:
            with np.errstate(all="ignore"):
                wires_s = sizes * 8 / rates_bps[clients]
        durations_s.append(wires_s + network.latencies_ns(direction)[clients] / NS_PER_S)
    return durations_s


def expected_transfers_s(network: Network, client: int, traffic_bytes: Iterable[float]) -> float:
    """Duration of a client's download and upload at its nominal rates, as schedules expect it."""
    return sum(
        network.latency_ns(client, direction) / NS_PER_S
        + network.nominal_wire_s(client, direction, size)
        for direction, size in zip(Direction, traffic_bytes, strict=True)
        if size
    )


def impossible(prospects: Prospects) -> Iterator[UserError]:
    """What is certain to fail, for every client and every draw."""
    server, demands, stop = prospects.server, prospects.demands, prospects.scenario.stop
    clients = prospects.population.clients
    cohort = cohort_of(server.selection.params)
    if cohort is not None and cohort > clients and not server.selection.type.with_replacement:
        yield UserError(
            f"a cohort of {format_count(cohort)} cannot be drawn from {format_counted(clients, 'client')}",
            where=f"{server.section_of_devices}.selection.cohort",
            hint=f"set at most {clients}, or leave it out to select all clients that are available",
        )
    if demands.concurrency is not None and demands.concurrency > clients:
        yield UserError(
            f"{format_count(demands.concurrency)} clients cannot be busy at once: there are only "
            f"{format_count(clients)}",
            where=prospects.schedule_key("concurrency"),
            hint=f"set at most {clients}, or leave it out to keep all clients busy",
        )
    for limit in ("arrivals", "dispatches"):
        allowed = getattr(stop, limit)
        if allowed is not None and demands.updates > allowed:
            yield UserError(
                f"a version needs {format_count(demands.updates)} updates, but the run ends after "
                f"{format_count(allowed)} {limit}",
                where=prospects.schedule_key(server.schedule.type.updates_needed),
                hint=f"raise stop.{limit} to at least {demands.updates}, or require fewer updates",
            )
    if not prospects.usable.any():
        yield UserError(
            f"none of the {format_count(clients)} clients can ever be given work: {prospects.exclusions}",
            where="devices",
            hint=prospects.inclusion,
        )
        return
    if demands.cohort is not None and demands.cohort > prospects.count and demands.updates:
        yield UserError(
            f"a round needs {format_counted(demands.cohort, 'client')}, but {prospects.available}",
            where=prospects.schedule_key("min_cohort"),
            hint=f"set at most {prospects.count}",
        )
    if demands.cohort is not None and demands.updates > prospects.count:
        yield UserError(
            f"a round needs {demands.updates} updates, but {prospects.available}",
            where=prospects.schedule_key(server.schedule.type.updates_needed),
            hint=f"set at most {prospects.count}",
        )
    if prospects.late.all() and prospects.is_certain:
        needed_s = prospects.needed_s
        yield UserError(
            f"no client can {prospects.finish}; the fastest needs {shown_duration(needed_s.min())}",
            where=prospects.limit_key,
            hint=prospects.more_time(needed_s.min(), needed_s.max()),
        )


def shown_duration(seconds: float) -> str:
    """A duration that may be infinite."""
    return "forever" if math.isinf(seconds) else format_duration(seconds)
