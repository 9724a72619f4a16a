"""Flower apps on simulated devices: an unmodified ServerApp and ClientApp in simulated time.

The modules, from the outside in: :mod:`~fedsim.flower.running` builds a run; :mod:`~fedsim.flower.grid` is the
interface that the ServerApp sees; :mod:`~fedsim.flower.exchange` moves messages over devices and links;
:mod:`~fedsim.flower.messages` records them; :mod:`~fedsim.flower.clock` is the time that the ServerApp's threads read,
and :mod:`~fedsim.flower.turns` their order; :mod:`~fedsim.flower.workers` and :mod:`~fedsim.flower.client` run
ClientApps; :mod:`~fedsim.flower.replay` tests whether a run can be repeated; :mod:`~fedsim.flower.deployment` logs real
deployments; :mod:`~fedsim.flower.internals` contains all imports from Flower.
"""

from __future__ import annotations

from fedsim.flower.deployment import logged, timed
from fedsim.flower.running import mark_version, run

__all__ = ["logged", "mark_version", "run", "timed"]
