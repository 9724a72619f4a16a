"""Where the clients of a scenario with edge servers are: at which edge server, and when."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fedsim.composition.devices import Devices
from fedsim.devices.population import Population
from fedsim.errors import UserError
from fedsim.methods.base import Method
from fedsim.network.kinds.shared import Shared
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import EdgeColumn, EdgeFile, EdgeNearest, Edges
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import NEVER, NS_PER_S, to_ns
from fedsim.vocabulary.formatting import format_count, format_counted

Int64Array = npt.NDArray[np.int64]

_WHERE = "server.edges"


@dataclass(frozen=True)
class Stays:
    """Where the clients are: one row per stay of a client at an edge server, by client and time.

    Attributes:
        client, edge: their numbers, (S,).
        since_ns, until_ns: simulated time, (S,); the last stay of a client lasts until NEVER.
        drops: whether a client that moves loses its work.
        names: of the edge servers; empty if they have none.
    """

    client: Int64Array
    edge: Int64Array
    since_ns: Int64Array
    until_ns: Int64Array
    drops: bool = False
    names: Sequence[str] = ()

    @classmethod
    def fixed(cls, edge: Int64Array, names: Sequence[str] = ()) -> Stays:
        """Clients that stay at these edge servers, (N,)."""
        until_ns = np.full_like(edge, NEVER)
        return cls(np.arange(len(edge)), edge, np.zeros_like(edge), until_ns, names=names)

    @property
    def moves(self) -> list[tuple[int, int, int]]:
        """Time (ns), client and new edge server of each move, in order."""
        rows = np.flatnonzero(self.since_ns)
        rows = rows[np.argsort(self.since_ns[rows], kind="stable")]
        columns = (self.since_ns, self.client, self.edge)
        return list(zip(*(column[rows].tolist() for column in columns), strict=True))

    @property
    def of_client(self) -> Int64Array:
        """The first edge server of each client, (N,)."""
        first: Int64Array = self.edge[self.since_ns == 0]
        return first

    @cached_property
    def members(self) -> list[Int64Array]:
        """The clients that are ever at each edge server, ascending."""
        order = np.lexsort((self.client, self.edge))
        cuts = np.searchsorted(self.edge[order], np.arange(1, self.edge.max() + 1))
        return [np.unique(part) for part in np.split(self.client[order], cuts)]

    def samples(self, of_client: Int64Array, end_ns: int | None) -> npt.NDArray[np.float64]:
        """Training samples at each edge server, in the mean over the run, (E,)."""
        weights = of_client[self.client].astype(np.float64)
        if end_ns is not None:
            stays_ns = np.minimum(self.until_ns, end_ns) - np.minimum(self.since_ns, end_ns)
            weights = weights * (stays_ns / end_ns)
        return np.bincount(self.edge, weights).astype(np.float64, copy=False)

    def availability(self, population: Population, end_ns: int) -> list[AvailabilityIndex]:
        """When the members of each edge server are online and there, until the end of the run."""
        order = np.lexsort((self.since_ns, self.client, self.edge))
        pair = self.edge[order] * population.clients + self.client[order]
        _, first, counts = np.unique(pair, return_index=True, return_counts=True)
        bounds_us = np.minimum(np.stack([self.since_ns, self.until_ns], axis=1)[order], NEVER // 2)
        zeros = np.zeros_like(first)
        there = AvailabilityIndex(
            bounds_us.reshape(-1) // 1000, 2 * first, 2 * (first + counts), zeros, zeros
        )
        both = population.availability.of(self.client[order][first])
        beyond_ns = beyond(end_ns, population.availability)
        both = both.within(there, np.arange(len(first)), beyond_ns)
        ends = np.cumsum([0, *map(len, self.members)]).tolist()
        return [both.of(np.arange(*span)) for span in pairwise(ends)]


@dataclass(frozen=True)
class EdgeServers:
    """The edge servers of a run: clients of the cloud, whose local work is a server's rounds.

    Attributes:
        section: the scenario's section.
        stays: where the clients are.
        cloud: the method of the cloud.
        population: the edge servers as the cloud sees them; None until the clients' devices are known.
    """

    section: Edges
    stays: Stays
    cloud: Method
    population: Population | None = None


def edge_stays(devices: Devices, section: Edges) -> Stays:
    """Where the clients are."""
    clients = devices.task.clients
    edge: Int64Array
    if isinstance(section.members, EdgeFile):
        return _of_file(devices, section.members)
    if isinstance(section.members, EdgeColumn):
        names = devices.trace_column(section.members.column, f"{_WHERE}.members.column")
        different, edge = np.unique(names, return_inverse=True)
        return Stays.fixed(edge, different.tolist())
    if isinstance(section.members, EdgeNearest):
        nodes = section.members.nodes
        return Stays.fixed(_nearest(devices, nodes), nodes)
    assert section.count is not None
    if section.count > clients:
        raise UserError(
            f"{format_count(section.count)} edge servers for {format_counted(clients, 'client')}",
            where=f"{_WHERE}.count",
            hint=f"set it to at most {clients}",
        )
    order = np.arange(clients)
    if section.members == "random":
        order = np.argsort(Stream(devices.scenario.seed, Purpose.EDGES, 0).uniforms(order))
    edge = np.empty_like(order)
    for number, part in enumerate(np.array_split(order, section.count)):
        edge[part] = number
    return Stays.fixed(edge)


def _nearest(devices: Devices, nodes: list[str]) -> Int64Array:
    """The nearest edge server of each client in the graph of their network, (N,)."""
    where, network = f"{_WHERE}.members.nodes", devices.scenario.devices.network.create()
    if not isinstance(network, Shared):
        raise UserError(
            "edge servers at nodes need a graph",
            where=where,
            hint="set devices.network to {name: shared, topology: ...}",
        )
    edge = network.nearest(devices.network_context())
    if idle := set(range(len(nodes))).difference(edge.tolist()):
        name = nodes[min(idle)]
        raise UserError(f"no client is nearest to '{name}'", where=where, hint="leave it out")
    return edge


def _of_file(devices: Devices, source: EdgeFile) -> Stays:
    """Where the clients are, by the scenario's file."""
    path, rows, key = devices.folder / source.path, [], "client"
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or ()
            key = "device_id" if "device_id" in columns else "client"
            for row in reader:
                since_ns = to_ns(float(row.get("time_s") or 0)) // 1000 * 1000
                rows.append((row[key], since_ns, float(row.get("latency_s") or 0), row["edge"]))
        found: dict[str, dict[int, str]] = {}
        for name, since_ns, _, edge in sorted(rows):
            found.setdefault(name, {}).setdefault(since_ns, edge)
        if "latency_s" not in columns and sum(map(len, found.values())) < len(rows):
            raise ValueError(f"a {key} has two rows for the same time")
        names = list(map(str, range(devices.task.clients)))
        if key == "device_id":
            names = devices.names["device"].to_pylist()
        elif len(found) > len(names):
            raise ValueError(f"it has {len(found)} clients, the scenario has {len(names)}")
        if missing := [name for name in names if 0 not in found.get(name, ())]:
            raise ValueError(f"it does not say where {key} {missing[0]} is at time 0")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} cannot be used: {error}",
            where=f"{_WHERE}.members.path",
            hint=f"write a CSV file with the columns {key} and edge, and a row for each",
        ) from error
    edges = {edge for stays in found.values() for edge in stays.values()}
    numeric = all(edge.isdecimal() for edge in edges)
    number = {edge: i for i, edge in enumerate(sorted(edges, key=int if numeric else str))}
    table = [
        (client, number[edge], since_ns)
        for client, name in enumerate(names)
        for since_ns, edge in found[name].items()
    ]
    client, at, since_ns = np.array(table, dtype=np.int64).T
    begins = np.append(True, (np.diff(client) != 0) | (np.diff(at) != 0))
    client, at, since_ns = client[begins], at[begins], since_ns[begins]
    until_ns = np.append(np.where(np.diff(client) == 0, since_ns[1:], NEVER), NEVER)
    return Stays(client, at, since_ns, until_ns, source.on_move == "drop", list(number))


def beyond(end_ns: int, *known: AvailabilityIndex) -> int:
    """An instant after the end of the run, so that nobody goes offline because of it, if it is known so long."""
    horizon_ns = min(each.horizon_ns for each in known)
    return max(end_ns, min(end_ns + NS_PER_S, horizon_ns))
