"""Timing-only scenarios on small bundles of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
