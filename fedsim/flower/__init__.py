"""Flower apps: an unmodified ServerApp and ClientApp in simulated time, or a scenario on real nodes in real time.

The modules, from the outside in: :mod:`~fedsim.flower.running` builds a run; :mod:`~fedsim.flower.grid` is the
interface that the ServerApp sees; :mod:`~fedsim.flower.exchange` moves messages over devices and links,
and records them; :mod:`~fedsim.flower.clock` is the time of an app's threads, which
:mod:`~fedsim.flower.stand_ins` shows them; :mod:`~fedsim.flower.workers` and :mod:`~fedsim.flower.client` run
ClientApps; :mod:`~fedsim.flower.replay` tests whether a run can be repeated; :mod:`~fedsim.flower.logging_grid` logs
real deployments; :mod:`~fedsim.flower.serving` is the ServerApp of a scenario, with :mod:`~fedsim.flower.live`, the
server in real time, :mod:`~fedsim.flower.update`, what it exchanges with nodes, and :mod:`~fedsim.flower.node`, what
their ClientApps import; :mod:`~fedsim.flower.internals` contains all imports from Flower.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.flower.logging_grid import logged
    from fedsim.flower.node import local_update, timed
    from fedsim.flower.running import mark_version, run
    from fedsim.flower.serving import server_app

__all__ = ["local_update", "logged", "mark_version", "run", "server_app", "timed"]

_MODULES = {
    "local_update": "node",
    "logged": "logging_grid",
    "mark_version": "running",
    "run": "running",
    "server_app": "serving",
    "timed": "node",
}


def __getattr__(name: str) -> Any:
    # A ClientApp is imported for every message, and must not wait for what only a ServerApp needs.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
