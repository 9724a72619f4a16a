"""The graphs of shared networks: read from a file or generated.

Edges carry ``capacity_bps`` and ``latency_s``. A generated graph names its server's node ``server`` and the others
``n0``, ``n1`` and so on.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.components import Parameters
from fedsim.errors import UserError, UserErrors
from fedsim.network.base import NetworkContext
from fedsim.network.columns import Draw, LinkLatency, LinkRate, drawn
from fedsim.network.topology import CAPACITY, LATENCY, Topology
from fedsim.randomness import Purpose
from fedsim.units import Duration, Rate, parse_duration_s, parse_rate_bps

SERVER = "server"
ROLE = "role"
READERS: dict[str, Callable[[Path], Any]] = {".graphml": nx.read_graphml, ".gml": nx.read_gml}
EDGE_LISTS = (".edges", ".edgelist", ".txt")


class GraphSource(Parameters, abc.ABC):
    """Where the graph of a shared network comes from."""

    @abc.abstractmethod
    def topology(self, context: NetworkContext) -> Topology:
        """Make the graph and find its routes.

        Raises:
            UserError: the file or the parameters do not make a usable graph.
        """


class Direct(GraphSource):
    """No graph: clients hang on the server itself, and share only the server's own link."""

    name: Literal["direct"]
    """direct"""

    def topology(self, context: NetworkContext) -> Topology:
        """See :meth:`GraphSource.topology`."""
        graph: nx.Graph[str] = nx.Graph()
        graph.add_node(SERVER)
        return Topology.from_graph(graph, server=SERVER, access=[SERVER])


class File(GraphSource):
    """A GraphML, GML or edge-list file.

    An edge list has a line for each link: two nodes, capacity and latency, parted by blanks or commas; ``#`` begins a
    remark.
    """

    name: Literal["file"]
    """file"""
    path: Path
    """The file: .graphml, .gml, or an edge list (.edges, .edgelist, .txt)."""
    server: str | None = None
    """Node of the server; default: the one whose attribute role is server, or that is named server."""
    access: list[str] | None = None
    """Nodes that clients hang on; default: those whose attribute role is access, or else all but the server."""
    capacity: Rate | None = None
    """Capacity of links whose capacity_bps the file does not give."""
    latency: Duration | None = None
    """Latency of links whose latency_s the file does not give."""

    def topology(self, context: NetworkContext) -> Topology:
        """See :meth:`GraphSource.topology`."""
        path = context.folder / self.path
        graph = read_graph(path)
        for default, key in ((self.capacity, CAPACITY), (self.latency, LATENCY)):
            if default is not None:
                for _, _, attributes in graph.edges(data=True):
                    attributes.setdefault(key, default)
        roles = {str(node): role for node, role in graph.nodes(data=ROLE)}
        server = self.server or _only_server(roles, str(path))
        access = self.access
        if access is None:
            access = [node for node, role in roles.items() if role == "access"]
        if not access:
            access = [node for node in roles if node != server]
        return Topology.from_graph(graph, server=server, access=access, where=str(path))


class Generated(GraphSource):
    """What generated graphs have in common."""

    capacity: LinkRate = 1e9
    """Capacity of each link, both ways: a rate, or {name: lognormal, median, sigma}."""
    latency: LinkLatency = 0.005
    """Latency of each link: a duration, or {name: lognormal, median, sigma}."""

    def _weigh(self, graph: Any, context: NetworkContext) -> None:
        """Give capacities and latencies to the edges, in their order."""
        count = graph.number_of_edges()
        capacity = drawn(self.capacity, count, context, Draw.LINK_CAPACITY).tolist()
        latency = drawn(self.latency, count, context, Draw.LINK_LATENCY).tolist()
        for index, (_, _, attributes) in enumerate(graph.edges(data=True)):
            attributes[CAPACITY] = capacity[index]
            attributes[LATENCY] = latency[index]


class Star(Generated):
    """Sites around the server, each joined to it by one link; clients hang on the sites."""

    name: Literal["star"]
    """star"""
    sites: int = Field(ge=1)
    """Number of sites."""

    def topology(self, context: NetworkContext) -> Topology:
        """See :meth:`GraphSource.topology`."""
        graph: nx.Graph[str] = nx.Graph()
        graph.add_edges_from((SERVER, f"n{site}") for site in range(self.sites))
        self._weigh(graph, context)
        return Topology.from_graph(
            graph, server=SERVER, access=[f"n{site}" for site in range(self.sites)]
        )


