"""The interface of networks: when a transfer ends, and how many bytes it has moved when it is cut off.

All kinds share one convention: **bytes leave immediately and arrive one latency later**. A transfer ends one path
latency after the links have carried its last byte; if it is cut off, the bytes put on the wire by then count. On shared
links the latency comes first, because a transfer that has just begun uses no bandwidth yet
(:mod:`fedsim.network.shared`). A transfer of zero bytes also takes the latency. Times are integer nanoseconds: the time
on the wire and the latency are each rounded to the nearest.
"""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsim.parts.component import Component
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.arrays import Floats, Ints

if TYPE_CHECKING:
    from fedsim.traces.bundle import TraceBundle


BIT_NS_PER_BYTE = 8e9
"""Bits in a byte times nanoseconds in a second: ``size_bytes * BIT_NS_PER_BYTE / rate_bps`` is in nanoseconds."""


class Direction(enum.IntEnum):
    """Direction of a transfer; usable as an index."""

    DOWN = 0
    """From the server to the client."""
    UP = 1
    """From the client to the server."""


def column_view(column: Floats | Ints) -> memoryview:
    """A view whose items are Python numbers, which is several times cheaper to index than an array."""
    return np.ascontiguousarray(column).data


class Network(abc.ABC):
    """The links between server and clients, and the duration of a transfer that is alone on them.

    Args:
        latency_ns: one-way latency of all clients in each direction; columns of shape ``(clients,)``.
        rates_bps: nominal rates of all clients in each direction.

    Attributes:
        constant: whether the duration of a transfer depends neither on its start nor on the dispatch.
    """

    constant = False

    def __init__(self, *, latency_ns: Sequence[Ints], rates_bps: Sequence[Floats]) -> None:
        self._latency_ns = tuple(column_view(column) for column in latency_ns)
        self._rates = tuple(column_view(column) for column in rates_bps)

    @abc.abstractmethod
    def transfer_end_ns(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        sequence: int = 0,
        limit_bps: float = math.inf,
    ) -> int:
        """The time at which the last byte arrives; :data:`~fedsim.units.NEVER` if it never does.

        Args:
            client: the client at the far end.
            direction: down or up.
            size_bytes: bytes to move, zero or more.
            start_ns: when the first byte leaves.
            sequence: number of earlier dispatches of the client; determines its rate if rates are drawn per dispatch.
            limit_bps: maximum rate of the transfer itself, above 0.
        """

    @abc.abstractmethod
    def bytes_by(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        until_ns: int,
        sequence: int = 0,
        limit_bps: float = math.inf,
    ) -> float:
        """Bytes put on the wire by ``until_ns``, when a transfer is cut off; between 0 and ``size_bytes``."""

    def rates_bps(self, direction: Direction) -> Floats:
        """The nominal rates of all clients, shape ``(clients,)``; see :meth:`rate_bps`."""
        return np.array(self._rates[direction])

    def rate_bps(self, client: int, direction: Direction) -> float:
        """The client's nominal rate: constant, or the mean over time of a traced rate."""
        rate: float = self._rates[direction][client]
        return rate

    def latencies_ns(self, direction: Direction) -> Ints:
        """The one-way latencies of all clients, shape ``(clients,)``; see :meth:`latency_ns`."""
        return np.array(self._latency_ns[direction])

    def nominal_wire_s(self, client: int, direction: Direction, size_bytes: float) -> float:
        """Duration of a transfer at the client's nominal rate, without its latency; infinite at a rate of 0."""
        rate: float = self._rates[direction][client]
        return size_bytes * 8 / rate if rate > 0 else math.inf

    def latency_ns(self, client: int, direction: Direction = Direction.DOWN) -> int:
        """One-way latency between client and server; the mean over time if it varies."""
        latency: int = self._latency_ns[direction][client]
        return latency


@dataclass(frozen=True, slots=True)
class NetworkContext:
    """Inputs of a kind of network.

    Attributes:
        clients: number of clients.
        bundle: trace bundle of the clients' devices, if any.
        device_rows: row of each client's device in the bundle's ``devices`` table, shape ``(clients,)``; empty without
            a bundle.
        seed: the scenario's seed.
        folder: folder of the scenario.
        offset_ns: instant of the traces at simulated time 0, a number or one per client.
        servers: nodes of the topology at which there are edge servers; a client exchanges models with the nearest.
    """

    clients: int
    bundle: TraceBundle | None
    device_rows: Ints
    seed: int
    folder: Path
    offset_ns: Ints | int = field(default=0, kw_only=True)
    servers: Sequence[str] = field(default=(), kw_only=True)

    @property
    def traces(self) -> TraceBundle:
        """The trace bundle; only for parameters that declare one of its tables (``needs_tables``)."""
        assert self.bundle is not None
        return self.bundle

    def stream(self, purpose: Purpose, *keys: int) -> Stream:
        """A random stream of the scenario's seed."""
        return Stream(self.seed, purpose, *keys)


class NetworkKind(Component, abc.ABC):
    """A kind of network in a scenario: its parameters, and the construction of the network from them."""

    @abc.abstractmethod
    def build(self, context: NetworkContext) -> Network:
        """The network of a run."""
