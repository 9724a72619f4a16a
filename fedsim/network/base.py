"""What the time plane asks of a network: when a transfer ends, and what had moved when it was cut off.

All kinds share one convention: **bytes leave at once and arrive one latency later**. A transfer puts its last byte on
the wire once the links have carried its size, and ends one path latency after that; a cut-off counts the bytes put on
the wire by then. A transfer of zero bytes still pays the latency. Times are integer nanoseconds: the time on the wire
and the latency are each rounded to the nearest.
"""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.components import Component, Parameters
from fedsim.randomness import Purpose, Stream
from fedsim.units import NEVER as NEVER

if TYPE_CHECKING:
    from fedsim.network.shared import SharedNetwork
    from fedsim.traces.bundle import TraceBundle

BIT_NS_PER_BYTE = 8e9
"""Bits in a byte times nanoseconds in a second: ``size_bytes * BIT_NS_PER_BYTE / rate_bps`` is in nanoseconds."""


class Direction(enum.IntEnum):
    """Which way a transfer goes; usable as an index."""

    DOWN = 0
    """From the server to the client."""
    UP = 1
    """From the client to the server."""


class Network(abc.ABC):
    """A network in which transfers do not slow one another down, so that each has an end in closed form."""

    contended: ClassVar[bool] = False

    @abc.abstractmethod
    def transfer_end_ns(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        sequence: int = 0,
    ) -> int:
        """The instant at which the last byte arrives; :data:`NEVER` when it never can.

        Args:
            client: the client at the far end.
            direction: down or up.
            size_bytes: bytes to move, zero or more.
            start_ns: when the first byte leaves.
            sequence: how many dispatches the client had before; keys its rate where that is drawn for each.
        """

    def constant_transfers_ns(
        self, direction: Direction, size_bytes: float
    ) -> npt.NDArray[np.int64] | None:
        """How long a transfer of this size takes each client, shape ``(clients,)``; :data:`NEVER` where it never ends.

        None where that depends on when it starts or on the dispatch.
        """
        return None

    @abc.abstractmethod
    def bytes_by(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        until_ns: int,
        sequence: int = 0,
    ) -> float:
        """Bytes put on the wire by a transfer that is cut off at ``until_ns``; between 0 and ``size_bytes``."""

    @abc.abstractmethod
    def rates_bps(self, direction: Direction) -> npt.NDArray[np.float64]:
        """The nominal rates of all clients, shape ``(clients,)``; see :meth:`rate_bps`."""

    @abc.abstractmethod
    def rate_bps(self, client: int, direction: Direction) -> float:
        """The client's nominal rate: the constant one, or the mean over time of a traced one."""

    @abc.abstractmethod
    def latency_ns(self, client: int, direction: Direction = Direction.DOWN) -> int:
        """One-way latency between client and server."""


class StreamFactory(Protocol):
    """Makes the random streams of a run."""

    def __call__(self, purpose: Purpose, *keys: int) -> Stream:
        """The stream of ``purpose`` (and further keys) under the run's seed."""
        ...


@dataclass(frozen=True, slots=True)
class NetworkContext:
    """What a kind of network is built from.

    Attributes:
        clients: number of clients.
        bundle: the trace bundle that the clients' devices come from, if any.
        device_rows: row in the bundle's ``devices`` table, per client; shape ``(clients,)``.
        stream: makes random streams under the run's seed.
        folder: where relative file names start, which is the folder of the scenario.
    """

    clients: int
    bundle: TraceBundle | None
    device_rows: npt.NDArray[np.int64]
    stream: StreamFactory
    folder: Path


class NetworkKind(Component, abc.ABC):
    """A kind of network as a scenario names it: validated parameters and how to build the network from them."""

    def __init__(self, params: Parameters) -> None:
        self.params = params

    @abc.abstractmethod
    def build(self, context: NetworkContext) -> Network | SharedNetwork:
        """The network of a run.

        Raises:
            UserError: the parameters ask for something that the bundle or a file does not hold.
        """