class Tree(GraphSource):
    """A tree with the server at its root; clients hang on the leaves."""

    name: Literal["tree"]
    """tree"""
    fan_out: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Children of each node, level by level from the server; [4, 8] has 4 core nodes with 8 edge sites each."""
    capacity: Rate | list[Rate] = 1e9
    """Capacity of a link, both ways; or one for each level, from the server down."""
    latency: Duration | list[Duration] = 0.005
    """Latency of a link; or one for each level, from the server down."""

    def topology(self, context: NetworkContext) -> Topology:
        """See :meth:`GraphSource.topology`."""
        capacities = self._levels(self.capacity, "capacity")
        latencies = self._levels(self.latency, "latency")
        graph: nx.Graph[str] = nx.Graph()
        graph.add_node(SERVER)
        above, count = [SERVER], 0
        for fan_out, capacity, latency in zip(self.fan_out, capacities, latencies, strict=True):
            below = []
            for parent in above:
                for _ in range(fan_out):
                    below.append(f"n{count}")
                    count += 1
                    graph.add_edge(parent, below[-1], **{CAPACITY: capacity, LATENCY: latency})
            above = below
        return Topology.from_graph(graph, server=SERVER, access=above)

    def _levels(self, value: float | list[float], what: str) -> list[float]:
        if not isinstance(value, list):
            return [value] * len(self.fan_out)
        if len(value) != len(self.fan_out):
            raise UserError(
                f"there are {len(value)} values for {len(self.fan_out)} levels of links",
                where=f"devices.network.topology.{what}",
                hint="give one value, or one for each number in fan_out",
            )
        return value


class RandomGraph(Generated):
    """A random graph: the server is its node with the most links, and clients hang on all the others."""

    nodes: int = Field(ge=2)
    """Number of nodes, the server's among them."""

    def topology(self, context: NetworkContext) -> Topology:
        """See :meth:`GraphSource.topology`.

        Of a graph that falls into parts, only the largest part is used.
        """
        seed = context.stream(Purpose.NETWORK_PROFILE, int(Draw.GRAPH)).hash(0) & 0xFFFFFFFF
        try:
            graph = self._generate(seed)
        except nx.NetworkXException as error:
            raise UserError(str(error), where="devices.network.topology") from error
        part = max(nx.connected_components(graph), key=lambda nodes: (len(nodes), -min(nodes)))
        if len(part) < 2:
            raise UserError(
                "the generated graph has no links",
                where="devices.network.topology",
                hint="choose parameters that join more nodes",
            )
        graph.remove_nodes_from([node for node in graph.nodes if node not in part])
        hub = max(graph.nodes, key=lambda node: (graph.degree(node), -node))
        names = {node: f"n{node}" for node in graph.nodes} | {hub: SERVER}
        graph = nx.relabel_nodes(graph, names)
        for node in graph.nodes:
            graph.nodes[node].clear()
        self._weigh(graph, context)
        return Topology.from_graph(
            graph, server=SERVER, access=[node for node in graph.nodes if node != SERVER]
        )

    @abc.abstractmethod
    def _generate(self, seed: int) -> Any:
        """The networkx graph, its nodes numbered from 0."""


class BarabasiAlbert(RandomGraph):
    """A scale-free graph: each new node joins existing ones in proportion to their links."""

    name: Literal["barabasi_albert"]
    """barabasi_albert"""
    links: int = Field(2, ge=1)
    """Links that each new node brings."""

    def _generate(self, seed: int) -> Any:
        return nx.barabasi_albert_graph(self.nodes, self.links, seed=seed)


class Waxman(RandomGraph):
    """Nodes scattered over a square, near ones more likely joined (Waxman 1988)."""

    name: Literal["waxman"]
    """waxman"""
    beta: float = Field(0.6, gt=0, le=1)
    """Probability of a link between nodes next to each other."""
    alpha: float = Field(0.3, gt=0)
    """How far links reach, as a share of the largest distance."""

    def _generate(self, seed: int) -> Any:
        return nx.waxman_graph(self.nodes, beta=self.beta, alpha=self.alpha, seed=seed)


