"""``transport: {name: tcp}``: connection setup, slow start, headers, window and loss, without simulating packets.

With round-trip time R (both latencies, a full segment out and an acknowledgment back), segments of m bytes that take s
seconds on the link, initial window w0, and N segments in total:

- **Slow start** doubles the window every round (RFC 5681; Linux counts acknowledged bytes, RFC 3465, so delayed
  acknowledgments do not slow it down). Round k sends w0 2^k segments and begins max(R, w0 2^(k-1) s) after round k - 1.
  A transfer that is never limited by the window thus takes ``N s + sum_k max(0, R - w0 2^k s)`` plus one latency
  (Kurose and Ross, *Computer Networking*, section 3.7, latency with static windows).
- **The first loss** at rate p comes after a geometric number d of segments (Cardwell, Savage and Anderson, *Modeling
  TCP latency*, INFOCOM 2000, initial slow start); a transfer has one with probability ``P = 1 - (1 - p)^N``. By the
  time that the sender notices, each acknowledged segment has added one to the window, which is thus ``w0 + d``. But
  cubic leaves slow start when the link is full (HyStart, RFC 9406), and reno with half the window that overflows the
  queue in front of it; from there on, the window grows by its congestion control. The duration is the mean over the
  distribution of d; the course is the slowest of those of its quantiles and of no loss that takes no longer than the
  mean, and the difference is added as a pause.
- **Queues** of shared links make a round longer by up to ``buffer`` R, and by all of it while other transfers fill the
  queue.
- **After the first loss**, the number of losses in n segments has a Poisson distribution of mean p n, and the transfer
  thus spends on average ``Pr(more than k losses) / p`` segments at the window that it has after k of them:

  - reno: a loss halves the window, which grows by a segment per round; the steady rate is that of Padhye, Firoiu,
    Towsley and Kurose, *Modeling TCP throughput*, SIGCOMM 1998, equation 31,
    ``1 / (R sqrt(2 b p / 3) + Q T0 p (1 + 32 p^2))`` segments per second with b = 1 (bytes are counted) and
    T0 = R + 0.2 s. Q is the probability that a loss leads to a timeout. Their ``min(1, 3 sqrt(3 b p / 8))`` is that of
    senders without selective acknowledgments; with them (RFC 6675, RFC 8985) the retransmission has to be lost too:
    Q = p.
  - cubic: RFC 9438. The window W falls to 0.7 W and grows as ``0.4 (t - K)^3 + W_max``, or like Reno's if that is
    larger; the steady rate is that of section 5.1, ``W = (C (3 + beta) / (4 (1 - beta)))^(1/4) (R / p)^(3/4)``, but at
    least that of the Reno-friendly region, ``W = sqrt(3 / (2 p))``; C = 0.4, beta = 0.7. Timeouts are those of reno.
- **Links that are nearly full** carry less than the smaller of their rate and the law's, as the window varies. After
  random losses, its square is a sum of exponential variables that shrink by beta^2 per loss (Ott, Kemperman and Mathis,
  *The stationary behavior of ideal TCP congestion avoidance*, 1996); a segment takes the mean of the larger of its time
  on the link and R over the window.
- **A loss in the last window** delays the end until the retransmission arrives, up to a round trip. If the last segment
  is lost, no later one reveals it, which takes a timeout T0. Lost packets of the handshake are sent again after one
  second.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedsim.network.base import BIT_NS_PER_BYTE
from fedsim.network.transport import Connection, Course, Transport
from fedsim.parts.component import Parameters
from fedsim.units import NEVER, NS_PER_S, Size

_CUBIC_C = 0.4
_CUBIC_BETA = 0.7
_RENO_BETA = 0.5
_RENO_FRIENDLY = 3 * (1 - _CUBIC_BETA) / (1 + _CUBIC_BETA)  # RFC 9438, section 4.3: alpha_cubic
_LEAST_TIMEOUT_S = 0.2  # added to the smoothed round-trip time (Linux: TCP_RTO_MIN)
_INITIAL_TIMEOUT_S = 1.0  # RFC 6298
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles that represent the distribution of the first loss


class Tcp(Transport):
    """TCP: connection set-up, slow start, headers, and limits by window and loss."""

    name = "tcp"
    loses = True

    class Params(Parameters):
        congestion: Literal["cubic", "reno"] = "cubic"
        """Congestion control; relevant if packets are lost."""
        connection: Literal["new", "reuse"] = "new"
        """new: every transfer opens a connection, which takes one round trip of bare headers. reuse: the connection
        stays open. In either case, a transfer starts with the initial window, as after an idle period (RFC 5681,
        section 4.1)."""
        initial_window: int = Field(10, ge=1)
        """Segments sent in the first round trip (RFC 6928)."""
        window: Size | None = Field(None, gt=0)
        """Maximum window, the smaller of the send and receive buffers; unlimited by default."""
        buffer: float = Field(1.0, ge=0)
        """Queue in front of the slowest link, in bandwidth-delay products: a window grows at most to the product plus
        the queue, and the queue lengthens a round trip while other transfers fill it."""
        segment: int = Field(1448, ge=1)
        """Payload of a full segment in bytes: 1500 minus IPv4 and TCP headers with timestamps."""
        header: int = Field(52, ge=0)
        """Bytes of headers per segment that count against the rates of links."""

    params: Params

    def course(self, size_bytes: float, connection: Connection) -> Course:
        """Slow start until the window or the first expected loss limits it, then the steady rate."""
        return _course(self.params, size_bytes, connection)


@functools.lru_cache(maxsize=1 << 16)
def _course(params: Tcp.Params, size_bytes: float, connection: Connection) -> Course:
    segments = math.ceil(size_bytes / params.segment)
    wire_bytes = size_bytes + segments * params.header
    packet_bytes = min(size_bytes, params.segment) + params.header
    round_ns = _round_ns(params, packet_bytes, connection)
    loss, rate_bps = connection.loss, connection.rate_bps
    setup_ns = 0
    if params.connection == "new":
        setup_ns = _round_ns(params, params.header, connection)
        setup_ns += _retries_ns(loss, connection.back_loss)
    if round_ns >= NEVER or not segments:
        return Course(wire_bytes, min(setup_ns, NEVER))
    transfer = _Transfer(params, wire_bytes, segments, setup_ns, round_ns, rate_bps, loss)
    without_loss = transfer.course(segments, ())
    if loss <= 0:
        return without_loss
    lossy = -math.expm1(segments * math.log1p(-loss))
    usual, usual_s = without_loss, without_loss.alone_s(rate_bps)
    # The duration is not linear in the position of the first loss, so the mean is over its distribution.
    courses = [
        transfer.after_loss(math.log1p(-share * lossy) / math.log1p(-loss)) for share in _SHARES
    ]
    durations_s = [course.alone_s(rate_bps) for course in courses]
    mean_s = lossy * sum(durations_s) / len(courses) + (1 - lossy) * usual_s
    mean_s += loss * (round_ns / NS_PER_S + _LEAST_TIMEOUT_S)
    for course, course_s in zip(courses, durations_s, strict=True):
        if usual_s < course_s <= mean_s:
            usual, usual_s = course, course_s
    more_ns = max(0, round((mean_s - usual_s) * NS_PER_S))
    return replace(usual, pause_ns=usual.pause_ns + more_ns)


def _round_ns(params: Tcp.Params, packet_bytes: float, connection: Connection) -> int:
    """Time from the start of a packet to its acknowledgment, on idle links."""
    if connection.rate_bps <= 0 or connection.back_bps <= 0:
        return NEVER
    wire_ns = packet_bytes * BIT_NS_PER_BYTE / connection.rate_bps
    wire_ns += params.header * BIT_NS_PER_BYTE / connection.back_bps
    return min(max(connection.rtt_ns + round(wire_ns), 1), NEVER) if wire_ns < NEVER else NEVER


class _Transfer:
    """One transfer over a connection: N segments of equal size, rounds of R."""

    def __init__(
        self,
        params: Tcp.Params,
        wire_bytes: float,
        segments: int,
        setup_ns: int,
        round_ns: int,
        rate_bps: float,
        loss: float,
    ) -> None:
        self._params = params
        self._wire_bytes = wire_bytes
        self._segments = segments
        self._segment_bytes = wire_bytes / segments
        self._setup_ns = setup_ns
        self._round_ns = round_ns
        self._round_s = round_ns / NS_PER_S
        self._loss = loss
        self._link = rate_bps / (8 * self._segment_bytes)  # segments per second
        cubic = params.congestion == "cubic"
        self._beta = _CUBIC_BETA if cubic else _RENO_BETA
        self._rise = _RENO_FRIENDLY if cubic else 1.0  # segments per round
        self._largest = math.inf
        if params.window is not None:
            self._largest = max(params.window / params.segment, 1.0)

    def course(
        self, slow_start: float, stages: tuple[tuple[float, float], ...], pause_ns: int = 0
    ) -> Course:
        """Slow start and the largest window for so many segments, then stages of (segments, segments per second)."""
        windows = list(self._windows(slow_start))
        if self._largest < math.inf or not stages:
            stages = ((slow_start - sum(windows), self._largest / self._round_s), *stages)
        size = self._segment_bytes
        return Course(
            self._wire_bytes,
            self._setup_ns,
            tuple(window * size for window in windows),
            self._round_ns,
            tuple((count * size, rate * size * 8) for count, rate in stages),
            pause_ns,
            self._link * size * 8,
            round(self._params.buffer * self._round_ns),
        )

    def after_loss(self, first_loss: float) -> Course:
        """The expected course if the first loss is at segment ``first_loss``."""
        loss, round_s, buffer = self._loss, self._round_s, self._params.buffer
        pipe = self._link * round_s
        # Slow start ends when the link is full, or with half the window that overflows the queue.
        full = pipe if self._params.congestion == "cubic" else pipe * max(1, (1 + buffer) / 2)
        later = math.sqrt(full**2 + 2 * self._rise * max(first_loss - full, 0.0))
        window = min(self._params.initial_window + first_loss, later, pipe * (1 + buffer))
        window = max(min(window, self._largest), 1.0)
        # One more window is sent before the loss is noticed.
        slow_start = min(first_loss + window, self._segments)
        rest = self._segments - slow_start
        least_s = max(1 / self._link, round_s / self._largest)
        if rest <= 0:
            windows = list(self._windows(slow_start))
            limited = self._largest < math.inf and sum(windows) < slow_start
            last = (self._largest, least_s) if limited else (windows[-1], 1 / self._link)
            late_s = self._late_s(*last, self._segments - first_loss)
            return self.course(slow_start, (), round(late_s * NS_PER_S))
        segment_s = 1 / self._link
        stages: list[tuple[float, float]] = []
        epochs = self._epochs(window, min(pipe * (1 + buffer), self._largest))
        for more, segment_s in zip(_more_losses(rest * loss), epochs, strict=False):
            # The window at the first loss is known; later ones vary.
            segment_s = self._mean_s(segment_s, least_s) if stages else max(segment_s, least_s)
            stages.append((more / loss, 1 / segment_s))
            rest -= more / loss
        steady_s = 1 / steady_segments_per_s(self._params.congestion, round_s, loss)
        stages.append((max(rest, 0.0), 1 / self._mean_s(steady_s, least_s)))
        late_s = self._late_s(round_s / segment_s, segment_s)
        return self.course(slow_start, tuple(stages), round(late_s * NS_PER_S))

    def _late_s(self, window: float, segment_s: float, certain: float = math.inf) -> float:
        """Mean time from the arrival of the last segment to that of the last retransmission, if that is later.

        A segment of the last window, which leave every ``segment_s``, is sent again a round later if it is lost. One
        loss is certain, ``certain`` segments before the end.
        """
        rate = -math.log1p(-self._loss)
        reach = min(window, certain)
        none = math.exp(-rate * reach)
        late_s = self._round_s * (1 - none) - segment_s * ((1 - none) / rate - reach * none)
        if certain < window:
            late_s += none * (self._round_s - certain * segment_s)
        return max(late_s, 0.0)

    def _mean_s(self, segment_s: float, least_s: float) -> float:
        """Mean time per segment that takes ``segment_s`` on average as the window varies, but at least ``least_s``."""
        inverse, terms = _squared_window(self._beta)
        bound = (segment_s / (least_s * inverse)) ** 2
        if bound > _NEVER_FULL:
            return segment_s
        mean_s = 0.0
        for weight, rate in terms:
            longer = math.sqrt(math.pi * rate) * math.erf(math.sqrt(rate * bound)) / inverse
            mean_s += weight * (segment_s * longer + least_s * math.exp(-rate * bound))
        return mean_s

    def _windows(self, segments: float) -> Iterator[float]:
        """The windows of slow start."""
        window, left = float(self._params.initial_window), float(segments)
        while left > 0 and window < self._largest:
            yield min(window, left)
            left -= window
            window *= 2

    def _epochs(self, window: float, largest: float) -> Iterator[float]:
        """Seconds per segment between losses 1 / p segments apart, starting with the window at the first."""
        cubic = self._params.congestion == "cubic"
        rise = self._rise / self._round_s
        area = self._round_s / self._loss  # the window, integrated over the time between losses
        summit = window
        for _ in range(_EPOCHS):
            low = self._beta * window
            seconds = (math.sqrt(low**2 + 2 * rise * area) - low) / rise
            at_loss = low + rise * seconds
            if cubic:
                # Fast convergence: after a loss below the last summit, the window leaves room for other flows.
                summit = window * (1 + _CUBIC_BETA) / 2 if window < summit else window
                inflection_s = ((summit - low) / _CUBIC_C) ** (1 / 3)
                seconds = min(seconds, _cubic_seconds(summit, inflection_s, area, area / low))
                curve = summit + _CUBIC_C * (seconds - inflection_s) ** 3
                at_loss = max(low + rise * seconds, curve)
            yield seconds * self._loss + _timeouts_s(self._round_s, self._loss)
            window = max(min(at_loss, largest), 1.0)


_EPOCHS = 30
"""More epochs than any window needs to decrease to the steady one."""


def _cubic_seconds(summit: float, inflection_s: float, area: float, longest_s: float) -> float:
    """Time until the integral of cubic's window over time is ``area``: Newton's method, from above, as it is convex."""
    seconds = longest_s
    for _ in range(50):
        offset_s = seconds - inflection_s
        excess = summit * seconds + _CUBIC_C * (offset_s**4 - inflection_s**4) / 4 - area
        step_s = excess / (summit + _CUBIC_C * offset_s**3)
        seconds -= step_s
        if step_s <= 1e-9 * seconds:
            break
    return seconds


def _more_losses(mean: float) -> Iterator[float]:
    """Probabilities of more than 0, 1, 2, ... losses of a Poisson distribution, as long as they are not negligible."""
    more, exactly = 1.0, math.exp(-mean)
    for count in itertools.count(1):
        more -= exactly
        if more < 1e-9:
            return
        yield more
        exactly *= mean / count


_NEVER_FULL = 40.0
"""Scaled square of the window that fills a link, beyond which it is never reached."""


@functools.lru_cache
def _squared_window(beta: float) -> tuple[float, tuple[tuple[float, float], ...]]:
    """The distribution of ``U = sum_i beta^(2 i) E_i``, E_i exponential of mean 1: the mean of 1 / sqrt(U), and the
    weights and rates of the exponentials that add up to the density.
    """
    shrink = beta**2

    def weight(term: int) -> float:
        return 1 / math.prod(1 - shrink ** (other - term) for other in range(60) if other != term)

    terms = tuple((weight(term), shrink**-term) for term in range(9))
    return sum(weight * math.sqrt(math.pi * rate) for weight, rate in terms), terms


def steady_segments_per_s(congestion: str, rtt_s: float, loss: float) -> float:
    """Rate of a long transfer that loses the share ``loss`` of its segments, above 0; see the module's formulas."""
    window = math.sqrt(1.5 / loss)
    if congestion == "cubic":
        growth = _CUBIC_C * (3 + _CUBIC_BETA) / (4 * (1 - _CUBIC_BETA))
        window = max(growth**0.25 * (rtt_s / loss) ** 0.75, window)
    return float(1 / (rtt_s / window + _timeouts_s(rtt_s, loss)))


def _timeouts_s(rtt_s: float, loss: float) -> float:
    """Mean time per segment that is lost to timeouts."""
    return (rtt_s + _LEAST_TIMEOUT_S) * loss**2 * (1 + 32 * loss**2)


def _retries_ns(loss: float, back_loss: float) -> int:
    """Expected delay by lost packets of the handshake, which are sent again after 1, 2, 4, ... seconds."""
    lost = 1 - (1 - loss) * (1 - back_loss)
    return round(_INITIAL_TIMEOUT_S * lost / (1 - 2 * lost) * NS_PER_S) if lost < 0.5 else NEVER
