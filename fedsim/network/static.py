"""Links with constant latency and rate: end = start + latency + size / rate; or with a rate drawn per dispatch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.network.base import BIT_NS_PER_BYTE, Direction, Network, column_view
from fedsim.randomness import Draws, Stream
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.formatting import format_counted

_STANDARD = NormalDist()


def latency_column_ns(latency_s: npt.ArrayLike, clients: int) -> Ints:
    """One-way latencies in seconds, a number or one per client, as nanoseconds."""
    column = np.broadcast_to(np.asarray(latency_s, dtype=np.float64), (clients,))
    with np.errstate(over="ignore"):
        sound = (column >= 0) & (column * NS_PER_S < NEVER)
    hint = "a latency is a finite number of seconds, zero or more"
    _require(sound, column, "latency", "s", "devices.network.latency", hint)
    return np.rint(column * NS_PER_S).astype(np.int64)


def rate_column_bps(rate_bps: npt.ArrayLike, clients: int, where: str) -> Floats:
    """Rates in bits per second, a number or one per client, checked: zero or more, possibly infinite."""
    column = np.broadcast_to(np.asarray(rate_bps, dtype=np.float64), (clients,))
    hint = "a rate is a number of bits per second, zero or more"
    _require(column >= 0, column, "rate", "bit/s", where, hint)
    return np.ascontiguousarray(column)


def _require(sound: Bools, column: Floats, name: str, unit: str, where: str, hint: str) -> None:
    bad = ~sound
    if bad.any():
        first = int(bad.argmax())
        raise UserError(
            f"{name} of client {first} is {column[first]} {unit} ({format_counted(int(bad.sum()), 'client')} in all)",
            where=where,
            hint=hint,
        )


class ConstantNetwork(Network):
    """Every client has its own latency and constant rate in each direction.

    A transfer ends at ``start + latency + round(size * 8e9 / rate)`` nanoseconds, where ``round`` is to the nearest
    integer. A link of rate 0 is down.
    """

    constant = True

    def transfer_end_ns(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        sequence: int = 0,
        limit_bps: float = math.inf,
    ) -> int:
        rate = self._rates[direction][client]
        if rate > 0:
            # Half the rate has the same effect as twice the bytes at the nominal rate.
            slower_bytes = size_bytes / self.factor(client, direction, sequence)
            wire_ns = slower_bytes * BIT_NS_PER_BYTE / rate
            if limit_bps < math.inf:
                wire_ns = max(wire_ns, size_bytes * BIT_NS_PER_BYTE / limit_bps)
            if wire_ns < NEVER:
                end_ns: int = start_ns + self._latency_ns[direction][client] + round(wire_ns)
                return end_ns if end_ns < NEVER else NEVER
            return NEVER
        return start_ns + self.latency_ns(client, direction) if size_bytes == 0 else NEVER

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
        if until_ns <= start_ns:
            return 0.0
        factor = self.factor(client, direction, sequence)
        rate = min(self._rates[direction][client], limit_bps / factor)
        moved = rate * (until_ns - start_ns) / BIT_NS_PER_BYTE
        return float(size_bytes) if moved >= size_bytes / factor else moved * factor

    def factor(self, client: int, direction: Direction, sequence: int) -> float:
        """Rate of a dispatch's transfers over the nominal rate; above 0."""
        return 1.0


class StaticNetwork(ConstantNetwork):
    """Constant links that are not shared.

    Args:
        latency_s: one-way latency, a number or one per client; rounded to nanoseconds.
        down_bps: rate from the server, a number or one per client.
        up_bps: rate to the server, a number or one per client.
        clients: number of clients.
    """

    def __init__(
        self,
        *,
        latency_s: npt.ArrayLike,
        down_bps: npt.ArrayLike,
        up_bps: npt.ArrayLike,
        clients: int,
    ) -> None:
        latency_ns = latency_column_ns(latency_s, clients)
        super().__init__(
            latency_ns=[latency_ns, latency_ns],
            rates_bps=[
                rate_column_bps(down_bps, clients, "devices.network.down"),
                rate_column_bps(up_bps, clients, "devices.network.up"),
            ],
        )


class VaryingNetwork(StaticNetwork):
    """Static links with a new rate for each direction of each dispatch.

    The rate is normal around the client's nominal rate, and redrawn while it is negative (FLASH: Yang et al., WWW 2021,
    ``speed_distri``), which gives the normal distribution truncated at 0. The draw is a function of client, direction
    and dispatch alone, so that a paused transfer resumes at its rate.

    Args:
        cv: coefficient of variation of the rate before truncation, by direction and client; NaN (unknown) counts as 0.
        streams: random streams of the draws, one per direction.
        links: as for :class:`StaticNetwork`.
    """

    constant = False

    def __init__(self, *, cv: Floats, streams: Sequence[Stream], **links: Any) -> None:
        super().__init__(**links)
        self._cvs = tuple(column_view(column) for column in np.nan_to_num(cv))
        self._draws = tuple(Draws(stream, cv.shape[1]) for stream in streams)

    def factor(self, client: int, direction: Direction, sequence: int) -> float:
        cv: float = self._cvs[direction][client]
        if not cv:
            return 1.0
        below_zero = _STANDARD.cdf(-1 / cv)
        u = self._draws[direction].uniform(client, sequence)
        factor = 1.0 + cv * _STANDARD.inv_cdf(below_zero + (1 - below_zero) * u)
        # With a rate of exactly 0, the transfer would never end.
        return max(factor, 1e-6)
