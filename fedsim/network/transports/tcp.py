"""``transport: {name: tcp}``: connection set-up, slow start, headers, window and loss, without simulating packets.

With round-trip time R (both latencies, a full segment out and an acknowledgment back), segments of m bytes that take s
seconds on the link, initial window w0, and N segments in all:

- **Slow start** doubles the window every round (RFC 5681; Linux counts acknowledged bytes, RFC 3465, so delayed
  acknowledgments do not slow it). Round k sends w0 2^k segments and begins max(R, w0 2^(k-1) s) after round k - 1. So a
  transfer that is never limited by the window takes ``N s + sum_k max(0, R - w0 2^k s)`` plus one latency, which is the
  latency with static windows of Kurose and Ross, *Computer Networking*, section 3.7.
- **Loss** at rate p ends slow start after an expected ``(1 - (1 - p)^N) (1 - p) / p + 1`` segments (Cardwell, Savage
  and Anderson, *Modeling TCP latency*, INFOCOM 2000, equation 5). What is left flows at the steady rate W / R of the
  congestion control:

  - reno: Padhye, Firoiu, Towsley and Kurose, *Modeling TCP throughput*, SIGCOMM 1998, equation 31,
    ``m / (R sqrt(2 b p / 3) + T0 min(1, 3 sqrt(3 b p / 8)) p (1 + 32 p^2))`` with b = 1 (bytes are counted);
  - cubic: RFC 9438, section 5.1, ``W = (C (3 + beta) / (4 (1 - beta)))^(1/4) R^(3/4) / p^(3/4)``, and not less than
    the rate of its Reno-friendly region, ``W = sqrt(3 / (2 p))``; C = 0.4, beta = 0.7.
- A lost segment costs one round trip, or a timeout if too few segments are in flight to notice (Cardwell et al.,
  equations 16 to 19). The first segment of a connection is sent again after one second.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from fedsim.components import Parameters
from fedsim.network.base import BIT_NS_PER_BYTE
from fedsim.network.transport import Connection, Course, Transport
from fedsim.units import NEVER, NS_PER_S, Size

_CUBIC_C = 0.4
_CUBIC_BETA = 0.7
_LEAST_TIMEOUT_S = 0.2  # added to the smoothed round-trip time (Linux: TCP_RTO_MIN)
_INITIAL_TIMEOUT_S = 1.0  # RFC 6298


class TcpParams(Parameters):
    """Parameters of TCP."""

    congestion: Literal["cubic", "reno"] = "cubic"
    """Congestion control; it matters where packets are lost."""
    connection: Literal["new", "reuse"] = "new"
    """new: every transfer opens a connection, which takes one round trip. reuse: the connection is kept open. Either
    way a transfer starts with the initial window, as a connection does that was idle (RFC 5681, section 4.1)."""
    initial_window: int = Field(10, ge=1)
    """Segments sent in the first round trip (RFC 6928)."""
    window: Size | None = Field(None, gt=0)
    """Largest window, the smaller of the send and receive buffers; default: never limiting."""
    segment: int = Field(1448, ge=1)
    """Payload of a full segment in bytes: 1500 minus IPv4 and TCP headers with timestamps."""
    header: int = Field(52, ge=0)
    """Bytes of headers per segment that count against the rates of links."""


class Tcp(Transport):
    """TCP: connection set-up, slow start, headers, and limits by window and loss."""

    name: ClassVar[str] = "tcp"
    Params = TcpParams
    params: TcpParams
    loses = True

    def course(self, size_bytes: float, connection: Connection) -> Course:
        """Slow start until the window or the first expected loss limits it, then the steady rate."""
        params = self.params
        segments = math.ceil(size_bytes / params.segment)
        wire_bytes = size_bytes + segments * params.header
        packet_bytes = min(size_bytes, params.segment) + params.header
        handshake_ns = self._round_ns(params.header, connection)
        round_ns = self._round_ns(packet_bytes, connection)
        loss = connection.loss
        setup_ns = 0
        if params.connection == "new":
            setup_ns = handshake_ns + _retries_ns(loss, connection.back_loss)
        if round_ns >= NEVER:
            return Course(wire_bytes, setup_ns)
        largest = math.inf if params.window is None else max(params.window / params.segment, 1.0)
        before_loss = segments_before_loss(segments, loss)
        windows: list[float] = []
        window, sent = float(params.initial_window), 0.0
        while sent < before_loss and window < largest:
            windows.append(min(window, before_loss - sent))
            sent += windows[-1]
            window *= 2
        per_segment = wire_bytes / segments if segments else 0.0
        limit = largest / (round_ns / NS_PER_S)
        pause_ns = 0
        if loss > 0:
            limit = min(limit, self.steady_segments_per_s(round_ns / NS_PER_S, loss))
            pause_ns = _recovery_ns(segments, loss, min(window, largest), round_ns)
        return Course(
            wire_bytes,
            setup_ns,
            tuple(count * per_segment for count in windows),
            round_ns,
            pause_ns,
            limit * per_segment * 8 if segments else math.inf,
        )

    def steady_segments_per_s(self, rtt_s: float, loss: float) -> float:
        """Rate of a long transfer that loses this share of its segments, above 0; see the formulas of the module."""
        if self.params.congestion == "cubic":
            growth = _CUBIC_C * (3 + _CUBIC_BETA) / (4 * (1 - _CUBIC_BETA))
            window = max(growth**0.25 * (rtt_s / loss) ** 0.75, math.sqrt(1.5 / loss))
            return window / rtt_s
        timeout_s = rtt_s + _LEAST_TIMEOUT_S
        timeouts_s = timeout_s * min(1.0, 3 * math.sqrt(3 * loss / 8)) * loss * (1 + 32 * loss**2)
        segments_per_s: float = 1 / (rtt_s * math.sqrt(2 * loss / 3) + timeouts_s)
        return segments_per_s

    def _round_ns(self, packet_bytes: float, connection: Connection) -> int:
        """Time from the start of a packet to its acknowledgment, on idle links."""
        if connection.rate_bps <= 0 or connection.back_bps <= 0:
            return NEVER
        wire_ns = packet_bytes * BIT_NS_PER_BYTE / connection.rate_bps
        wire_ns += self.params.header * BIT_NS_PER_BYTE / connection.back_bps
        return min(connection.rtt_ns + round(wire_ns), NEVER) if wire_ns < NEVER else NEVER


def segments_before_loss(segments: float, loss: float) -> float:
    """Expected segments sent up to and including the first lost one, at most ``segments``."""
    if loss <= 0:
        return segments
    expected = -math.expm1(segments * math.log1p(-loss)) * (1 - loss) / loss + 1
    return min(expected, segments)


def _retries_ns(loss: float, back_loss: float) -> int:
    """Expected time lost to lost packets of the handshake: each is sent again after 1, 2, 4, ... seconds."""
    lost = 1 - (1 - loss) * (1 - back_loss)
    return round(_INITIAL_TIMEOUT_S * lost / (1 - 2 * lost) * NS_PER_S) if lost < 0.5 else NEVER


def _recovery_ns(segments: int, loss: float, window: float, round_ns: int) -> int:
    """Expected time lost to the first loss: a timeout with probability min(1, 3 / window), else one round trip."""
    lossy = -math.expm1(segments * math.log1p(-loss))
    timeout = min(1.0, 3 / window)
    timeout_ns = round_ns + _LEAST_TIMEOUT_S * NS_PER_S
    return round(lossy * (timeout * timeout_ns + (1 - timeout) * round_ns))
