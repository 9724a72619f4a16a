"""Links of constant latency and rate: end = start + latency + size / rate; or of a rate drawn for each dispatch."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError, UserErrors
from fedsim.network.base import BIT_NS_PER_BYTE, NEVER, Direction, Network
from fedsim.randomness import Stream, unit_from
from fedsim.units import NS_PER_S

_STANDARD = NormalDist()


def column_view(column: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> memoryview:
    """A view whose items are Python numbers: several times cheaper to index than the array."""
    return np.ascontiguousarray(column).data


def latency_column_ns(latency_s: npt.ArrayLike, clients: int) -> npt.NDArray[np.int64]:
    """One-way latencies in seconds, a number or one a client, as nanoseconds.

    Raises:
        UserError: a latency is negative, not finite, or beyond what the clock holds.
    """
    column = np.broadcast_to(np.asarray(latency_s, dtype=np.float64), (clients,))
    with np.errstate(over="ignore"):
        bad = ~((column >= 0) & (column * NS_PER_S < NEVER))
    if bad.any():
        first = int(bad.argmax())
        raise UserError(
            f"latency of client {first} is {column[first]} s ({bad.sum()} clients in all)",
            where="devices.network.latency",
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
        for values, where in ((down_bps, "devices.network.down"), (up_bps, "devices.network.up")):
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
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        sequence: int = 0,
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

    def constant_transfers_ns(
        self, direction: Direction, size_bytes: float
    ) -> npt.NDArray[np.int64] | None:
        """See :meth:`Network.constant_transfers_ns`."""
        latency_ns = np.asarray(self._latency_ns)
        rates_bps = np.asarray(self._rates[direction])
        wire_ns = np.zeros(len(rates_bps))
        if size_bytes:
            with np.errstate(divide="ignore", over="ignore"):
                wire_ns = size_bytes * BIT_NS_PER_BYTE / rates_bps
        ends = wire_ns < NEVER - latency_ns
        return np.where(
            ends, np.rint(np.where(ends, wire_ns, 0)).astype(np.int64) + latency_ns, NEVER
        )

    def bytes_by(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        until_ns: int,
        sequence: int = 0,
    ) -> float:
        """See :meth:`Network.bytes_by`."""
        if until_ns <= start_ns:
            return 0.0
        moved = self._rates[direction][client] * (until_ns - start_ns) / BIT_NS_PER_BYTE
        return min(float(size_bytes), moved)

    def rates_bps(self, direction: Direction) -> npt.NDArray[np.float64]:
        """See :meth:`Network.rates_bps`."""
        return np.array(self._rates[direction])

    def rate_bps(self, client: int, direction: Direction) -> float:
        """See :meth:`Network.rate_bps`."""
        rate: float = self._rates[direction][client]
        return rate

    def latency_ns(self, client: int, direction: Direction = Direction.DOWN) -> int:
        """See :meth:`Network.latency_ns`."""
        latency: int = self._latency_ns[client]
        return latency


class VaryingNetwork(StaticNetwork):
    """Static links whose rate is drawn anew for each direction of each dispatch.

    The rate is normal around the client's nominal rate and positive: a normal draw that is negative is drawn again
    (FLASH: Yang et al., WWW 2021, ``speed_distri``), which is the normal distribution truncated at 0. The draw is a
    function of client, direction and dispatch alone, so that a transfer that pauses goes on at its rate.

    Args:
        latency_s, down_bps, up_bps, clients: as for :class:`StaticNetwork`.
        down_cv: standard deviation of the rate over its mean before truncation, from the server; a number or one a
            client; NaN where it is not known counts as 0.
        up_cv: the same to the server.
        streams: random numbers of the draws, one stream a direction.

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
        down_cv: npt.ArrayLike,
        up_cv: npt.ArrayLike,
        streams: tuple[Stream, Stream],
    ) -> None:
        super().__init__(latency_s=latency_s, down_bps=down_bps, up_bps=up_bps, clients=clients)
        cvs = [
            np.nan_to_num(np.broadcast_to(np.asarray(cv, dtype=np.float64), (clients,)))
            for cv in (down_cv, up_cv)
        ]
        self._cvs = tuple(column_view(cv) for cv in cvs)
        self._keys = tuple(stream.keyed(clients) for stream in streams)

    def factor(self, client: int, direction: Direction, sequence: int) -> float:
        """Rate of a dispatch's transfers over the nominal rate; above 0."""
        cv: float = self._cvs[direction][client]
        if not cv:
            return 1.0
        below_zero = _STANDARD.cdf(-1 / cv)
        u = unit_from(self._keys[direction][client], sequence)
        factor = 1.0 + cv * _STANDARD.inv_cdf(below_zero + (1 - below_zero) * u)
        # A rate of exactly nothing would be a link that is down for good.
        return max(factor, 1e-6)

    def transfer_end_ns(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        sequence: int = 0,
    ) -> int:
        """See :meth:`Network.transfer_end_ns`."""
        # Half the rate is twice the bytes at the nominal one.
        size_bytes = size_bytes / self.factor(client, direction, sequence)
        return super().transfer_end_ns(client, direction, size_bytes, start_ns)

    def constant_transfers_ns(
        self, direction: Direction, size_bytes: float
    ) -> npt.NDArray[np.int64] | None:
        """See :meth:`Network.constant_transfers_ns`: rates are drawn."""
        return None

    def bytes_by(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        until_ns: int,
        sequence: int = 0,
    ) -> float:
        """See :meth:`Network.bytes_by`."""
        factor = self.factor(client, direction, sequence)
        nominal_bytes = size_bytes / factor
        moved = super().bytes_by(client, direction, nominal_bytes, start_ns, until_ns)
        return float(size_bytes) if moved >= nominal_bytes else moved * factor
