"""Routes through a graph: the links between the server and each access node.

Routes are the shortest paths by latency, then by number of links, then by order in the graph; they are computed once,
and listed only for the access nodes of a topology.
An undirected edge is a full-duplex cable, which consists of two links; an edge of a directed graph is one link. Links
of capacity 0 are down, and routes avoid them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError, raise_all
from fedsim.network.base import Direction
from fedsim.units import parse_duration_s, parse_rate_bps, to_ns
from fedsim.vocabulary.arrays import Floats, Ints

CAPACITY = "capacity_bps"
LATENCY = "latency_s"
LOSS = "loss"

_NS = 1 << 20
_HOP = 1
"""Added to the latency of each link, in units of 2**-20 ns, to prefer fewer links if latencies are equal."""


@dataclass(frozen=True)
class Routes:
    """The links between the server and every access node, for one direction.

    Attributes:
        links: numbers of the links of each access node's route, in the order of travel.
        latency_ns: latency of each access node's route; shape ``(access nodes,)``.
        loss: share of packets lost on each access node's route; shape ``(access nodes,)``.
    """

    links: list[list[int]]
    latency_ns: Ints
    loss: Floats


@dataclass(frozen=True)
class Topology:
    """Links between a server and the access nodes that clients attach to.

    Attributes:
        graph: the directed links between named nodes, with checked attributes (bit/s and ns).
        server, access: names of the server's node and of the access nodes.
        links: source and target node of each link.
        capacity_bps, latency_ns: capacity and latency of each link; shape ``(links,)``.
        nodes: returns the nodes of the routes to an access node and from it, in the order of travel.
    """

    graph: Any
    server: str
    access: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    capacity_bps: Floats
    latency_ns: Ints
    nodes: Callable[[str], tuple[list[str], list[str]]]

    @functools.cached_property
    def routes(self) -> tuple[Routes, ...]:
        """Routes by :class:`~fedsim.network.base.Direction`."""
        number = {arc: index for index, arc in enumerate(self.links)}
        loss = np.array([self.graph.edges[arc][LOSS] for arc in self.links], dtype=np.float64)
        ways = zip(*map(self.nodes, self.access), strict=True)
        return tuple(_routes(paths, number, self.latency_ns, loss) for paths in ways)

    @classmethod
    def from_graph(
        cls, graph: Any, *, server: str, access: Sequence[str], where: str | None = None
    ) -> Topology:
        """The topology of a graph.

        Args:
            graph: networkx graph, directed or not; its edges have ``capacity_bps`` and ``latency_s``, numbers or text
                with a unit, and optionally ``loss``, the share of packets lost.
            server, access: names of the server's node and of the access nodes.
            where: the file or section concerned, for messages.
        """
        import networkx as nx

        if graph.is_multigraph():
            hint = "merge them into one edge with their total capacity"
            raise UserError("the graph has parallel edges", where=where, hint=hint)
        arcs, errors = _arcs(graph, where)
        errors += _unknown_nodes(arcs, [server, *access], where)[:10]
        if not access:
            errors.append(UserError("the graph has no access node", where=where))
        raise_all(errors)

        links = tuple(arcs.edges)
        down, _ = nx.dijkstra_predecessor_and_distance(arcs, server, weight=_cost)
        back = down
        if graph.is_directed():
            reverse = arcs.reverse(copy=False)
            back, _ = nx.dijkstra_predecessor_and_distance(reverse, server, weight=_cost)
        unreachable = [name for name in access if name not in down or name not in back]
        raise_all(
            UserError(
                f"there is no route from the access node '{name}' to the server '{server}'",
                where=where,
                hint="add a link, or raise the capacity of one from 0",
            )
            for name in unreachable[:10]
        )
        return cls(
            graph=arcs,
            server=server,
            access=tuple(access),
            links=links,
            capacity_bps=np.array([arcs.edges[arc][CAPACITY] for arc in links], dtype=np.float64),
            latency_ns=np.array([arcs.edges[arc][LATENCY] for arc in links], dtype=np.int64),
            nodes=lambda name: (_to_source(down, name)[::-1], _to_source(back, name)),
        )

    def served_by(self, servers: Sequence[str]) -> tuple[Topology, Ints]:
        """The topology with routes to the nearest of some servers, and which one it is of each access node."""
        import networkx as nx

        raise_all(_unknown_nodes(self.graph, servers, "server.edges.members.nodes"))
        down = nx.multi_source_dijkstra_path(self.graph, list(servers), weight=_cost)
        paths = [down[name] for name in self.access]
        back = [nx.dijkstra_path(self.graph, path[-1], path[0], weight=_cost) for path in paths]
        nodes = dict(zip(self.access, zip(paths, back, strict=True), strict=True))
        nearest = np.array([servers.index(path[0]) for path in paths], dtype=np.int64)
        return replace(self, nodes=nodes.__getitem__), nearest

    def route(self, access: int, direction: Direction) -> list[int]:
        """Numbers of the links on an access node's route, in the order of travel."""
        return self.routes[direction].links[access]

    def path(self, source: str, target: str) -> tuple[list[int], int]:
        """Numbers of the links on the route between any two nodes, and its latency in ns."""
        import networkx as nx

        where = "devices.network.flows"
        raise_all(_unknown_nodes(self.graph, [source, target], where)[:1])
        if source == target or not nx.has_path(self.graph, source, target):
            raise UserError(f"there is no route from '{source}' to '{target}'", where=where)
        nodes = nx.dijkstra_path(self.graph, source, target, weight=_cost)
        route = [self.links.index(arc) for arc in pairwise(nodes)]
        return route, int(self.latency_ns[route].sum())


