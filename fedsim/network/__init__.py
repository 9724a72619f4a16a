"""The network between server and clients: static, traced and shared links."""

from fedsim.network.base import Direction, Network, NetworkContext, NetworkKind

__all__ = ["Direction", "Network", "NetworkContext", "NetworkKind"]
