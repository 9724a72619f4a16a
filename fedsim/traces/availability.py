"""The interval index: who is online at an instant, until when, and when next, for one client or for all of them.

Intervals lie in columns, ordered by device and start (compressed sparse rows); a client is a range of rows, a period
and an offset, so clients that replay one device share its rows. Nothing here is an event: every question about any
instant, past the trace's end as well, is answered in closed form. Inside, times are integer microseconds of the bundle;
the interface speaks integer nanoseconds of simulated time. That is exact: a half-open interval whose ends are whole
microseconds holds an instant just when it holds the whole microsecond below it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.randomness import Stream
from fedsim.traces.bundle import OnEnd, TraceBundle
from fedsim.traces.intervals import (
    FAR_US,
    NEVER,
    device_intervals,
    device_periods,
    first_at_or_after,
    held,
    ranks,
)
from fedsim.units import NS_PER_S

__all__ = ["NEVER", "AvailabilityIndex", "OnlineSampler", "Sweep"]

_NS = 1000
_CHUNK_ROWS = 1 << 21

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class AvailabilityIndex:
    """Availability of a population of clients; make one with :meth:`from_bundle` or :meth:`always`.

    Client ``c`` reads the trace of its device at the trace instant ``start + t + shift[c]``. Where a trace wraps, that
    instant is folded into the device's period, which begins at the start of its observation window.

    Attributes:
        clients: number of clients.
        horizon_ns: questions about this instant or later are refused; NEVER unless the bundle says ``on_end: error``.
        mean_session_ns: mean length of an interval of the trace, at most NEVER.
    """

    def __init__(
        self,
        starts_us: Int64Array,
        ends_us: Int64Array,
        first: Int64Array,
        last: Int64Array,
        offset_us: Int64Array,
        period_us: Int64Array,
        base_us: Int64Array,
        horizon_ns: int = NEVER,
    ) -> None:
        if not len(starts_us):
            # A row that no client refers to, so that gathers always have something to read.
            starts_us, ends_us = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.clients = len(first)
        self.horizon_ns = horizon_ns
        self._starts, self._ends = starts_us, ends_us
        self._first, self._last = first, last
        self._offset, self._period, self._base = offset_us, period_us, base_us
        self._wraps = bool(period_us.any())
        # Memory views give Python integers several times faster than numpy scalars.
        self._starts_view, self._ends_view = starts_us.data, ends_us.data
        self._first_view, self._last_view = first.data, last.data
        self._offset_view, self._period_view = offset_us.data, period_us.data
        self._base_view = base_us.data
        self._before_us: Int64Array | None = None
        self._before_view: memoryview[int] | None = None
        self._sweep = Sweep(self)
        total_us = np.sum(ends_us, dtype=np.float64) - np.sum(starts_us, dtype=np.float64)
        self.mean_session_ns = int(min(float(total_us) / len(starts_us) * _NS, NEVER))

    @classmethod
    def always(cls, clients: int) -> AvailabilityIndex:
        """Everybody is online all the time."""
        zeros = np.zeros(clients, np.int64)
        return cls(np.array([-FAR_US]), np.array([FAR_US]), zeros, zeros + 1, zeros, zeros, zeros)

    @classmethod
    def from_bundle(
        cls,
        bundle: TraceBundle,
        device_rows: npt.ArrayLike | None = None,
        shift_ns: npt.ArrayLike | None = None,
        eligible: npt.ArrayLike | None = None,
        *,
        start_us: int = 0,
        on_end: OnEnd | None = None,
    ) -> AvailabilityIndex:
        """Index the availability of a bundle for a population.

        Args:
            bundle: bundle with the tables ``devices`` and ``availability``.
            device_rows: row of ``devices`` that each client replays, shape (clients,); one client a device by default.
            shift_ns: how far into its trace each client is ahead, shape (clients,); rounded to microseconds.
            eligible: false for clients that are never to be online, shape (clients,).
            start_us: trace instant of simulated time 0.
            on_end: overrides the manifest's rule for instants outside a device's observation window.

        Raises:
            UserError: the availability contradicts itself (overlaps, reversed intervals, unknown devices ...).
        """
        starts, ends, row_first, row_last = device_intervals(bundle)
        window_start = bundle.numpy("devices", "window_start_us")
        window_end = bundle.numpy("devices", "window_end_us")
        if device_rows is None:
            device_rows = np.arange(bundle.device_count)
        rows = np.asarray(device_rows, dtype=np.int64)
        mode = on_end or bundle.manifest.on_end
        if mode == "hold":
            starts, ends = held(starts, ends, row_first, row_last, window_start, window_end)
        first, last = row_first[rows], row_last[rows]
        if eligible is not None:
            last = np.where(np.asarray(eligible, dtype=np.bool_), last, first)
        offset = np.full(len(rows), start_us, np.int64)
        if shift_ns is not None:
            offset += (np.asarray(shift_ns, dtype=np.int64) + _NS // 2) // _NS
        period = np.zeros(len(rows), np.int64)
        base = np.zeros(len(rows), np.int64)
        horizon_ns = NEVER
        if mode == "wrap":
            period = device_periods(bundle, window_end - window_start)[rows]
            base = window_start[rows]
            offset -= base
        elif mode == "error" and len(rows):
            horizon_ns = int((window_end[rows] - offset).min()) * _NS
        return cls(starts, ends, first, last, offset, period, base, horizon_ns)

    # One client -----------------------------------------------------------------------------------------------------

    def is_online(self, client: int, t_ns: int) -> bool:
        """Whether ``client`` is online at ``t_ns``."""
        if t_ns >= self.horizon_ns:
            self._refuse(t_ns)
        position = t_ns // _NS + self._offset_view[client]
        period = self._period_view[client]
        if period:
            position = position % period + self._base_view[client]
        first = self._first_view[client]
        row = bisect_right(self._starts_view, position, first, self._last_view[client])
        return row > first and self._ends_view[row - 1] > position

    def online_until(self, client: int, t_ns: int) -> int:
        """Exclusive end (ns) of the time online that holds ``t_ns``; ``t_ns`` itself when offline, NEVER when endless.

        An interval that touches the end of the trace goes on in the next lap where that begins online.
        """
        if t_ns >= self.horizon_ns:
            self._refuse(t_ns)
        time_us = t_ns // _NS
        position = time_us + self._offset_view[client]
        period = self._period_view[client]
        if period:
            base = self._base_view[client]
            position = position % period + base
        first = self._first_view[client]
        row = bisect_right(self._starts_view, position, first, self._last_view[client])
        if row == first:
            return t_ns
        end = self._ends_view[row - 1]
        if end <= position:
            return t_ns
        if period:
            if end == base + period and self._starts_view[first] == base:
                if row - 1 == first:
                    return NEVER
                end = self._ends_view[first] + period
        elif end == FAR_US:
            return NEVER
        return (time_us + end - position) * _NS

    def next_online(self, client: int, t_ns: int) -> int:
        """First instant (ns) from ``t_ns`` on at which ``client`` is online; NEVER if there is none."""
        if t_ns >= self.horizon_ns:
            self._refuse(t_ns)
        time_us = t_ns // _NS
        position = time_us + self._offset_view[client]
        period = self._period_view[client]
        if period:
            position = position % period + self._base_view[client]
        first, last = self._first_view[client], self._last_view[client]
        row = bisect_right(self._starts_view, position, first, last)
        if row > first and self._ends_view[row - 1] > position:
            return t_ns
        if row < last:
            return (time_us + self._starts_view[row] - position) * _NS
        if period and first < last:
            return (time_us + self._starts_view[first] + period - position) * _NS
        return NEVER

    def finish_after(self, client: int, t_ns: int, work_ns: int) -> int:
        """The instant (ns) at which ``client`` has been online for ``work_ns`` since ``t_ns``; NEVER if it never has.

        This is pause and resume: work goes on while online and waits while offline. No work is finished at once.
        """
        if t_ns >= self.horizon_ns:
            self._refuse(t_ns)
        if work_ns <= 0:
            return t_ns
        first, last = self._first_view[client], self._last_view[client]
        if first == last:
            return NEVER
        before = self._before()
        starts, ends = self._starts_view, self._ends_view
        shift_ns = self._offset_view[client] * _NS
        position = t_ns + shift_ns
        period = self._period_view[client] * _NS
        lap_ns = 0
        if period:
            lap_ns = position // period * period
            # From here on, times are relative to the start of the lap that holds t.
            shift_ns += self._base_view[client] * _NS
            position += self._base_view[client] * _NS - lap_ns
        row = bisect_right(starts, position // _NS, first, last) - 1
        done = 0
        if row >= first:
            done = before[row] * _NS + min(position, ends[row] * _NS) - starts[row] * _NS
        target = done + work_ns
        if period:
            a_lap = (before[last - 1] + ends[last - 1] - starts[last - 1]) * _NS
            laps, target = divmod(target - 1, a_lap)
            target += 1
            lap_ns += laps * period
        # The last row before which less than the target has been done.
        row = bisect_left(before, -(-target // _NS), first, last) - 1
        finish = starts[row] * _NS + target - before[row] * _NS
        if not period and (finish > ends[row] * _NS or finish >= NEVER - abs(shift_ns)):
            return NEVER
        return finish + lap_ns - shift_ns

    # Many clients ---------------------------------------------------------------------------------------------------

    def state_many(
        self, clients: npt.ArrayLike, t_ns: npt.ArrayLike
    ) -> tuple[BoolArray, Int64Array]:
        """Whether each client is online, and the instant (ns) at which that changes next (NEVER if it does not).

        Args:
            clients: client ids, shape (n,).
            t_ns: one instant, or one for each client.
        """
        ids = np.asarray(clients)
        time_us = np.asarray(t_ns, dtype=np.int64)
        if self.horizon_ns < NEVER and time_us.size and time_us.max() >= self.horizon_ns:
            self._refuse(int(time_us.max()))
        time_us = time_us // _NS
        first, last = self._first[ids], self._last[ids]
        position = time_us + self._offset[ids]
        if not self._wraps:
            row = self._rows_at_or_before(position, first, last)
            on, target = self._change(position, row, first, last)
        else:
            period, base = self._period[ids], self._base[ids]
            wraps = period > 0
            position = np.where(wraps, position % np.maximum(period, 1) + base, position)
            row = self._rows_at_or_before(position, first, last)
            on, target = self._change(position, row, first, last)
            head = np.minimum(first, len(self._starts) - 1)
            head_start, head_end = self._starts[head], self._ends[head]
            seam = wraps & on & (target == base + period) & (head_start == base)
            endless = seam & (row == first)
            target = np.where(seam, head_end + period, target)
            target = np.where(endless, FAR_US, target)
            round_again = wraps & ~on & (target == FAR_US) & (first < last)
            target = np.where(round_again, head_start + period, target)
        change: Int64Array = np.where(
            target >= FAR_US, NEVER, (time_us + (target - position)) * _NS
        )
        return on, change

    def _change(
        self, position: Int64Array, row: Int64Array, first: Int64Array, last: Int64Array
    ) -> tuple[BoolArray, Int64Array]:
        """Online or not, and the trace instant (us) at which the row ends or the next one starts, in this lap."""
        end = self._ends.take(row, mode="clip")
        on: BoolArray = (row >= first) & (end > position)
        following = self._starts.take(row + 1, mode="clip")
        target: Int64Array = np.where(on, end, np.where(row + 1 < last, following, FAR_US))
        return on, target

    def _rows_at_or_before(
        self, position: Int64Array, first: Int64Array, last: Int64Array
    ) -> Int64Array:
        """Last row of each client that starts at or before ``position``; ``first - 1`` where there is none."""
        low, high = first.copy(), last.copy()
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            right = (self._starts.take(middle, mode="clip") <= position) & (low < high)
            np.copyto(low, middle + 1, where=right)
            np.copyto(high, middle, where=~right)
        return low - 1

    def is_online_many(self, clients: npt.ArrayLike, t_ns: npt.ArrayLike) -> BoolArray:
        """:meth:`is_online` for arrays, shape (n,)."""
        return self.state_many(clients, t_ns)[0]

    def online_until_many(self, clients: npt.ArrayLike, t_ns: npt.ArrayLike) -> Int64Array:
        """:meth:`online_until` for arrays (ns), shape (n,)."""
        on, change = self.state_many(clients, t_ns)
        return np.where(on, change, t_ns)

    def next_online_many(self, clients: npt.ArrayLike, t_ns: npt.ArrayLike) -> Int64Array:
        """:meth:`next_online` for arrays (ns), shape (n,)."""
        on, change = self.state_many(clients, t_ns)
        return np.where(on, t_ns, change)

    def online_clients(self, t_ns: int) -> Int64Array:
        """Clients online at ``t_ns``, ascending. Cheapest when the instants asked about do not decrease."""
        self._sweep.advance(t_ns)
        return np.flatnonzero(self._sweep.online)

    def count_online(self, t_ns: int) -> int:
        """Number of clients online at ``t_ns``. Cheapest when the instants asked about do not decrease."""
        self._sweep.advance(t_ns)
        return int(np.count_nonzero(self._sweep.online))

    def next_arrival(self, t_ns: int, among: BoolArray | None = None) -> int:
        """First instant (ns) after ``t_ns`` at which a client that is offline at ``t_ns`` comes online; NEVER if none.

        Args:
            t_ns: the instant.
            among: only clients where this holds, shape (clients,).
        """
        self._sweep.advance(t_ns)
        waiting = ~self._sweep.online
        if among is not None:
            waiting &= among
        return int(self._sweep.change_ns.min(initial=NEVER, where=waiting))

    def intervals_between(
        self, clients: npt.ArrayLike, start_ns: int, end_ns: int
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The times online of some clients within ``[start_ns, end_ns)``, cut to it, each as long as it can be.

        Returns:
            Position in ``clients``, start (ns) and end (ns) of each interval, by client and start.
        """
        if end_ns > self.horizon_ns:
            self._refuse(end_ns)
        ids = np.asarray(clients, dtype=np.int64)
        low, high = start_ns // _NS, -(-end_ns // _NS)
        who = np.arange(len(ids))
        offset, period, base = self._offset[ids], self._period[ids], self._base[ids]
        safe_period = np.maximum(period, 1)
        lap = np.where(period > 0, (low + offset) // safe_period, 0)
        final_lap = np.where(period > 0, (high - 1 + offset) // safe_period, 0)
        laps = np.maximum(final_lap - lap + 1, 0)
        who = np.repeat(who, laps)
        lap = np.repeat(lap, laps) + ranks(laps)
        ids, period = ids[who], period[who]
        # What to add to a trace instant of this lap for simulated time.
        to_time = lap * period - offset[who] - base[who]
        first, last = self._first[ids], self._last[ids]
        row_low = self._rows_at_or_before(low - to_time, first, last)
        row_low = np.maximum(row_low, first)
        row_high = self._rows_at_or_before(high - 1 - to_time, first, last) + 1
        count = np.maximum(row_high - row_low, 0)
        row = np.repeat(row_low, count) + ranks(count)
        to_time = np.repeat(to_time, count)
        who = np.repeat(who, count)
        begin = np.maximum((self._starts[row] + to_time) * _NS, start_ns)
        # Endless rows would overflow in nanoseconds.
        end = np.minimum(np.minimum(self._ends[row], FAR_US // 2) + to_time, high) * _NS
        end = np.minimum(end, end_ns)
        kept = end > begin
        who, begin, end = who[kept], begin[kept], end[kept]
        joins = np.zeros(len(who), np.bool_)
        joins[1:] = (who[1:] == who[:-1]) & (begin[1:] == end[:-1])
        if joins.any():
            ends_here = np.append(~joins[1:], True)
            who, begin, end = who[~joins], begin[~joins], end[ends_here]
        return who, begin, end

    def _chunks(self, start_ns: int, end_ns: int) -> Iterator[Int64Array]:
        """Runs of clients whose intervals in a span of time fit in memory together."""
        span_us = -(-(end_ns - start_ns) // _NS)
        laps = np.where(self._period > 0, span_us // np.maximum(self._period, 1) + 2, 1)
        total = np.cumsum((self._last - self._first) * laps + 1)
        cuts = np.searchsorted(total, np.arange(_CHUNK_ROWS, int(total[-1]), _CHUNK_ROWS))
        edges = np.unique(np.concatenate([[0], cuts, [self.clients]]))
        for low, high in itertools.pairwise(edges):
            yield np.arange(low, high)

    def online_counts(self, times_ns: npt.ArrayLike) -> Int64Array:
        """Number of clients online at each of some instants (ns, ascending), in one pass over the intervals."""
        times = np.asarray(times_ns, dtype=np.int64)
        if not len(times) or not self.clients:
            return np.zeros(len(times), np.int64)
        start, end = int(times[0]), int(times[-1]) + 1
        change = np.zeros(len(times) + 1, np.int64)
        for clients in self._chunks(start, end):
            _, begin, until = self.intervals_between(clients, start, end)
            change += np.bincount(first_at_or_after(times, begin), minlength=len(change))
            change -= np.bincount(first_at_or_after(times, until), minlength=len(change))
        return np.cumsum(change[:-1])

    def online_between_ns(self, start_ns: int, end_ns: int) -> Int64Array:
        """How long (ns) each client is online within ``[start_ns, end_ns)``, shape (clients,)."""
        if end_ns > self.horizon_ns:
            self._refuse(end_ns)
        return self._online_before_ns(end_ns) - self._online_before_ns(start_ns)

    def _online_before_ns(self, t_ns: int) -> Int64Array:
        """Time online (ns) of each client from a fixed instant of its own until ``t_ns``, shape (clients,)."""
        self._before()
        assert self._before_us is not None
        first, last = self._first, self._last
        position = t_ns // _NS + self._offset
        wraps = self._period > 0
        lap: Int64Array = np.where(wraps, position // np.maximum(self._period, 1), 0)
        position = position - lap * self._period + self._base
        row = self._rows_at_or_before(position, first, last)
        started = row >= first
        end = self._ends.take(row, mode="clip")
        in_row = np.minimum(position, end) - self._starts.take(row, mode="clip")
        until_row = self._before_us.take(row, mode="clip")
        done: Int64Array = np.where(started, until_row + in_row, 0)
        tail = last - 1
        a_lap = self._before_us.take(tail, mode="clip") + self._ends.take(tail, mode="clip")
        a_lap = a_lap - self._starts.take(tail, mode="clip")
        a_lap = np.where(wraps & (first < last), a_lap, 0)
        below_us = np.where(started & (end > position), t_ns % _NS, 0)
        result: Int64Array = (done + lap * a_lap) * _NS + below_us
        return result

    def _before(self) -> memoryview[int]:
        """Time online (us) of a row's device before the row; made when it is first asked for."""
        if self._before_view is None:
            length = self._ends - self._starts
            before = np.cumsum(length) - length
            heads = np.unique(self._first[self._first < self._last])
            if len(heads):
                sizes = np.diff(np.append(heads, len(before)))
                before[heads[0] :] -= np.repeat(before[heads], sizes)
            self._before_us = before
            self._before_view = before.data
        return self._before_view

    def _refuse(self, t_ns: int) -> None:
        raise UserError(
            f"the availability trace ends before {t_ns / 1e9:g} s, and says on_end: error",
            hint="stop the run earlier, or let the trace wrap, hold or be unavailable at its end",
        )


class Sweep:
    """The state of all clients at one instant, brought forward cheaply.

    Args:
        index: the population.

    Attributes:
        online: who is online, shape (clients,).
        change_ns: when that changes next (ns; NEVER if it does not), shape (clients,).
    """

    def __init__(self, index: AvailabilityIndex) -> None:
        self._index = index
        self._now_ns: int | None = None
        self.online = np.zeros(0, np.bool_)
        self.change_ns = np.zeros(0, np.int64)

    def advance(self, t_ns: int) -> None:
        """Move to ``t_ns``; an earlier instant than the last one costs a look-up of every client."""
        if t_ns == self._now_ns:
            return
        if self._now_ns is None or t_ns < self._now_ns:
            self.online, self.change_ns = self._index.state_many(
                np.arange(self._index.clients), t_ns
            )
        else:
            changed = np.flatnonzero(self.change_ns <= t_ns)
            self.online[changed], self.change_ns[changed] = self._index.state_many(changed, t_ns)
        self._now_ns = t_ns


class OnlineSampler:
    """Draws clients uniformly among those that are online and not busy.

    What is drawn is a function of the stream, the draw, the instant and ``busy`` alone. Time is cut into bins; the
    clients online at any instant of a bin are listed once, and clients are drawn from the list until they pass an exact
    check, which leaves every acceptable client equally likely. Where too few pass, the acceptable ones are listed
    instead.

    Args:
        index: the population.
        stream: random numbers of these draws; one sampler a stream.
    """

    _BLOCK = 4096
    _ATTEMPTS = 64
    _LISTED = 1 << 20

    def __init__(self, index: AvailabilityIndex, stream: Stream) -> None:
        self._index = index
        self._stream = stream
        # A quarter of a session: one draw in five meets a client that has left or is still to come.
        self._bin_ns = min(max(index.mean_session_ns // 4, NS_PER_S), 86_400 * NS_PER_S)
        self._sweep = Sweep(index)
        self._bin_start = 0
        self._bin_end = 0
        self._list(0)
        self._block = -1
        self._uniforms: list[float] = []
        self._busy: BoolArray | None = None
        self._busy_view = np.zeros(0, np.bool_).data

    def sample(self, k: int, t_ns: int, busy: BoolArray, draw: int) -> Int64Array:
        """``k`` different clients that are online at ``t_ns`` and not busy, in random order.

        Args:
            k: how many.
            t_ns: the instant.
            busy: clients that are not to be drawn, shape (clients,).
            draw: number of this draw; a number of its own gives a draw of its own.

        Returns:
            Client ids, shape (k,); fewer where fewer exist.
        """
        if k == 1:
            client = self.sample_one(t_ns, busy, draw)
            return np.array([client] if client >= 0 else [], dtype=np.int64)
        if not self._bin_start <= t_ns < self._bin_end:
            self._list(t_ns)
        count = len(self._listed)
        if k <= 0 or not count:
            return np.zeros(0, np.int64)
        if 4 * k >= count:
            return self._sample_exactly(k, t_ns, busy, draw)
        limit = self._ATTEMPTS + 8 * k
        chosen = np.zeros(0, np.int64)
        attempts = 0
        while attempts < limit:
            more = min(2 * (k - len(chosen)) + 16, limit - attempts)
            uniforms = self._stream.uniforms(draw, np.arange(attempts, attempts + more))
            attempts += more
            places = (uniforms * count).astype(np.int64)
            clients = self._listed[places]
            accepted = clients[~busy[clients] & self._online(places, clients, t_ns)]
            chosen = np.concatenate([chosen, accepted])
            _, where = np.unique(chosen, return_index=True)
            chosen = chosen[np.sort(where)]
            if len(chosen) >= k:
                return chosen[:k]
        return self._sample_exactly(k, t_ns, busy, draw)

    def sample_one(self, t_ns: int, busy: BoolArray, draw: int) -> int:
        """One client that is online at ``t_ns`` and not busy; -1 where there is none. As :meth:`sample` with k = 1."""
        if not self._bin_start <= t_ns < self._bin_end:
            self._list(t_ns)
        if busy is not self._busy:
            self._busy, self._busy_view = busy, busy.data
        block, place = divmod(draw, self._BLOCK)
        if block != self._block:
            first = block * self._BLOCK
            self._uniforms = self._stream.uniforms(np.arange(first, first + self._BLOCK)).tolist()
            self._block = block
        count = self._count
        uniform = self._uniforms[place]
        attempt = 0
        while attempt < self._ATTEMPTS and count:
            at = int(uniform * count)
            client = self._listed_view[at]
            if not self._busy_view[client] and (
                self._sure_until_view[at] > t_ns or self._index.is_online(client, t_ns)
            ):
                return client
            attempt += 1
            uniform = self._stream.uniform(draw, attempt)
        chosen = self._sample_exactly(1, t_ns, busy, draw)
        return int(chosen[0]) if len(chosen) else -1

    def _sample_exactly(self, k: int, t_ns: int, busy: BoolArray, draw: int) -> Int64Array:
        """The draw from a list of all acceptable clients, ordered by a random key of each."""
        places = np.flatnonzero(~busy[self._listed])
        clients = self._listed[places]
        clients = clients[self._online(places, clients, t_ns)]
        keys = self._stream.hashes(draw, clients + self._LISTED)
        if k < len(clients):
            some = np.argpartition(keys, k - 1)[:k]
            clients, keys = clients[some], keys[some]
        return clients[np.argsort(keys)]

    def _online(self, places: Int64Array, clients: Int64Array, t_ns: int) -> BoolArray:
        online = self._sure_until[places] > t_ns
        unsure = np.flatnonzero(~online)
        online[unsure] = self._index.is_online_many(clients[unsure], t_ns)
        return online

    def _list(self, t_ns: int) -> None:
        """List the clients that are online at any instant of the bin that holds ``t_ns``."""
        self._bin_start = t_ns // self._bin_ns * self._bin_ns
        self._bin_end = self._bin_start + self._bin_ns
        self._sweep.advance(self._bin_start)
        online, change_ns = self._sweep.online, self._sweep.change_ns
        self._listed = np.flatnonzero(online | (change_ns < self._bin_end))
        self._count = len(self._listed)
        # Whoever is online when the bin starts is so until its next change; nothing is known here of the others.
        self._sure_until = np.where(online[self._listed], change_ns[self._listed], 0)
        self._listed_view = self._listed.data
        self._sure_until_view = self._sure_until.data
