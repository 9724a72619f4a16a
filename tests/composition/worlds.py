"""Small scenarios for tests of whole runs."""

import hashlib
from pathlib import Path
from typing import Any


def quadratic(rounds: list[list[int]], **changes: Any) -> dict[str, Any]:
    """Three clients with F_i = a_i/2 (x - b_i)^2, a = (1, 2, 4), b = (0, 3, -1), from x = 1, two exact steps of 0.1."""
    scenario: dict[str, Any] = {
        "name": "quadratic",
        "task": {
            "name": "quadratic",
            "centers": [0.0, 3.0, -1.0],
            "curvatures": [1.0, 2.0, 4.0],
            "initial": 1.0,
        },
        "training": {"optimizer": {"name": "sgd", "lr": 0.1}, "local_steps": 2, "dtype": "float64"},
        "devices": {
            "compute": {"name": "values", "step": [1.0, 2.0, 3.0]},
            "network": {"name": "static", "latency": 0, "down": "1Mbps", "up": "1Mbps"},
        },
        "server": {"selection": {"name": "scripted", "rounds": rounds}},
        "stop": {"rounds": len(rounds)},
    }
    return {**scenario, **changes}


def digits(**changes: Any) -> dict[str, Any]:
    """Handwritten digits on 12 clients with jittery devices; under a second."""
    scenario: dict[str, Any] = {
        "name": "digits",
        "task": {
            "dataset": {"name": "digits"},
            "partition": {"name": "dirichlet", "alpha": 0.5, "clients": 12},
            "model": {"name": "mlp", "hidden": [16]},
        },
        "training": {"optimizer": {"name": "sgd", "lr": 0.1}, "local_steps": 5, "batch_size": 16},
        "devices": {
            "compute": {"name": "lognormal", "median": "0.1s", "jitter": {"cv": 0.2}},
            "network": {"name": "static", "latency": "40ms", "down": "20Mbps", "up": "5Mbps"},
        },
        "server": {
            "selection": {"name": "uniform", "cohort": 4},
            "schedule": {"name": "sync", "over_selection": 1.5, "deadline": "4s"},
        },
        "stop": {"rounds": 6},
        "evaluation": {"every_rounds": 2},
    }
    return {**scenario, **changes}


def timed(**sections: Any) -> dict[str, Any]:
    """The worked example of docs/time.md: three clients, whose dispatches take 13.1 s, 23.1 s and 43.1 s."""
    devices: dict[str, Any] = {
        "compute": {"name": "values", "step": ["1s", "2s", "4s"]},
        "network": {"name": "static", "latency": "50ms", "down": "8Mbps", "up": "4Mbps"},
    }
    base: dict[str, Any] = {
        "task": {"name": "timing", "clients": 3, "parameters": 250_000},
        "training": {"local_steps": 10},
        "devices": {**devices, **sections.pop("devices", {})},
        "stop": {"rounds": 2},
    }
    return base | sections


def sync(**schedule: Any) -> dict[str, Any]:
    """A server section with this synchronous schedule."""
    return {"schedule": {"name": "sync", **schedule}}


JITTERY = {"compute": {"name": "values", "step": ["1s", "2s", "4s"], "jitter": {"cv": 0.1}}}

FILES = (
    "dispatches.parquet",
    "aggregations.parquet",
    "metrics.parquet",
    "clients.parquet",
    "model.safetensors",
)


def digests(folder: Path, *more: str) -> dict[str, str]:
    """A hash of each file whose bits must be the same for the same scenario and seed, and of ``more`` files."""
    names = (*FILES, *more)
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
