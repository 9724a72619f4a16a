"""Networks built from a scenario's parameters and a small trace bundle; graphs, and series of rates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from pydantic import TypeAdapter

from fedsim.network.base import Direction, Network, NetworkContext
from fedsim.network.graphs import AnyGraph
from fedsim.network.topology import Topology
from fedsim.network.traced import RateSeries
from fedsim.parts.catalog import CATALOG
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.parameters import OnEnd
from fedsim.traces.tables import make_table

S = 1_000_000_000


MB = 1_000_000


def context_of(
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    rows: list[int] | None = None,
    clients: int = 3,
    on_end: str = "wrap",
    folder: Path = Path(),
    seed: int = 0,
) -> NetworkContext:
    bundle = None
    if tables is not None:
        devices = {
            "device_id": ["a", "b", "c"],
            "group": ["north", "south", None],
            "window_start_us": [0] * 3,
            "window_end_us": [10**9] * 3,
            "valid": [True] * 3,
        }
        facts = {"name": "small", "horizon_us": 10**9, "on_end": on_end}
        manifest = Manifest.model_validate({**facts, "importer": "test", "importer_version": "1"})
        made = {name: make_table(name, columns) for name, columns in tables.items()}
        bundle = TraceBundle(manifest, made | {"devices": make_table("devices", devices)})

    device_rows = np.arange(clients) if rows is None else np.array(rows)
    return NetworkContext(len(device_rows), bundle, device_rows, seed, folder)


def build(context: NetworkContext, name: str, **params: Any) -> Any:
    kind = CATALOG.parts("network")[name]
    return kind(kind.Params(**params)).build(context)


def rates(network: Network, direction: Direction, clients: int = 3) -> list[float]:
    return [network.rate_bps(client, direction) for client in range(clients)]


NETWORK = {
    "device_id": ["b", "a", "b", "c"],
    "direction": ["up", "both", "down", "down"],
    "bandwidth_bps": [1e6, 8e6, 6e6, 4e6],
    "rtt_s": [0.06, None, 0.06, None],
}


SERIES = {
    "series_id": ["road", "cell", "cell", "road"],
    "direction": ["up", "both", "both", "down"],
    "start_us": [0, 0, 1_000_000, 0],
    "dur_us": [4_000_000, 1_000_000, 1_000_000, 4_000_000],
    "rate_bps": [2e6, 8e6, 0.0, 16e6],
}


ASSIGN = {
    "device_id": ["b", "a"],
    "series_id": ["road", "cell"],
    "offset_us": [0, 500_000],
    "scale": [2.0, 1.0],
}


def make(spec: dict[str, Any], folder: Path = Path(), seed: int = 0) -> Topology:
    return (
        TypeAdapter(AnyGraph).validate_python(spec).topology(context_of(folder=folder, seed=seed))
    )


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


def series_of(pieces: list[tuple[float, float, float]], on_end: OnEnd = "wrap") -> RateSeries:
    """One series of pieces: start (s), duration (s) and rate (bit/s)."""
    start, duration, rate = zip(*pieces, strict=True)
    return RateSeries(
        series=np.zeros(len(pieces), int),
        start_ns=np.array(start) * S,
        duration_ns=np.array(duration) * S,
        rate_bps=rate,
        on_end=on_end,
        names=["a"],
    )
