"""Networks built from a scenario's parameters and a small trace bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.network.base import Direction, Network, NetworkContext
from fedsim.parts.catalog import CATALOG
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table

S = 1_000_000_000


MB = 1_000_000


def context_of(
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    rows: list[int] | None = None,
    clients: int = 3,
    on_end: str = "wrap",
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
        manifest = Manifest.model_validate(
            {
                "name": "small",
                "horizon_us": 10**9,
                "on_end": on_end,
                "importer": "test",
                "importer_version": "1",
            }
        )
        made = {name: make_table(name, columns) for name, columns in tables.items()}
        bundle = TraceBundle(manifest, made | {"devices": make_table("devices", devices)})

    device_rows = np.arange(clients) if rows is None else np.array(rows)
    return NetworkContext(len(device_rows), bundle, device_rows, 0, Path())


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
