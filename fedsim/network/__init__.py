"""The network between server and clients: static, traced and shared links."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.network.base import Direction, Network, NetworkContext, NetworkKind
from fedsim.units import NEVER

__all__ = ["NEVER", "Direction", "Network", "NetworkContext", "NetworkKind", "registry"]


def registry() -> Mapping[str, type[NetworkKind]]:
    """The kinds of network that ship with fedsim, by name."""
    return discover("fedsim.network.kinds", NetworkKind)
