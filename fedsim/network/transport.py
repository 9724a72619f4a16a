"""The interface of transports: how a transfer spreads its bytes over time, given the path that it takes.

A transport turns a transfer into a :class:`Course`: a wait for the connection, windows that are sent one per round
trip, and a remainder at a limited rate. The network determines how fast its links carry each piece. A course thus has a
closed form on links that are not shared; on shared links, each piece is a flow.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedsim.network.base import BIT_NS_PER_BYTE, Direction, Network, column_view
from fedsim.parts.component import Component
from fedsim.units import NEVER, NS_PER_S


@dataclass(frozen=True, slots=True)
class Connection:
    """The path of a transfer, as its two ends see it.

    Attributes:
        rtt_ns: the latencies of both directions together.
        rate_bps: nominal rate in the direction of the transfer.
        back_bps: nominal rate in the other direction.
        loss: share of packets lost in the direction of the transfer.
        back_loss: share of packets lost in the other direction.
    """

    rtt_ns: int
    rate_bps: float
    back_bps: float
    loss: float = 0.0
    back_loss: float = 0.0


def connection_of(
    network: Network, client: int, direction: Direction, losses: Sequence[Sequence[float]]
) -> Connection:
    """A client's path as the transport sees it; ``losses`` are the shares of packets lost by direction and client."""
    back = Direction(1 - direction)
    return Connection(
        rtt_ns=network.latency_ns(client, direction) + network.latency_ns(client, back),
        rate_bps=network.rate_bps(client, direction),
        back_bps=network.rate_bps(client, back),
        loss=losses[direction][client],
        back_loss=losses[back][client],
    )


class Piece(NamedTuple):
    """Bytes that leave from ``start_ns``, at a rate of at most ``limit_bps``."""

    start_ns: int
    size_bytes: float
    limit_bps: float


_NOTHING = 1e-12
"""Share of a transfer that counts as rounding."""

_SLOWED = 1.5
"""Time of a window over that at the nominal rate above which the queue counts as full."""

Carry = Callable[[Piece], int]
"""Returns when links have carried a piece (``NEVER`` if they never do)."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a transfer sends its bytes.

    Attributes:
        size_bytes: bytes on the wire, headers included.
        setup_ns: time before the first byte leaves.
        windows_bytes: bytes sent before the sender waits for an acknowledgment, in order; at most ``size_bytes`` in
            total. A window leaves one round after the previous one, or when the links have carried that one, whichever
            is later.
        round_ns: time from the start of a window to its first acknowledgment.
        stages: bytes after the windows and their maximum rate, in consecutive stages; the remainder is sent at the rate
            of the last stage.
        pause_ns: expected time lost to retransmissions, before the first byte.
        rate_bps: nominal rate of the links.
        queue_ns: additional time of a round while other transfers fill the queue, which is assumed if the links carry a
            window at less than two thirds of the nominal rate.
    """

    size_bytes: float
    setup_ns: int = 0
    windows_bytes: tuple[float, ...] = ()
    round_ns: int = 0
    stages: tuple[tuple[float, float], ...] = ()
    pause_ns: int = 0
    rate_bps: float = math.inf
    queue_ns: int = 0

    def pieces(self, start_ns: int) -> Generator[Piece, int, None]:
        """The pieces in order; the caller sends back when the links have carried each.

        After a window that occupies the links for a whole round there are no gaps: the remaining windows are one piece.
        """
        at_ns = start_ns + self.setup_ns + self.pause_ns
        rest = self.size_bytes
        windows = self.windows_bytes
        for index, window in enumerate(windows):
            done_ns = yield Piece(at_ns, window, math.inf)
            rest -= window
            alone_ns = window * BIT_NS_PER_BYTE / self.rate_bps
            queue_ns = self.queue_ns if done_ns - at_ns > _SLOWED * alone_ns else 0
            at_ns = max(at_ns + self.round_ns + queue_ns, done_ns)
            if at_ns == done_ns and (following := sum(windows[index + 1 :])):
                at_ns = yield Piece(at_ns, following, math.inf)
                rest -= following
                break
        limit_bps = math.inf
        for size_bytes, limit_bps in self.stages[:-1]:
            at_ns = yield Piece(at_ns, size_bytes, limit_bps)
            rest -= size_bytes
        if self.stages:
            limit_bps = self.stages[-1][1]
        if rest > _NOTHING * self.size_bytes or not windows:
            yield Piece(at_ns, max(rest, 0.0), limit_bps)

    def carried(self, start_ns: int, carry: Carry) -> Iterator[tuple[Piece, int]]:
        """Each piece, and when the links have carried it; ends with a piece that they never do."""
        pieces = self.pieces(start_ns)
        piece = next(pieces, None)
        while piece is not None:
            done_ns = carry(piece)
            yield piece, done_ns
            try:
                piece = pieces.send(done_ns) if done_ns < NEVER else None
            except StopIteration:
                return

    def end_ns(self, start_ns: int, carry: Carry) -> int:
        """When the links have carried the last piece; ``NEVER`` if they never do."""
        *_, (_, done_ns) = self.carried(start_ns, carry)
        return done_ns

    def alone_s(self, rate_bps: float) -> float:
        """Duration in seconds on a link of this rate without other traffic; infinite at a rate of 0."""
        if rate_bps <= 0:
            return math.inf

        def carry(piece: Piece) -> int:
            wire_ns = piece.size_bytes * BIT_NS_PER_BYTE / min(rate_bps, piece.limit_bps)
            return piece.start_ns + round(wire_ns) if wire_ns < NEVER else NEVER

        done_ns = self.end_ns(0, carry)
        return done_ns / NS_PER_S if done_ns < NEVER else math.inf

    def sent_by(
        self, start_ns: int, until_ns: int, carry: Carry, carried: Callable[[Piece, int], float]
    ) -> float:
        """Bytes on the wire by ``until_ns``; ``carried`` returns the bytes of a piece that the links carry by then."""
        sent = 0.0
        for piece, done_ns in self.carried(start_ns, carry):
            if piece.start_ns >= until_ns:
                break
            if done_ns > until_ns:
                return sent + carried(piece, until_ns)
            sent += piece.size_bytes
        return sent


