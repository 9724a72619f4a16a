"""A population without a trace bundle, and the step times of a compute model on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsim.devices import DeviceContext
from fedsim.devices.compute.times import ComputeTimes
from fedsim.parts.catalog import CATALOG

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
