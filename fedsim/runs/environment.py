"""Versions and hardware for ``run.json``: a result may depend on them besides scenario and seed."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

LIBRARIES = ("torch", "numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "simpy", "networkx")


def environment() -> dict[str, dict[str, str | int]]:
    """Versions of fedsim, Python and libraries, and the machine; nothing that identifies a person or a host."""
    versions: dict[str, str | int] = {"python": platform.python_version()}
    versions |= {name: _version(name) for name in ("fedsim-des", *LIBRARIES)}
    hardware: dict[str, str | int] = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "byte_order": sys.byteorder,
    }
    return {"versions": versions, "hardware": hardware}


@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
