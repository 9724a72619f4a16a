"""Links that are not shared, with a transport other than fluid: the pieces of a transfer in closed form."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from fedsim.network.base import Direction, Network, column_view
from fedsim.network.transport import Course, Piece, Transport, connection_of
from fedsim.units import NEVER


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
