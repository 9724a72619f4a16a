"""A file of timers, and who is online by the index."""

from __future__ import annotations

import json
from pathlib import Path

from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle


def names(index: AvailabilityIndex, bundle: TraceBundle, time_ns: int) -> set[str]:
    ids = bundle.device_ids.to_pylist()
    return {ids[row] for row in index.online_clients(time_ns)}


def timer_file(path: Path) -> Path:
    """Two devices whose windows differ, one of them available across its seam."""
    devices = {
        "5": {
            "isSuccess": True,
            "trace_start": 1000.0,
            "trace_end": 1100.0,
            "ready_time": [[1000.0, 1010.0], [1040.0, 1060.0], [1095.0, 1100.0]],
        },
        "8": {
            "isSuccess": True,
            "trace_start": 1030.0,
            "trace_end": 1090.0,
            "ready_time": [[1050.0, 1085.0]],
        },
        "9": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
    }
    path.write_text(json.dumps(devices))
    return path
