"""Links whose rates follow measured series: transfer times are exact integrals, including outages.

A series is piecewise constant. The cumulative work at the start of each piece is stored, so that a transfer over any
number of pieces and repetitions costs two bisections.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.network.base import BIT_NS_PER_BYTE, Direction, Network, column_view
from fedsim.network.static import latency_column_ns
from fedsim.traces.parameters import OnEnd
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.arrays import Floats, Ints

_ON_END: tuple[OnEnd, ...] = get_args(OnEnd)
_WRAP, _HOLD, _ERROR = _ON_END.index("wrap"), _ON_END.index("hold"), _ON_END.index("error")
_REFUSED_BPS = -1.0

# Work is measured in bit/s x ns. A remainder within the rounding of the work or of the cumulative sum counts as done,
# because it must not delay a transfer to the end of an outage.
_OF_WORK = 1e-12
_OF_SUM = 1e-15


class RateSeries:
    """Many piecewise-constant rate series, concatenated in flat arrays.

    A piece lasts until the next one of its series begins, so a gap between pieces (a missing measurement) continues the
    last known rate; an outage is a piece of rate 0. A piece of unknown rate (NaN) counts as a gap.

    Args:
        series: number of each piece's series, 0..S-1, not decreasing; shape ``(pieces,)``.
        start_ns: start of each piece on the clock of its series, increasing within a series.
        duration_ns: length of each piece.
        rate_bps: rate of each piece.
        on_end: behavior outside a series' pieces; one for all, or one per series.
        latency_s: one-way latency of each piece; an unknown one (NaN) continues the last known one.
        names: names of the S series, for messages.

    The bundle's tables are checked before (:mod:`fedsim.traces.validation`).
    """

    def __init__(
        self,
        *,
        series: npt.ArrayLike,
        start_ns: npt.ArrayLike,
        duration_ns: npt.ArrayLike,
        rate_bps: npt.ArrayLike,
        on_end: OnEnd | Sequence[OnEnd],
        names: Sequence[str],
        latency_s: npt.ArrayLike | None = None,
    ) -> None:
        number = np.asarray(series, dtype=np.int64)
        start = np.asarray(start_ns, dtype=np.int64)
        duration = np.asarray(duration_ns, dtype=np.int64)
        rate = np.asarray(rate_bps, dtype=np.float64)
        self.names = tuple(names)
        count = len(self.names)
        known = ~np.isnan(rate)
        pieces = np.bincount(number[known], minlength=count)
        if not pieces.all():
            name = self.names[int(pieces.argmin())]
            raise UserError(f"series '{name}' has no piece of known rate", where="network_series")
        ends = [on_end] * count if isinstance(on_end, str) else on_end
        mode = np.array([_ON_END.index(end) for end in ends], dtype=np.int64)
        latency = np.broadcast_to(np.nan if latency_s is None else latency_s, rate.shape)
        latency = _filled(latency.astype(np.float64), number)
        # A series that does not repeat has an infinite piece at either end. The last row of each series is not a piece:
        # it contains the end of the last piece and the work done by then.
        open_ended = mode != _WRAP
        last_end = np.zeros(count, np.int64)
        np.maximum.at(last_end, number, start + duration)
        number, start, rate, latency = number[known], start[known], rate[known], latency[known]
        first = np.concatenate([[0], np.cumsum(pieces)[:-1]])
        rows = pieces + 1 + 2 * open_ended
        offsets = np.concatenate([[0], np.cumsum(rows)])
        row_of = np.arange(len(number)) - first[number] + offsets[number] + open_ended[number]

        starts = np.full(offsets[-1], NEVER, dtype=np.int64)
        rates = np.zeros(offsets[-1])
        starts[row_of] = start
        rates[row_of] = rate
        starts[offsets[1:][~open_ended] - 1] = last_end[~open_ended]
        head, tail = offsets[:-1][open_ended], offsets[1:][open_ended] - 2
        outside = np.where(mode == _ERROR, _REFUSED_BPS, 0.0)[open_ended]
        held = (mode == _HOLD)[open_ended]
        starts[head] = -NEVER
        starts[tail] = last_end[open_ended]
        rates[head] = np.where(held, rates[head + 1], outside)
        rates[tail] = np.where(held, rates[tail - 1], outside)

        latencies = np.full(offsets[-1], np.nan)
        latencies[row_of] = latency
        latencies[head], latencies[tail] = latencies[head + 1], latencies[tail - 1]
        weighted = latency * (starts[row_of + 1] - start)

        # The infinite first piece counts as no work, because its sum would reduce the precision of the others.
        done = np.zeros(offsets[-1])
        done[:-1] = np.maximum(rates[:-1], 0.0) * np.diff(starts)
        done[head] = 0.0
        work = np.zeros(offsets[-1])
        for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            np.cumsum(done[low : high - 1], out=work[low + 1 : high])
        first_start = starts[offsets[:-1] + open_ended]
        span = last_end - first_start
        self.mean_bps: Floats = work[offsets[1:] - 1 - open_ended] / span
        self.mean_latency_s: Floats = np.bincount(number, weighted, minlength=count) / span
        self.latencies_s = column_view(latencies)
        self.offsets = column_view(offsets)
        self.starts = column_view(starts)
        self.rates = column_view(rates)
        self.work = column_view(work)
        self.first_start = column_view(first_start)
        self.period = column_view(np.where(open_ended, 0, span))

    def locate(self, series: int, local_ns: int) -> tuple[int, int]:
        """The piece of ``series`` at an instant of its own clock, and the equivalent instant in the first lap."""
        period = self.period[series]
        if period:
            first = self.first_start[series]
            local_ns = first + (local_ns - first) % period
        low, high = self.offsets[series], self.offsets[series + 1] - 1
        return bisect_right(self.starts, local_ns, low, high) - 1, local_ns

    def latency_ns(self, series: int, local_ns: int) -> int:
        """One-way latency at an instant of the series' own clock; for series of known latency."""
        piece, _ = self.locate(series, local_ns)
        return round(self.latencies_s[piece] * NS_PER_S)

    def wire_ns(self, series: int, local_ns: int, work: float) -> int:
        """Nanoseconds for ``work`` (bit/s x ns, above 0) from an instant of the series' own clock.

        Returns:
            The time, to the nearest nanosecond; :data:`NEVER` if the work is never done.
        """
        starts, rates = self.starts, self.rates
        piece, local_ns = self.locate(series, local_ns)
        rate = rates[piece]
        beyond = work - (starts[piece + 1] - local_ns) * rate
        if beyond <= 0:
            return round(work / rate)
        if rate < 0:
            self._refuse(series)
        sums = self.work
        slack = work * _OF_WORK + sums[piece + 1] * _OF_SUM
        if beyond <= slack:
            if rate > 0:
                return round(work / rate)
            beyond = 2 * slack
        end = self.offsets[series + 1] - 1
        target, total, passed_ns = sums[piece + 1] + beyond, sums[end], -local_ns
        if target - slack > total:
            period = self.period[series]
            if not period:
                if rates[end - 1] < 0:
                    self._refuse(series)
                return NEVER
            if total == 0 or (target / total) * period >= NEVER:
                return NEVER
            slack = max(slack, target * _OF_SUM)
            laps = (target - slack) // total
            target -= laps * total
            passed_ns += int(laps) * period
            piece = self.offsets[series] - 1
            if target - slack <= 0:
                target += total
                passed_ns -= period
        # The first piece at whose end the target is reached; never an outage, which does no work.
        last = bisect_left(sums, target - slack, piece + 1, end) - 1
        wire_ns: int = passed_ns + starts[last] + round((target - sums[last]) / rates[last])
        return wire_ns

    def work_between(self, series: int, from_ns: int, until_ns: int) -> float:
        """Work (bit/s x ns) done between two instants of the series' own clock."""
        piece, local_ns = self.locate(series, from_ns)
        until_ns += local_ns - from_ns
        rate = self.rates[piece]
        if until_ns <= self.starts[piece + 1]:
            if rate < 0:
                self._refuse(series)
            return rate * (until_ns - local_ns)
        last, last_ns = self.locate(series, until_ns)
        if rate < 0 or self.rates[last] < 0:
            self._refuse(series)
        laps_ns = until_ns - last_ns
        done = self.rates[last] * (last_ns - self.starts[last]) + self.work[last]
        if laps_ns:
            total = self.work[self.offsets[series + 1] - 1]
            done += total * (laps_ns // self.period[series])
        left: float = (self.starts[piece + 1] - local_ns) * rate
        return left + done - self.work[piece + 1]

    def limited_wire_ns(self, series: int, local_ns: int, work: float, limit_bps: float) -> int:
        """As :meth:`wire_ns`, at a rate of at most ``limit_bps``."""
        end_ns = self.wire_ns(series, local_ns, work)
        if limit_bps == math.inf or end_ns >= NEVER:
            return end_ns
        passed_ns = 0
        for length_ns, rate in self._pieces(series, local_ns, limit_bps):
            if work <= rate * length_ns:
                return passed_ns + round(work / rate)
            work -= rate * length_ns
            passed_ns += length_ns
        return NEVER

    def limited_work_between(
        self, series: int, from_ns: int, until_ns: int, limit_bps: float
    ) -> float:
        """As :meth:`work_between`, at a rate of at most ``limit_bps``."""
        if limit_bps == math.inf:
            return self.work_between(series, from_ns, until_ns)
        done, left_ns = 0.0, until_ns - from_ns
        for length_ns, rate in self._pieces(series, from_ns, limit_bps):
            done += rate * min(length_ns, left_ns)
            left_ns -= length_ns
            if left_ns <= 0:
                break
        return done

    def _pieces(self, series: int, local_ns: int, limit_bps: float) -> Iterator[tuple[int, float]]:
        """Length and limited rate of each piece from an instant; infinitely many if the series repeats."""
        piece, local_ns = self.locate(series, local_ns)
        while True:
            rate = self.rates[piece]
            if rate < 0:
                self._refuse(series)
            yield self.starts[piece + 1] - local_ns, min(rate, limit_bps)
            piece += 1
            if piece == self.offsets[series + 1] - 1:
                if not self.period[series]:
                    return
                piece = self.offsets[series]
            local_ns = self.starts[piece]

    def _refuse(self, series: int) -> None:
        raise UserError(
            f"a transfer runs past the end of the network series '{self.names[series]}'",
            where="network_series",
            hint="shorten the run, or let the trace bundle wrap or hold (on_end in its manifest)",
        )


def _filled(values: Floats, number: Ints) -> Floats:
    """``values`` with each NaN replaced by the last known value of its series, else the first; NaN if there is none."""
    for order in (slice(None), slice(None, None, -1)):
        ordered, series = values[order], number[order]
        last = np.maximum.accumulate(np.where(np.isnan(ordered), -1, np.arange(len(ordered))))
        source = np.maximum(last, 0)
        usable = (last >= 0) & (series[source] == series)
        values = np.where(usable, ordered[source], np.nan)[order]
    return values


@dataclass(frozen=True)
class Ride:
    """The series that each client follows in one direction; columns of shape ``(clients,)``.

    Attributes:
        series: number of the series.
        offset_ns: position on the series' own clock at simulated time 0.
        scale: factor on the rates of the series, zero or more.
        lap_ns: period of the device, after which its position in the series is that of the lap before; 0 if it does not
            repeat, or if the series repeats with it.
        first_lap_ns: simulated time at which a lap begins.
    """

    series: Ints
    offset_ns: Ints
    scale: Floats
    lap_ns: Ints | int = 0
    first_lap_ns: Ints | int = 0


class TracedNetwork(Network):
    """Every client follows one rate series down and one up, from its own offset and at its own scale.

    Args:
        series: the rate series.
        down: series of each client from the server.
        up: series of each client to the server.
        latency_s: one-way latency, a number or one per client; None: that of the series when the last byte of a
            transfer leaves.
    """

    def __init__(
        self, series: RateSeries, *, down: Ride, up: Ride, latency_s: npt.ArrayLike | None
    ) -> None:
        self._all = series
        self._follows_latency = latency_s is None
        for ride, where in ((down, "down"), (up, "up")):
            unknown = np.isnan(series.mean_latency_s)[ride.series]
            if latency_s is None and unknown.any():
                client = int(unknown.argmax())
                name = series.names[ride.series[client]]
                raise UserError(
                    f"the latency of series '{name}', which client {client} follows {where}, is unknown",
                    where="devices.network.latency",
                    hint="give devices.network.latency a duration, such as 40ms",
                )
        rides = (down, up)
        clients = len(down.series)

        def views(name: str) -> tuple[memoryview, ...]:
            columns = (np.broadcast_to(getattr(ride, name), clients) for ride in rides)
            return tuple(map(column_view, columns))

        self._series, self._offset, self._scale = map(views, ("series", "offset_ns", "scale"))
        self._lap, self._first_lap = views("lap_ns"), views("first_lap_ns")
        super().__init__(
            latency_ns=[
                latency_column_ns(
                    series.mean_latency_s[ride.series] if latency_s is None else latency_s,
                    len(ride.series),
                )
                for ride in rides
            ],
            rates_bps=[series.mean_bps[ride.series] * ride.scale for ride in rides],
        )

    def transfer_end_ns(
        self,
        client: int,
        direction: Direction,
        size_bytes: float,
        start_ns: int,
        sequence: int = 0,
        limit_bps: float = math.inf,
    ) -> int:
        series, wire_ns = self._series[direction][client], 0
        if size_bytes != 0:
            scale = self._scale[direction][client]
            if scale == 0:
                return NEVER
            work = size_bytes * BIT_NS_PER_BYTE / scale
            wire_ns = self._wire_ns(client, direction, start_ns, work, limit_bps / scale)
            if wire_ns >= NEVER:
                return NEVER
        if self._follows_latency:
            sent_ns, _ = self._position(client, direction, start_ns + wire_ns)
            latency_ns = self._all.latency_ns(series, sent_ns)
        else:
            latency_ns = self._latency_ns[direction][client]
        end_ns: int = start_ns + wire_ns + latency_ns
        return end_ns if end_ns < NEVER else NEVER

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
        scale = self._scale[direction][client]
        if scale == 0:
            return 0.0
        series, work = self._series[direction][client], 0.0
        while start_ns < until_ns:
            position_ns, length_ns = self._position(client, direction, start_ns)
            length_ns = min(length_ns, until_ns - start_ns)
            until = position_ns + length_ns
            work += self._all.limited_work_between(series, position_ns, until, limit_bps / scale)
            start_ns += length_ns
        return min(float(size_bytes), work * scale / BIT_NS_PER_BYTE)

    def _position(self, client: int, direction: Direction, now_ns: int) -> tuple[int, int]:
        """The position of a client in its series, and the time until its lap ends."""
        position_ns = now_ns + self._offset[direction][client]
        lap_ns = self._lap[direction][client]
        if not lap_ns:
            return position_ns, NEVER
        passed_ns = now_ns - self._first_lap[direction][client]
        return position_ns - passed_ns // lap_ns * lap_ns, lap_ns - passed_ns % lap_ns

    def _wire_ns(
        self, client: int, direction: Direction, start_ns: int, work: float, limit_bps: float
    ) -> int:
        """Nanoseconds for ``work`` from an instant of the simulation, over the laps of the device."""
        series, lap_ns = self._series[direction][client], self._lap[direction][client]
        passed_ns, slack = 0, work * _OF_WORK
        while passed_ns < NEVER:
            position_ns, length_ns = self._position(client, direction, start_ns + passed_ns)
            wire_ns = self._all.limited_wire_ns(series, position_ns, work, limit_bps)
            if wire_ns <= length_ns or wire_ns >= NEVER:
                return passed_ns + wire_ns
            until = position_ns + length_ns
            done = self._all.limited_work_between(series, position_ns, until, limit_bps)
            laps = 1
            if length_ns == lap_ns:
                if done <= 0:
                    return NEVER
                # All but the last whole lap at once, regardless of the rounding of their work.
                laps = max(int(work // done) - 1, 1)
            work -= laps * done
            passed_ns += laps * length_ns
            if work <= slack:
                return passed_ns
        return NEVER