class Transport(Component, abc.ABC):
    """A transport in a scenario.

    Attributes:
        loses: whether it models lost packets; otherwise networks with loss are refused.
    """

    loses: bool = False

    @abc.abstractmethod
    def course(self, size_bytes: float, connection: Connection) -> Course:
        """How a transfer of ``size_bytes`` (zero or more, without headers) is sent over ``connection``."""


class TransportedNetwork(Network):
    """The links of another network, which are not shared, with a transport.

    ``loss`` is the share of packets lost on a client's link in each direction, a number or one per client.
    """

    def __init__(
        self, links: Network, transport: Transport, *, loss: npt.ArrayLike, clients: int
    ) -> None:
        super().__init__(
            latency_ns=[links.latencies_ns(way) for way in Direction],
            rates_bps=[links.rates_bps(way) for way in Direction],
        )
        self._links = links
        self._transport = transport
        column = column_view(np.array(np.broadcast_to(loss, clients), dtype=np.float64))
        self._loss = (column, column)

    def transfer_end_ns(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        sequence: int = 0,
        limit_bps: float = math.inf,
    ) -> int:
        """The end of the course's last piece, one latency later."""
        course = self._course(client, direction, size_bytes)
        done_ns = course.end_ns(start_ns, partial(self._carry, client, direction, sequence))
        return done_ns + self.latency_ns(client, direction) if done_ns < NEVER else NEVER

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
        course = self._course(client, direction, size_bytes)

        def carried(piece: Piece, until_ns: int) -> float:
            start_ns, wire_bytes, limit_bps = piece
            return self._links.bytes_by(
                client, direction, wire_bytes, start_ns, until_ns, sequence, limit_bps
            )

        carry = partial(self._carry, client, direction, sequence)
        sent_bytes = course.sent_by(start_ns, until_ns, carry, carried)
        return min(sent_bytes / course.size_bytes, 1.0) * size_bytes if size_bytes else 0.0

    def nominal_wire_s(self, client: int, direction: Direction, size_bytes: float) -> float:
        return self._course(client, direction, size_bytes).alone_s(self._rates[direction][client])

    def _course(self, client: int, direction: Direction, size_bytes: float) -> Course:
        connection = connection_of(self, client, direction, self._loss)
        course = self._transport.course(size_bytes, connection)
        # No other transfer fills the queue; a slow window means a low rate of the link itself.
        return replace(course, queue_ns=0) if course.queue_ns else course

    def _carry(self, client: int, direction: Direction, sequence: int, piece: Piece) -> int:
        """When the links have carried a piece."""
        start_ns, size_bytes, limit_bps = piece
        arrival_ns = self._links.transfer_end_ns(
            client, direction, size_bytes, start_ns, sequence, limit_bps
        )
        return arrival_ns - self.latency_ns(client, direction) if arrival_ns < NEVER else NEVER
