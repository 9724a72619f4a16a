"""Timing-only scenarios on small bundles of devices; and a population without one, with the step times of a model."""

from pathlib import Path
from typing import Any

import numpy as np

from fedsim.devices import DeviceContext
from fedsim.devices.compute.times import ComputeTimes
from fedsim.parts.catalog import CATALOG
from tests.traces.cases import DAY, bundle_of

S = 1_000_000_000


def phones(tmp_path: Path, name: str = "phones", count: int = 4, **tables: Any) -> str:
    """A bundle of some devices that are always online, with further tables; its folder."""
    ids = [f"d{i}" for i in range(count)]
    kinds = tables.pop("kinds", None)
    made = bundle_of(
        {one: [(0, 7 * DAY)] for one in ids},
        tables={key: {"device_id": ids, **columns} for key, columns in tables.items()},
        devices=None if kinds is None else {"kind": kinds},
    )
    made.write(tmp_path / name)
    return str(tmp_path / name)


def timing(devices: dict[str, Any], clients: int = 4, **changes: Any) -> dict[str, Any]:
    """One round of all clients, who do 10 steps on 1,000 parameters."""
    return {
        "name": "timing",
        "task": {"name": "timing", "clients": clients, "parameters": 1000, "samples": 64},
        "training": {"local_steps": 10, "batch_size": 16},
        "devices": devices,
        "server": {"selection": {"name": "scripted", "rounds": [list(range(clients))]}},
        "stop": {"rounds": 1},
        **changes,
    }


LINKS = {"name": "static", "latency": 0, "down": "32kbps", "up": "16kbps"}
STEPS = {"name": "values", "step": 0.5}


ONE = {"name": "scripted", "rounds": [[0]]}


def context(clients: int = 1, **changes: Any) -> DeviceContext:
    """A population without a bundle."""
    fields: dict[str, Any] = {
        "clients": clients,
        "seed": 0,
        "folder": Path(),
        "bundle": None,
        "device_rows": np.empty(0, dtype=np.int64),
        "batch_samples": np.full(clients, 10),
        "flops_per_sample": None,
        "eligible": np.ones(clients, dtype=np.bool_),
    }
    return DeviceContext(**{**fields, **changes})


def times(name: str, population: DeviceContext, **params: Any) -> ComputeTimes:
    """Step times of a compute model."""
    model = CATALOG.parts("compute")[name]
    checked = model.Params(**params)
    return ComputeTimes(model(checked, population))