class WattsStrogatz(RandomGraph):
    """A small world: a ring whose links are partly laid elsewhere."""

    name: Literal["watts_strogatz"]
    """watts_strogatz"""
    neighbours: int = Field(4, ge=2)
    """Ring neighbours of each node."""
    rewire: float = Field(0.1, ge=0, le=1)
    """Probability that a link is laid elsewhere."""

    def _generate(self, seed: int) -> Any:
        return nx.connected_watts_strogatz_graph(
            self.nodes, self.neighbours, self.rewire, seed=seed
        )


AnyGraph = Annotated[
    Direct | File | Star | Tree | BarabasiAlbert | Waxman | WattsStrogatz,
    Field(discriminator="name"),
]
"""Every source of a graph, told apart by ``name``."""


def read_graph(path: Path) -> Any:
    """Read a graph file by its ending.

    Raises:
        UserError: no such file, an unknown ending, or a file that cannot be read.
    """
    where = str(path)
    if not path.is_file():
        raise UserError("no such file", where=where, hint="paths are relative to the scenario file")
    ending = path.suffix.lower()
    if ending in EDGE_LISTS:
        return _read_edge_list(path)
    if ending not in READERS:
        raise UserError(
            f"'{path.suffix}' is no known ending of a graph file",
            where=where,
            hint=f"use one of {', '.join([*READERS, *EDGE_LISTS])}",
        )
    try:
        return READERS[ending](path)
    # The readers let whatever their parsers meet escape, from KeyError to expat's own errors.
    except Exception as error:
        raise UserError(
            f"the graph cannot be read: {type(error).__name__}: {error}", where=where
        ) from error


def _read_edge_list(path: Path) -> Any:
    graph: Any = nx.Graph()
    errors: list[UserError] = []
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.partition("#")[0].replace(",", " ").split()
        if not fields:
            continue
        try:
            graph.add_edge(*_new_pair(graph, fields), **_attributes(fields[2:]))
        except ValueError as error:
            errors.append(UserError(str(error), where=f"{path}:{number}"))
    if errors:
        raise UserErrors(errors)
    return graph


def _new_pair(graph: Any, fields: Sequence[str]) -> tuple[str, str]:
    if len(fields) < 2 or len(fields) > 4:
        raise ValueError("a line has two nodes, and then a capacity and a latency")
    if graph.has_edge(fields[0], fields[1]):
        raise ValueError(f"the link {fields[0]} - {fields[1]} comes twice")
    return fields[0], fields[1]


def _attributes(fields: Sequence[str]) -> dict[str, float]:
    attributes = {}
    if fields:
        attributes[CAPACITY] = parse_rate_bps(fields[0])
    if len(fields) > 1:
        attributes[LATENCY] = parse_duration_s(fields[1])
    return attributes


def _only_server(roles: dict[str, Any], where: str) -> str:
    servers = [node for node, role in roles.items() if role == "server"]
    if not servers and SERVER in roles:
        servers = [SERVER]
    if len(servers) != 1:
        raise UserError(
            f"the graph has {len(servers)} nodes whose role is server"
            if servers
            else "the graph names no server",
            where=where,
            hint="name it with topology.server, or mark one node with the attribute role: server",
        )
    return servers[0]


def attach_in_turn(clients: int, access: int) -> npt.NDArray[np.int64]:
    """Client ``i`` on access node ``i mod access``."""
    return np.arange(clients, dtype=np.int64) % access


def attach_at_random(context: NetworkContext, access: int) -> npt.NDArray[np.int64]:
    """Each client on an access node drawn uniformly."""
    stream = context.stream(Purpose.NETWORK_PROFILE, int(Draw.ATTACHMENT))
    drawn_nodes = (stream.uniforms(np.arange(context.clients)) * access).astype(np.int64)
    return np.minimum(drawn_nodes, access - 1)


def attach_by_name(
    names: Sequence[str | None], access: Sequence[str], where: str
) -> npt.NDArray[np.int64]:
    """Each client on the access node of that name.

    Raises:
        UserErrors: some names are not access nodes.
    """
    number = {name: index for index, name in enumerate(access)}
    column = np.array([number.get(str(name), -1) for name in names], dtype=np.int64)
    lost = np.flatnonzero(column < 0)
    if len(lost):
        raise UserErrors(
            [
                UserError(
                    f"client {client} belongs to '{names[client]}', which is no access node",
                    where=where,
                    hint=f"access nodes are: {', '.join(access[:10])}{', ...' if len(access) > 10 else ''}",
                )
                for client in lost[:10].tolist()
            ]
        )
    return column
