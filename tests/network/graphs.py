"""Graphs and topologies for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from pydantic import TypeAdapter

from fedsim.network.base import Direction, NetworkContext
from fedsim.network.graphs import AnyGraph
from fedsim.network.topology import Topology


def context_of(folder: Path = Path(), clients: int = 10, seed: int = 0) -> NetworkContext:
    return NetworkContext(clients, None, np.arange(clients), seed, folder)


def make(spec: dict[str, Any], folder: Path = Path(), seed: int = 0) -> Topology:
    return TypeAdapter(AnyGraph).validate_python(spec).topology(context_of(folder, seed=seed))


def named(topology: Topology, access: str, direction: Direction) -> list[tuple[str, str]]:
    route = topology.route(topology.access.index(access), direction)
    return [topology.links[link] for link in route]


def edge(graph: Any, one: str, other: str, latency_s: float = 0.01, capacity: Any = 1e6) -> None:
    graph.add_edge(one, other, latency_s=latency_s, capacity_bps=capacity)


def diamond() -> Any:
    """From a to the server: 2 x 10 ms by b, 1 x 25 ms directly, 3 x 5 ms by c and d."""
    graph = nx.Graph()
    edge(graph, "server", "b")
    edge(graph, "b", "a")
    edge(graph, "server", "a", 0.025)
    edge(graph, "server", "c", 0.005)
    edge(graph, "c", "d", 0.005)
    edge(graph, "d", "a", 0.005)
    return graph
