"""The graphs of shared networks: read from a file or generated.

Edges carry ``capacity_bps`` and ``latency_s``. A generated graph names its server's node ``server`` and the others
``n0``, ``n1`` and so on.
"""

from __future__ import annotations

import abc
import math
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fedsim.errors import UserError, raise_all, refused
from fedsim.files.checksums import require_file
from fedsim.files.delimited import repeated
from fedsim.files.sources import Sources
from fedsim.network.base import NetworkContext
from fedsim.network.columns import Draw, LinkLatency, LinkRate, drawn
from fedsim.network.topology import CAPACITY, LATENCY, LOSS, Topology
from fedsim.parts.component import Parameters
from fedsim.randomness import Purpose
from fedsim.units import Duration, Rate, parse_duration_s, parse_rate_bps

if TYPE_CHECKING:
    import networkx as nx

SERVER = "server"
_MOST_NODES = 100_000
_MOST_LINKS = 500_000
ROLE = "role"
_CALLED = {CAPACITY: "capacity|bandwidth", LATENCY: "latency|delay", LOSS: "loss"}
"""What the names that others give these attributes contain."""
EDGE_LISTS = (".edges", ".edgelist", ".txt")
_TEXT_OR_INTEGER_WITH_EXPONENT = re.compile(
    r'(?P<text>"[^"]*"|#.*)|(?<![\w.])\d+(?=e[+-]?\d)', re.IGNORECASE
)


class GraphSource(Parameters, abc.ABC):
    """A source of the graph of a shared network."""

    @abc.abstractmethod
    def topology(self, context: NetworkContext) -> Topology:
        """The graph with its routes."""


class Direct(GraphSource):
    """No graph: clients attach to the server itself, and share only the server's own link."""

    name: Literal["direct"]
    """direct"""

    def topology(self, context: NetworkContext) -> Topology:
        return Topology.from_graph(_server_alone(), server=SERVER, access=[SERVER])


class File(GraphSource):
    """A GraphML, GML or edge-list file.

    An edge list has one line per link: two nodes, then optionally the capacity and the one-way latency of the link,
    separated by blanks or commas, as in ``core site-a 100Mbps 12ms``; ``#`` starts a comment. In GraphML and GML, edges
    have the attributes ``capacity_bps`` and ``latency_s``, and optionally ``loss``, the share of packets that the link
    loses. Without a unit, a capacity is in bits per second and a latency in seconds.
    """

    name: Literal["file"]
    """file"""
    path: Path
    """The file: .graphml, .gml, or an edge list (.edges, .edgelist, .txt)."""
    server: str | None = None
    """Node of the server; by default the node with the attribute role: server, or the node named server."""
    access: list[str] | None = None
    """Nodes that clients attach to; by default those with the attribute role: access, else all but the server."""
    capacity: Rate | None = None
    """Capacity of links without capacity_bps in the file."""
    latency: Duration | None = None
    """Latency of links without latency_s in the file."""

    def topology(self, context: NetworkContext) -> Topology:
        path = context.folder / self.path
        graph = read_graph(path)
        for default, key in ((self.capacity, CAPACITY), (self.latency, LATENCY), (0.0, LOSS)):
            for one, other, attributes in graph.edges(data=True) if default is not None else ():
                called = [each for each in attributes if re.search(_CALLED[key], each, re.I)]
                if called and key not in attributes:
                    message = f"the link {one} - {other} has {called[0]}, but no {key}"
                    hint = f"rename it to {key} (a number, or text with a unit), or remove it"
                    raise UserError(message, where=path, hint=hint)
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
    """Parameters of generated graphs."""

    capacity: LinkRate = 1e9
    """Capacity of each link, both ways: a rate, or {name: lognormal, median, sigma}."""
    latency: LinkLatency = 0.005
    """Latency of each link: a duration, or {name: lognormal, median, sigma}."""

    def _weigh(self, graph: Any, context: NetworkContext) -> None:
        """Set capacities and latencies of the edges, in their order."""
        count = graph.number_of_edges()
        capacity = drawn(self.capacity, count, context, Draw.LINK_CAPACITY).tolist()
        latency = drawn(self.latency, count, context, Draw.LINK_LATENCY).tolist()
        for index, (_, _, attributes) in enumerate(graph.edges(data=True)):
            attributes[CAPACITY] = capacity[index]
            attributes[LATENCY] = latency[index]


