"""Links that transfers share: the flows of :mod:`fedsim.network.fair` over the routes of a topology."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedsim.network.base import BIT_NS_PER_BYTE, Direction, column_view
from fedsim.network.fair import FairLinks
from fedsim.network.static import ConstantNetwork, latency_column_ns, rate_column_bps
from fedsim.network.topology import Topology, path_loss
from fedsim.network.transport import Connection, Course, Piece, Transport, connection_of
from fedsim.network.transports.fluid import Fluid
from fedsim.parts.component import Parameters
from fedsim.units import NEVER, Duration, Size, to_ns

_ROUNDING = 1e-9
"""Relative error of sums of bytes and instants, generously."""


class Flow(Parameters):
    """Other traffic: a transfer between two nodes of the topology."""

    source: str
    """Node that sends."""
    target: str
    """Node that receives."""
    size: Size
    """Size of the transfer."""
    at: Duration = 0.0
    """Start."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A transfer in progress and its current piece.

    Attributes:
        started: number of transfers started before it.
        sent_bytes: bytes of its earlier pieces, including headers.
    """

    started: int
    route: list[int]
    size_bytes: float
    wire_bytes: float
    pieces: Generator[Piece, int, None]
    piece: Piece
    sent_bytes: float = 0.0


class SharedNetwork(ConstantNetwork):
    """Transfers over shared links; the closed form is that of a transfer alone, at the rate of its slowest link.

    A transfer passes the client's own access link, the topology's links from the client's access node, and the server's
    own link. Each consists of one link per direction, which is shared max-min fairly. A transfer uses no bandwidth
    until one latency (the client's and its route's) has passed, and is finished when the links have carried its last
    byte, as in SimGrid's fluid model (Velho et al., On the Validity of Flow-Level TCP Network Models, TOMACS 2013).

    The transport divides a transfer into pieces, each of which is a flow; between two pieces a transfer uses no link.

    The simulation keeps one event, at :meth:`next_event_ns`. It moves the event whenever it has started or canceled
    transfers, and calls :meth:`pop_finished` when the event occurs. Computing the next event settles the rates, so call
    it once per instant, after all starts and stops, not once per transfer.

    Args:
        topology: links and routes.
        attachment: index into ``topology.access`` of each client; shape ``(clients,)``.
        down_bps: capacity of the clients' access links from the server, a number or one per client.
        up_bps: capacity of the clients' access links to the server.
        latency_s: one-way latency of the clients' access links, a number or one per client.
        server_down_bps: capacity of the server's outgoing link (egress).
        server_up_bps: capacity of the server's incoming link (ingress).
        transport: transport of the clients' transfers; fluid by default.
        loss: share of packets lost on the clients' access links in each direction, a number or one per client.
        flows: other traffic; it uses the topology's links only.

    Attributes:
        flow_ends_ns: arrival of each of the ``flows``; :data:`~fedsim.units.NEVER` if it has not arrived yet.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        attachment: npt.ArrayLike,
        down_bps: npt.ArrayLike,
        up_bps: npt.ArrayLike,
        latency_s: npt.ArrayLike,
        server_down_bps: float = np.inf,
        server_up_bps: float = np.inf,
        transport: Transport | None = None,
        loss: npt.ArrayLike = 0.0,
        flows: Sequence[Flow] = (),
    ) -> None:
        self.topology = topology
        nodes = np.asarray(attachment, dtype=np.int64)
        clients = len(nodes)
        access_bps = np.empty(2 * clients)
        access_bps[Direction.DOWN :: 2] = rate_column_bps(down_bps, clients, "devices.network.down")
        access_bps[Direction.UP :: 2] = rate_column_bps(up_bps, clients, "devices.network.up")
        own_ns = latency_column_ns(latency_s, clients)
        server_bps = rate_column_bps([server_down_bps, server_up_bps], 2, "devices.network.server")
        self._first_server = len(topology.capacity_bps)
        self._first_access = self._first_server + 2
        capacity_bps = np.concatenate([topology.capacity_bps, server_bps, access_bps])
        self._links = FairLinks(capacity_bps)
        self._node = column_view(nodes)
        self._routes = tuple(
            [
                [*topology.route(access, direction), self._first_server + direction]
                for access in range(len(topology.access))
            ]
            for direction in Direction
        )
        rates_bps = []
        for direction in Direction:
            narrowest = np.array([capacity_bps[route].min() for route in self._routes[direction]])
            rates_bps.append(np.minimum(access_bps[direction::2], narrowest[nodes]))
        super().__init__(
            latency_ns=[own_ns + routes.latency_ns[nodes] for routes in topology.routes],
            rates_bps=rates_bps,
        )
        self._transport = transport or Fluid(Parameters())
        self._loss = [
            column_view(path_loss(np.broadcast_to(loss, clients), routes.loss[nodes]))
            for routes in topology.routes
        ]
        self._paths: dict[tuple[int, int], tuple[list[int], int]] = {}
        self._under_way: dict[int, _UnderWay] = {}
        # (instant, order of start, transfer) of pieces that have not begun.
        self._waiting: list[tuple[int, int, int]] = []
        self._started = 0
        self.flows = tuple(flows)
        self.flow_ends_ns = [NEVER] * len(flows)
        for number, flow in enumerate(flows):
            route, latency_ns = topology.path(flow.source, flow.target)
            # The numbers of clients' transfers are not negative.
            course, due_ns = Course(flow.size), to_ns(flow.at) + latency_ns
            self._begin(-1 - number, route, flow.size, course, due_ns, 0)

    def start_transfer(
        self, transfer_id: int, client: int, direction: Direction, size_bytes: float, now_ns: int
    ) -> None:
        """Start a transfer; :meth:`pop_finished` returns it at its end, unless it is canceled."""
        course = self._course(client, direction, size_bytes)
        due_ns = now_ns + self._latency_ns[direction][client]
        self._begin(transfer_id, self.route(client, direction), size_bytes, course, due_ns, now_ns)

    def start_between(
        self, transfer_id: int, source: int, target: int, size_bytes: float, now_ns: int
    ) -> None:
        """Start a transfer from one client to another, over the access links of both and the topology between them."""
        ways = ((source, target), (target, source))
        (route, latency_ns), (back, back_ns) = (self._between(*way) for way in ways)
        loss, back_loss = (
            float(path_loss(self._loss[Direction.UP][one], self._loss[Direction.DOWN][other]))
            for one, other in ways
        )
        rate_bps, back_bps = (min(map(self._links.capacity_bps, links)) for links in (route, back))
        connection = Connection(latency_ns + back_ns, rate_bps, back_bps, loss, back_loss)
        course = self._transport.course(size_bytes, connection)
        self._begin(transfer_id, route, size_bytes, course, now_ns + latency_ns, now_ns)

    def _between(self, source: int, target: int) -> tuple[list[int], int]:
        """Links of the route from one client to another, and its latency."""
        nodes = self._node[source], self._node[target]
        links: list[int] = []
        latency_ns = 0
        if nodes[0] != nodes[1]:
            if nodes not in self._paths:
                self._paths[nodes] = self.topology.path(
                    *(self.topology.access[one] for one in nodes)
                )
            links, latency_ns = self._paths[nodes]
        for client, way in ((source, Direction.UP), (target, Direction.DOWN)):
            routes_ns = self.topology.routes[way].latency_ns[self._node[client]]
            latency_ns += self._latency_ns[way][client] - int(routes_ns)
        up, down = (
            self._first_access + 2 * client + way
            for client, way in ((source, Direction.UP), (target, Direction.DOWN))
        )
        return [up, *links, down], latency_ns

    def _begin(
        self,
        transfer_id: int,
        route: list[int],
        size_bytes: float,
        course: Course,
        due_ns: int,
        now_ns: int,
    ) -> None:
        """Register a transfer whose course begins at ``due_ns``, after its latency."""
        pieces = course.pieces(due_ns)
        self._under_way[transfer_id] = transfer = _UnderWay(
            started=self._started,
            route=route,
            size_bytes=float(size_bytes),
            wire_bytes=course.size_bytes,
            pieces=pieces,
            piece=next(pieces),
        )
        self._started += 1
        self._begin_piece(transfer_id, transfer, now_ns)

    def cancel(self, transfer_id: int, now_ns: int) -> float:
        """Stop a transfer.

        Returns:
            Bytes carried by then.

        Raises:
            KeyError: no such transfer is in progress.
        """
        self._begin_due(now_ns)
        transfer = self._under_way.pop(transfer_id)
        sent_bytes = transfer.sent_bytes
        if transfer_id in self._links:
            sent_bytes += self._links.cancel(transfer_id, now_ns)
        if transfer.wire_bytes == transfer.size_bytes:
            return sent_bytes
        return min(sent_bytes / transfer.wire_bytes, 1.0) * transfer.size_bytes

    def next_event_ns(self) -> int:
        """When to call :meth:`pop_finished` next; :data:`~fedsim.units.NEVER` if nothing is in progress.

        That call may return nothing, because a transfer begins to use its links when its latency has passed.
        """
        next_ns = self._links.next_completion_ns()
        while self._waiting and self._is_canceled(self._waiting[0]):
            heapq.heappop(self._waiting)
        return min(next_ns, self._waiting[0][0]) if self._waiting else next_ns

    def pop_finished(self, now_ns: int) -> list[int]:
        """Transfers whose last byte has arrived by ``now_ns``, in order of arrival and then of their start.

        The ends of other traffic are recorded in :attr:`flow_ends_ns`.
        """
        self._begin_due(now_ns)
        ends = []
        for time_ns, transfer_id in self._links.pop_completed(now_ns):
            transfer = self._under_way[transfer_id]
            transfer.sent_bytes += transfer.piece.size_bytes
            try:
                transfer.piece = transfer.pieces.send(time_ns)
            except StopIteration:
                ends.append((time_ns, transfer.started, transfer_id))
                del self._under_way[transfer_id]
            else:
                self._begin_piece(transfer_id, transfer, now_ns)
        finished = []
        for time_ns, _, transfer_id in sorted(ends):
            if transfer_id < 0:
                self.flow_ends_ns[-1 - transfer_id] = time_ns
            else:
                finished.append(transfer_id)
        return finished

    def nominal_wire_s(self, client: int, direction: Direction, size_bytes: float) -> float:
        if isinstance(self._transport, Fluid):
            return super().nominal_wire_s(client, direction, size_bytes)
        return self._course(client, direction, size_bytes).alone_s(self._rates[direction][client])

    def _course(self, client: int, direction: Direction, size_bytes: float) -> Course:
        connection = connection_of(self, client, direction, self._loss)
        return self._transport.course(size_bytes, connection)

    def latest_end_ns(
        self, client: int, direction: Direction, size_bytes: float, start_ns: int
    ) -> int:
        """An instant by which a transfer ends even if all clients and all other traffic use its links meanwhile.

        Each client has at most one transfer at a time. NEVER if the transport is not fluid, or a link is down.
        """
        if not isinstance(self._transport, Fluid):
            return NEVER
        access_bps, *others_bps = map(self._links.capacity_bps, self.route(client, direction))
        rate_bps = min(access_bps, min(others_bps) / (len(self._node) + len(self.flows)))
        if rate_bps <= 0:
            return NEVER
        wire_ns = size_bytes * BIT_NS_PER_BYTE / rate_bps * (1 + _ROUNDING)
        end_ns = start_ns + self._latency_ns[direction][client] + wire_ns + 1
        return int(min(end_ns, NEVER))

    def route(self, client: int, direction: Direction) -> list[int]:
        """Numbers of the links on a client's route."""
        return [
            self._first_access + 2 * client + direction,
            *self._routes[direction][self._node[client]],
        ]

    def access_bps(self, client: int, direction: Direction) -> float:
        """Capacity of a client's own access link."""
        return self._links.capacity_bps(self._first_access + 2 * client + direction)

    def _begin_piece(self, transfer_id: int, transfer: _UnderWay, now_ns: int) -> None:
        start_ns, size_bytes, limit_bps = transfer.piece
        if start_ns > now_ns:
            heapq.heappush(self._waiting, (start_ns, transfer.started, transfer_id))
        else:
            self._links.start(transfer_id, transfer.route, size_bytes, now_ns, limit_bps)

    def _begin_due(self, now_ns: int) -> None:
        """Start the pieces that are due by ``now_ns``."""
        while self._waiting and self._waiting[0][0] <= now_ns:
            event = heapq.heappop(self._waiting)
            if not self._is_canceled(event):
                transfer = self._under_way[event[2]]
                self._begin_piece(event[2], transfer, event[0])

    def _is_canceled(self, event: tuple[int, int, int]) -> bool:
        _, started, transfer_id = event
        transfer = self._under_way.get(transfer_id)
        return transfer is None or transfer.started != started