def _to_source(before: Mapping[str, Sequence[str]], name: str) -> list[str]:
    """The nodes from one to the source of the shortest paths, by the nodes that come before each on the paths to it."""
    path = [name]
    while previous := before[path[-1]]:
        path.append(previous[0])
    return path


def _cost(_from: str, _to: str, link: dict[str, Any]) -> int | None:
    return link[LATENCY] * _NS + _HOP if link[CAPACITY] > 0 else None


def _arcs(graph: Any, where: str | None) -> tuple[Any, list[UserError]]:
    """The directed links with checked attributes (bit/s and ns), named by text; and their errors."""
    import networkx as nx

    arcs: nx.DiGraph[str] = nx.DiGraph()
    arcs.add_nodes_from(str(node) for node in graph.nodes)
    errors: list[UserError] = []
    for one, other, attributes in graph.edges(data=True):
        if one == other:
            continue
        edge = f"the link {one} - {other}"
        values: dict[str, Any] = {}
        readers: tuple[tuple[str, Callable[[object], float]], ...] = (
            (CAPACITY, parse_rate_bps),
            (LATENCY, parse_duration_s),
            (LOSS, _parse_loss),
        )
        attributes = {LOSS: 0.0, **attributes}
        for key, read in readers:
            if key not in attributes:
                hint = f"give {key} to every edge, or a default for the topology"
                errors.append(UserError(f"{edge} has no {key}", where=where, hint=hint))
                continue
            try:
                values[key] = read(attributes[key])
            except ValueError as error:
                errors.append(UserError(f"{key} of {edge}: {error}", where=where))
        if len(values) == len(readers):
            values[LATENCY] = to_ns(values[LATENCY])
            arcs.add_edge(str(one), str(other), **values)
            if not graph.is_directed():
                arcs.add_edge(str(other), str(one), **values)
    return arcs, errors


def _routes(
    paths: Sequence[list[str]], number: dict[tuple[str, str], int], latency_ns: Ints, loss: Floats
) -> Routes:
    """The routes along ``paths`` of nodes."""
    links = [[number[arc] for arc in pairwise(nodes)] for nodes in paths]
    return Routes(
        links,
        np.array([latency_ns[route].sum() for route in links], dtype=np.int64),
        np.array([path_loss(*loss[route]) for route in links], dtype=np.float64),
    )


def path_loss(*losses: npt.ArrayLike) -> Floats:
    """Share of packets lost on a path of links that lose packets independently."""
    delivered: Floats = np.array(1.0)
    for loss in losses:
        delivered = delivered * (1.0 - np.asarray(loss, dtype=np.float64))
    return 1.0 - delivered


def _parse_loss(value: object) -> float:
    loss = float(str(value))
    if not 0 <= loss < 1:
        raise ValueError(f"{value!r} is not a share of packets, at least 0 and less than 1")
    return loss


def _unknown_nodes(arcs: Any, names: Sequence[str], where: str | None) -> list[UserError]:
    """The errors for names of nodes that do not exist."""
    known = list(arcs.nodes)
    hint = f"its nodes are: {', '.join(known[:10])}{', ...' if len(known) > 10 else ''}"
    return [
        UserError(f"the graph has no node '{name}'", where=where, hint=hint)
        for name in names
        if name not in arcs
    ]