class Star(Generated):
    """Sites around the server, each connected to it by one link; clients attach to the sites."""

    name: Literal["star"]
    """star"""
    sites: int = Field(ge=1, le=_MOST_NODES)
    """Number of sites."""

    def topology(self, context: NetworkContext) -> Topology:
        graph, sites = _server_alone(), [f"n{site}" for site in range(self.sites)]
        graph.add_edges_from((SERVER, site) for site in sites)
        self._weigh(graph, context)
        return Topology.from_graph(graph, server=SERVER, access=sites)


class Tree(GraphSource):
    """A tree with the server at its root; clients attach to the leaves."""

    name: Literal["tree"]
    """tree"""
    fan_out: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, max_length=20)
    """Children of each node, level by level from the server; [4, 8] has 4 core nodes with 8 edge sites each."""
    capacity: Rate | list[Rate] = 1e9
    """Capacity of a link, both ways; or one for each level, from the server down."""
    latency: Duration | list[Duration] = 0.005
    """Latency of a link; or one for each level, from the server down."""

    def topology(self, context: NetworkContext) -> Topology:
        if (leaves := math.prod(self.fan_out)) > _MOST_NODES:
            where, hint = "devices.network.topology.fan_out", f"give at most {_MOST_NODES:,}"
            raise UserError(f"the tree has {leaves:,} leaves", where=where, hint=hint)
        capacities = self._levels(self.capacity, "capacity")
        latencies = self._levels(self.latency, "latency")
        graph, above, count = _server_alone(), [SERVER], 0
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
            )
        return value


class RandomGraph(Generated):
    """A random graph: the server is the node with the most links, and clients attach to all others."""

    nodes: int = Field(ge=2, le=_MOST_NODES)
    """Number of nodes, including the server."""

    def topology(self, context: NetworkContext) -> Topology:
        import networkx as nx

        seed = context.stream(Purpose.NETWORK_PROFILE, int(Draw.GRAPH)).hash(0) & 0xFFFFFFFF
        try:
            graph = self._generate(nx, seed)
        except nx.NetworkXException as error:
            raise UserError(str(error), where="devices.network.topology") from error
        largest = max(nx.connected_components(graph), key=lambda nodes: (len(nodes), -min(nodes)))
        if len(largest) < 2:
            message = "the generated graph has no links"
            raise UserError(message, where="devices.network.topology")
        graph.remove_nodes_from([node for node in graph.nodes if node not in largest])
        hub = max(graph.nodes, key=lambda node: (graph.degree(node), -node))
        graph = nx.relabel_nodes(graph, {node: f"n{node}" for node in graph.nodes} | {hub: SERVER})
        self._weigh(graph, context)
        access = [node for node in graph.nodes if node != SERVER]
        return Topology.from_graph(graph, server=SERVER, access=access)

    @abc.abstractmethod
    def _generate(self, nx: Any, seed: int) -> Any:
        """The graph made by networkx (``nx``), its nodes numbered from 0."""

    def _require(self, links_per_node: int) -> None:
        """Refuse a graph that takes too long."""
        if self.nodes * links_per_node > _MOST_LINKS:
            hint = f"give at most {_MOST_LINKS:,} links; waxman, 2,000 nodes"
            raise UserError("is too large", where="devices.network.topology", hint=hint)


class BarabasiAlbert(RandomGraph):
    """A scale-free graph: each new node links to existing ones in proportion to their links."""

    name: Literal["barabasi_albert"]
    """barabasi_albert"""
    links: int = Field(2, ge=1)
    """Links per new node."""

    def _generate(self, nx: Any, seed: int) -> Any:
        self._require(self.links)
        return nx.barabasi_albert_graph(self.nodes, self.links, seed=seed)


