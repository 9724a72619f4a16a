"""Links of constant latency and rate: end = start + latency + size / rate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError, UserErrors
from fedsim.network.base import BIT_NS_PER_BYTE, NEVER, Direction, Network
from fedsim.units import NS_PER_S


def column_view(column: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> memoryview:
    """A view whose items are Python numbers: several times cheaper to index than the array."""
    return np.ascontiguousarray(column).data


def latency_column_ns(latency_s: npt.ArrayLike, clients: int) -> npt.NDArray[np.int64]:
    """One-way latencies in seconds, a number or one a client, as nanoseconds.

    Raises:
        UserError: a latency is negative, not finite, or beyond what the clock holds.
    """
    column = np.broadcast_to(np.asarray(latency_s, dtype=np.float64), (clients,))
    bad = ~((column >= 0) & (column * NS_PER_S < NEVER))
    if bad.any():
        first = int(bad.argmax())
        raise UserError(
            f"latency of client {first} is {column[first]} s ({bad.sum()} clients in all)",
            where="network.latency",
            hint="a latency is a finite number of seconds, zero or more",
        )
    return np.rint(column * NS_PER_S).astype(np.int64)


def rate_column_bps(rate_bps: npt.ArrayLike, clients: int, where: str) -> npt.NDArray[np.float64]:
    """Rates in bits per second, a number or one a client, checked: zero or more, possibly infinite.

    Raises:
        UserError: a rate is negative or not a number.
    """
    column = np.broadcast_to(np.asarray(rate_bps, dtype=np.float64), (clients,))
    bad = ~(column >= 0)
    if bad.any():
        first = int(bad.argmax())
        raise UserError(
            f"rate of client {first} is {column[first]} bit/s ({bad.sum()} clients in all)",
            where=where,
            hint="a rate is a number of bits per second, zero or more",
        )
    return np.ascontiguousarray(column)


class StaticNetwork(Network):
    """Every client has its own latency and constant rates down and up; nothing is shared.

    A transfer ends at ``start + latency + round(size * 8e9 / rate)`` nanoseconds, where ``round`` is to the nearest
    integer and the latency was rounded once, when the network was built. A rate of 0 is a link that is down.

    Args:
        latency_s: one-way latency, a number or one a client.
        down_bps: rate from the server, a number or one a client.
        up_bps: rate to the server, a number or one a client.
        clients: number of clients.

    Raises:
        UserErrors: negative or missing values.
    """

    def __init__(
        self,
        *,
        latency_s: npt.ArrayLike,
        down_bps: npt.ArrayLike,
        up_bps: npt.ArrayLike,
        clients: int,
    ) -> None:
        errors: list[UserError] = []
        rates: list[npt.NDArray[np.float64]] = []
        for values, where in ((down_bps, "network.down"), (up_bps, "network.up")):
            try:
                rates.append(rate_column_bps(values, clients, where))
            except UserError as error:
                errors.append(error)
        try:
            latencies = latency_column_ns(latency_s, clients)
        except UserError as error:
            errors.append(error)
        if errors:
            raise UserErrors(errors)
        self._latency_ns = column_view(latencies)
        self._rates = (column_view(rates[0]), column_view(rates[1]))

    def transfer_end_ns(
        self, client: int, direction: Direction, size_bytes: float, start_ns: int
    ) -> int:
        """See :meth:`Network.transfer_end_ns`."""
        rate = self._rates[direction][client]
        if rate > 0:
            wire_ns = size_bytes * BIT_NS_PER_BYTE / rate
            if wire_ns < NEVER:
                end_ns: int = start_ns + self._latency_ns[client] + round(wire_ns)
                return end_ns if end_ns < NEVER else NEVER
            return NEVER
        return start_ns + self._latency_ns[client] if size_bytes == 0 else NEVER

    def bytes_by(
        self, client: int, direction: Direction, size_bytes: float, start_ns: int, until_ns: int
    ) -> float:
        """See :meth:`Network.bytes_by`."""
        if until_ns <= start_ns:
            return 0.0
        moved = self._rates[direction][client] * (until_ns - start_ns) / BIT_NS_PER_BYTE
        return min(float(size_bytes), moved)

    def rate_bps(self, client: int, direction: Direction) -> float:
        """See :meth:`Network.rate_bps`."""
        rate: float = self._rates[direction][client]
        return rate

    def latency_ns(self, client: int, direction: Direction = Direction.DOWN) -> int:
        """See :meth:`Network.latency_ns`."""
        latency: int = self._latency_ns[client]
        return latency