class Waxman(RandomGraph):
    """Nodes scattered over a square; links are more likely between nearby nodes (Waxman 1988)."""

    name: Literal["waxman"]
    """waxman"""
    beta: float = Field(0.6, gt=0, le=1)
    """Probability of a link at distance 0."""
    alpha: float = Field(0.3, gt=0)
    """Decay length of that probability, as a share of the largest distance."""

    def _generate(self, nx: Any, seed: int) -> Any:
        self._require(self.nodes // 8)  # Each pair of nodes takes time.
        return nx.waxman_graph(self.nodes, beta=self.beta, alpha=self.alpha, seed=seed)


class WattsStrogatz(RandomGraph):
    """A small world: a ring with randomly rewired links."""

    name: Literal["watts_strogatz"]
    """watts_strogatz"""
    neighbors: int = Field(4, ge=2)
    """Neighbors of each node on the ring."""
    rewire: float = Field(0.1, ge=0, le=1)
    """Probability that a link is rewired."""

    def _generate(self, nx: Any, seed: int) -> Any:
        self._require(self.neighbors // 2)
        return nx.connected_watts_strogatz_graph(self.nodes, self.neighbors, self.rewire, seed=seed)


AnyGraph = Annotated[
    Direct | File | Star | Tree | BarabasiAlbert | Waxman | WattsStrogatz,
    Field(discriminator="name"),
]
"""Any source of a graph; ``name`` selects it."""


def _server_alone() -> nx.Graph[str]:
    """A graph with only the server's node."""
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    graph.add_node(SERVER)
    return graph


def read_graph(path: Path) -> Any:
    """The graph in a file, read according to its extension."""
    require_file(path)
    extension = path.suffix.lower()
    if extension in EDGE_LISTS:
        return _read_edge_list(path)
    readers: dict[str, Any] = {".graphml": _read_graphml, ".gml": _read_gml}
    if extension not in readers:
        message = f"'{path.suffix}' is not a known extension of a graph file"
        hint = f"use one of {', '.join([*readers, *EDGE_LISTS])}"
        raise UserError(message, where=path, hint=hint)
    # The readers of networkx raise any error of their parsers, from KeyError to those of expat.
    with refused("the graph cannot be read", path, kinds=Exception):
        graph = readers[extension](path)
    if twice := repeated(map(str, graph)):
        message = f"two nodes are labeled {twice}, as text and as a number"
        raise UserError(message, where=path, hint="give one of them a different label")
    return graph


def _read_gml(path: Path) -> Any:
    import networkx as nx

    # networkx reads 1e-05 as the number 1 and the key e.
    text = _TEXT_OR_INTEGER_WITH_EXPONENT.sub(
        lambda found: found[0] if found["text"] else f"{found[0]}.0",
        path.read_text(encoding="ascii"),
    )
    return nx.parse_gml(text)


def _read_graphml(path: Path) -> Any:
    """The graph in a GraphML file; one that says something twice is refused, because networkx takes the last."""
    import networkx as nx

    reader: Any = nx.GraphMLReader()
    with warnings.catch_warnings(action="ignore"):  # Of attributes whose type is not given.
        graph = next(reader(path=path), None)
    for element in reader.xml.iter():
        kind, ids = element.tag.rpartition("}")[2], ("node", "key")
        named = (child.get("id" if child.tag.endswith(ids) else "key") for child in element)
        if twice := repeated(filter(None, named)):
            message, hint = f"one <{kind}> has the key '{twice}' twice", "remove one of them"
            raise UserError(message, where=path, hint=hint)
    # Without the namespace in its header, the reader finds no graph.
    return nx.read_graphml(path) if graph is None else graph


def _read_edge_list(path: Path) -> Any:
    import networkx as nx

    graph: Any = nx.Graph()
    errors: list[UserError] = []
    readers = ((CAPACITY, parse_rate_bps), (LATENCY, parse_duration_s))
    for number, text in next(iter(Sources([path]))).lines("#"):
        line = text.partition("#")[0].rstrip(" \t,")
        fields = line.replace(",", " ").split()
        if not fields:
            continue
        try:
            if re.search(r"(^|,)\s*,", line):
                raise ValueError("has an empty cell before another one: give a value")
            # A comma between nodes and values that blanks separate is one of decimals.
            if re.search(r"[^\s,]\s+[^\s,].*\d,\d", line):
                raise ValueError("decimal numbers are written with a point, as in 100.5")
            if not 2 <= len(fields) <= 4:
                raise ValueError("a line has two nodes, then optionally a capacity and a latency")
            if graph.has_edge(*fields[:2]):
                raise ValueError(f"repeats the link {' - '.join(fields[:2])} of an earlier line")
            given = zip(readers, fields[2:], strict=False)
            graph.add_edge(*fields[:2], **{key: read(text) for (key, read), text in given})
        except ValueError as error:
            errors.append(UserError(str(error), where=f"{path}:{number}"))
    raise_all(errors)
    return graph


def _only_server(roles: dict[str, Any], where: str) -> str:
    servers = [node for node, role in roles.items() if role == "server"]
    if not servers and SERVER in roles:
        servers = [SERVER]
    if len(servers) != 1:
        raise UserError(
            f"the graph has {len(servers)} server nodes",
            where=where,
            hint="name it with topology.server, or mark one node with the attribute role: server",
        )
    return servers[0]
