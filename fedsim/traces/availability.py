"""The interval index: which clients are online at an instant, until when, and when they come online next.

The edges of all intervals (start, end, start, ...) are one column, ordered by device (compressed sparse rows). A client
is a range of edges, an offset and a period, so clients that replay the same device share its edges; it is online if an
odd number of its edges lie at or before the instant. Nothing here is an event: every query, even past the end of the
trace, is answered in closed form. Internally, times are the bundle's integer microseconds; the interface uses integer
nanoseconds of simulated time. That is exact: a half-open interval whose ends are whole microseconds contains an instant
if and only if it contains that instant rounded down to a microsecond.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.randomness import Stream
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.intervals import FAR_US, device_edges, device_periods, join_touching, ranks
from fedsim.traces.parameters import OnEnd
from fedsim.units import DAY_S, DAY_US, NEVER, NS_PER_S
from fedsim.units import NS_PER_US as _NS
from fedsim.vocabulary.arrays import Bools, Ints
from fedsim.vocabulary.formatting import format_duration

_CHUNK_ROWS = 1 << 21
# So few clients are looked up faster one by one.
_FEW = 12


class AvailabilityIndex:
    """Availability of a population of clients; make one with :meth:`from_bundle` or :meth:`always`.

    Client ``c`` reads the trace of its device at the trace instant ``start + t + shift[c]``. If a trace wraps, that
    instant is folded into the device's period, which begins at the start of its observation window.

    Attributes:
        clients: number of clients.
        horizon_ns: queries at this instant or later are refused; NEVER unless the bundle sets ``on_end: error``.
        mean_session_ns: mean length of an interval of the trace, at most NEVER.
    """

    def __init__(
        self,
        edges_us: Ints,
        first: Ints,
        last: Ints,
        offset_us: Ints,
        period_us: Ints,
        horizon_ns: int = NEVER,
        mean_session_ns: int | None = None,
    ) -> None:
        if not len(edges_us):
            # An interval that belongs to no client, so that gathers never read from an empty array.
            edges_us = np.zeros(2, np.int64)
        self.clients = len(first)
        self.horizon_ns = horizon_ns
        self._edges = edges_us
        # One row per client, so that looking up a client reads one cache line.
        self._layout = np.stack([first, last, offset_us, period_us], axis=1)
        self._wraps = bool(period_us.any())
        # Memory views give Python integers several times faster than numpy scalars.
        self._edges_view = edges_us.data
        self._layout_view = self._layout.reshape(-1).data
        self._sweep = Sweep(self, np.arange(self.clients))
        self._observed_us: tuple[Ints, Ints] | None = None
        if mean_session_ns is None:
            total_us = np.sum(edges_us[1::2] - edges_us[::2], dtype=np.float64)
            mean_session_ns = int(min(2 * float(total_us) / len(edges_us) * _NS, NEVER))
        self.mean_session_ns = mean_session_ns

    @classmethod
    def always(cls, clients: int, eligible: npt.ArrayLike | None = None) -> AvailabilityIndex:
        """Every client is always online, except those that are not ``eligible``, (clients,), which never are."""
        zeros = np.zeros(clients, np.int64)
        edges = 2 if eligible is None else 2 * np.asarray(eligible, dtype=np.int64)
        return cls(np.array([-FAR_US, FAR_US]), zeros, zeros + edges, zeros, zeros)

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
            device_rows: row of ``devices`` that each client replays, shape (clients,); by default one per device.
            shift_ns: additional offset of each client into its trace, shape (clients,); rounded to microseconds.
            eligible: false for clients that are never online, shape (clients,).
            start_us: trace instant of simulated time 0.
            on_end: overrides the manifest's rule for instants outside a device's observation window.
        """
        device, edges, first_of, last_of = device_edges(bundle)
        window_start, window_end = bundle.windows
        if device_rows is None:
            device_rows = np.arange(bundle.device_count)
        rows = np.asarray(device_rows, dtype=np.int64)
        first, last = first_of[rows], last_of[rows]
        if eligible is not None:
            last = np.where(np.asarray(eligible, dtype=np.bool_), last, first)
        offset = np.full(len(rows), start_us, np.int64)
        if shift_ns is not None:
            offset += (np.asarray(shift_ns, dtype=np.int64) + _NS // 2) // _NS
        period = np.zeros(len(rows), np.int64)
        horizon_ns = NEVER
        mode = on_end or bundle.manifest.on_end
        if mode == "wrap":
            period = device_periods(bundle, window_end - window_start)[rows]
            offset -= window_start[rows]
            edges -= np.repeat(window_start[device], 2)
        elif mode == "hold":
            # The state at either end of a device's window lasts forever.
            some = first_of < last_of
            heads, tails = first_of[some], last_of[some] - 1
            edges[heads] = np.where(edges[heads] == window_start[some], -FAR_US, edges[heads])
            edges[tails] = np.where(edges[tails] == window_end[some], FAR_US, edges[tails])
        elif mode == "error" and len(rows):
            horizon_ns = int((window_end[rows] - offset).min()) * _NS
        index = cls(edges, first, last, offset, period, horizon_ns)
        begin_us = np.where(period > 0, 0, window_start[rows]) - offset
        index._observed_us = begin_us, begin_us + (window_end - window_start)[rows]
        return index

    def of(self, clients: npt.ArrayLike) -> AvailabilityIndex:
        """The availability of some clients, which it numbers in this order; it shares the intervals."""
        rows = np.asarray(clients)
        first, last, offset, period = self._layout.take(rows, axis=0).T
        session_ns = self.mean_session_ns
        part = AvailabilityIndex(
            self._edges, first, last, offset, period, self.horizon_ns, session_ns
        )
        part._sweep = self._sweep.narrowed(rows, part)
        return part

    def within(self, others: AvailabilityIndex, of_client: Ints, end_ns: int) -> AvailabilityIndex:
        """When clients are online at the same time as another client each, until ``end_ns``; never after that.

        Args:
            others: the availability of the others, such as edge servers.
            of_client: the other of each client, (clients,).
            end_ns: end of the intervals.
        """
        owner, begin, end = self.intervals_between(np.arange(self.clients), 0, end_ns)
        row, since, until = others.intervals_between(np.arange(others.clients), 0, end_ns)
        # Pairs of other and instant as single integers, which sort and compare as the pairs do.
        width = end_ns + 1
        other = of_client[owner]
        first = np.searchsorted(row * width + until, other * width + begin, side="right")
        last = np.searchsorted(row * width + since, other * width + end)
        counts = np.maximum(last - first, 0)
        overlap = np.repeat(first, counts) + ranks(counts)
        edges = np.empty(2 * len(overlap), np.int64)
        edges[::2] = np.maximum(np.repeat(begin, counts), since[overlap]) // _NS
        edges[1::2] = -(-np.minimum(np.repeat(end, counts), until[overlap]) // _NS)
        intervals = np.bincount(np.repeat(owner, counts), minlength=self.clients)
        ends = 2 * np.cumsum(intervals)
        zeros = np.zeros(self.clients, np.int64)
        return AvailabilityIndex(edges, ends - 2 * intervals, ends, zeros, zeros)

    def drifting(self, until_ns: int) -> tuple[int, float]:
        """Clients whose traces repeat before ``until_ns``, and not after whole days: their hours of the day drift.

        Returns:
            Their number, and the most common of their periods, in seconds.
        """
        offset_us, period_us = self._layout[:, 2], self._layout[:, 3]
        repeats = (period_us > DAY_US) & (offset_us + until_ns // _NS > period_us)
        periods, counts = np.unique(
            period_us[repeats & (period_us % DAY_US != 0)], return_counts=True
        )
        return int(counts.sum()), float(periods[counts.argmax()]) / 1e6 if len(periods) else 0.0

    def shortest_cycle_s(self) -> float:
        """Shortest mean time from session to session of a client whose trace repeats; infinite if none repeats."""
        first, last, _, period_us = self._layout[self._layout[:, 3] > 0].T
        cycles_us = 2 * period_us / np.maximum(last - first, 2)
        return float(cycles_us.min(initial=np.inf)) / 1e6

    def unobserved_share(self, until_ns: int) -> float:
        """Share of the clients' time before ``until_ns`` at which their devices were not observed.

        That is all time outside their windows. In traces that repeat, it is the time before the window, and what the
        period is longer than the window: the repetitions themselves count as observed.
        """
        if self._observed_us is None or not self.clients or until_ns < _NS:
            return 0.0
        begin, end = self._observed_us
        edges = np.stack([np.zeros_like(begin), end - begin], axis=1).ravel()
        first = 2 * np.arange(self.clients)
        # Clients without a window have no time that could be observed.
        last = first + 2 * (end > begin)
        observed = AvailabilityIndex(edges, first, last, -begin, self._layout[:, 3])
        known = 0.0
        for client, since_ns, before_ns in observed._spans(until_ns):
            # The repetitions before the window are not observations.
            spans_ns = before_ns - np.maximum(since_ns, begin[client] * _NS)
            known += float(spans_ns.clip(min=0).sum(dtype=np.float64))
        return float((end > begin).mean()) - known / (until_ns * self.clients)

    # One client -----------------------------------------------------------------------------------------------------

    def is_online(self, client: int, t_ns: int) -> bool:
        """Whether ``client`` is online at ``t_ns``."""
        return self.state(client, t_ns)[0]

    def online_until(self, client: int, t_ns: int) -> int:
        """Exclusive end (ns) of the online interval that contains ``t_ns``; ``t_ns`` if offline, NEVER if endless.

        An interval that touches the end of the trace continues in the next lap if that begins online.
        """
        online, change_ns = self.state(client, t_ns)
        return change_ns if online else t_ns

    def next_online(self, client: int, t_ns: int) -> int:
        """First instant (ns) from ``t_ns`` on at which ``client`` is online; NEVER if there is none."""
        online, change_ns = self.state(client, t_ns)
        return t_ns if online else change_ns

    def state(self, client: int, t_ns: int) -> tuple[bool, int]:
        """:meth:`state_many` of one client, which takes a twentieth of the time."""
        if t_ns >= self.horizon_ns:
            self._refuse(t_ns)
        layout, edges = self._layout_view, self._edges_view
        at = client << 2
        time_us = t_ns // _NS
        position = time_us + layout[at + 2]
        period = layout[at + 3]
        if period:
            position %= period
        first, last = layout[at], layout[at + 1]
        edge = bisect_right(edges, position, first, last)
        online = edge & 1 == 1
        if edge < last:
            target = edges[edge]
            if online and target == period and not edges[first]:
                target = FAR_US if edge == first + 1 else edges[first + 1] + period
        else:
            target = edges[first] + period if period and first < last else FAR_US
        return online, NEVER if target >= FAR_US else (time_us + target - position) * _NS

    def finish_after(self, client: int, t_ns: int, work_ns: int) -> int:
        """The instant (ns) at which ``client`` has been online for ``work_ns`` since ``t_ns``; NEVER if there is none.

        Work pauses while the client is offline and resumes when it is back. Zero work is finished immediately.
        """
        if t_ns >= self.horizon_ns:
            self._refuse(t_ns)
        if work_ns <= 0:
            return t_ns
        edges, before = self._edges_view, self._before_view
        first, last, offset_us, period_us = self._layout_view[client << 2 : (client << 2) + 4]
        if first == last:
            return NEVER
        period = period_us * _NS
        position = t_ns + offset_us * _NS
        lap_start = position // period * period if period else 0
        position -= lap_start
        edge = bisect_right(edges, position // _NS, first, last)
        target = work_ns
        if edge > first:
            row = (edge - 1) >> 1
            target += before[row] * _NS + min(position, edges[2 * row + 1] * _NS)
            target -= edges[2 * row] * _NS
        if period:
            per_lap = before[(last >> 1) - 1] + edges[last - 1] - edges[last - 2]
            laps, target = divmod(target - 1, per_lap * _NS)
            target += 1
            lap_start += laps * period
        # The last interval before which less work than the target is done.
        row = bisect_left(before, -(-target // _NS), first >> 1, last >> 1) - 1
        finish = edges[2 * row] * _NS + target - before[row] * _NS
        if not period and finish > edges[2 * row + 1] * _NS:
            return NEVER
        return min(finish + lap_start - offset_us * _NS, NEVER)

    # Many clients ---------------------------------------------------------------------------------------------------

    def state_many(self, clients: npt.ArrayLike, t_ns: npt.ArrayLike) -> tuple[Bools, Ints]:
        """Whether each client is online, and the instant (ns) at which that changes next (NEVER if it does not).

        Args:
            clients: client ids, shape (n,).
            t_ns: one instant, or one for each client.
        """
        time_us = np.asarray(t_ns, dtype=np.int64)
        if self.horizon_ns < NEVER and time_us.size and time_us.max() >= self.horizon_ns:
            self._refuse(int(time_us.max()))
        time_us = time_us // _NS
        columns = self._layout.take(np.asarray(clients), axis=0).T
        first, last, offset, period = np.ascontiguousarray(columns)
        position = time_us + offset
        if self._wraps:
            position = np.where(period > 0, position % np.maximum(period, 1), position)
        edge = self._edge_after(position, first, last)
        on: Bools = (edge & 1) == 1
        target = np.where(edge < last, self._edges.take(edge, mode="clip"), FAR_US)
        if self._wraps:
            start = self._edges.take(first, mode="clip")
            end = self._edges.take(first + 1, mode="clip")
            seam = on & (target == period) & (start == 0)
            target = np.where(seam, np.where(edge == first + 1, FAR_US, end + period), target)
            round_again = (period > 0) & (edge == last) & (first < last)
            target = np.where(round_again, start + period, target)
        change: Ints = np.where(target >= FAR_US, NEVER, (time_us + (target - position)) * _NS)
        return on, change

    def _edge_after(self, position: Ints, first: Ints, last: Ints) -> Ints:
        """First edge of each client after ``position`` (us, in its lap); ``last`` if there is none."""
        low = first.copy()
        most = int((last - first).max(initial=0))
        for step in (1 << power for power in reversed(range(most.bit_length()))):
            after = low + step
            passed = self._edges.take(after - 1, mode="clip") <= position
            passed &= after <= last
            np.copyto(low, after, where=passed)
        return low

    def online_clients(self, t_ns: int) -> Ints:
        """Clients online at ``t_ns``, ascending. Cheapest if the instants of successive calls do not decrease."""
        self._sweep.advance(t_ns)
        return self._sweep.online_clients.copy()

    def sampler(
        self, stream: Stream, prepare: Callable[[Ints], None] | None = None
    ) -> OnlineSampler:
        """Uniform draws from the clients that are online; see :class:`OnlineSampler`."""
        return OnlineSampler(self, stream, prepare)

    # One client -----------------------------------------------------------------------------------------------------

    def next_arrival(self, t_ns: int) -> int:
        """First instant (ns) after ``t_ns`` at which a client that was offline comes online; NEVER if there is none."""
        self._sweep.advance(t_ns)
        online, change_ns = self._sweep.online, self._sweep.change_ns
        arrival = int(change_ns.min(initial=NEVER, where=~online))
        # A client that is online now may leave and return before that.
        leaving = np.flatnonzero(online & (change_ns < min(arrival, self.horizon_ns)))
        _, back = self.state_many(leaving, change_ns[leaving])
        return min(arrival, int(back.min(initial=NEVER)))

    def intervals_between(
        self, clients: npt.ArrayLike, start_ns: int, end_ns: int
    ) -> tuple[Ints, Ints, Ints]:
        """The online intervals of some clients, clipped to ``[start_ns, end_ns)``; touching ones are joined.

        Returns:
            Position in ``clients``, start (ns) and end (ns) of each interval, by client and start.
        """
        if end_ns > self.horizon_ns:
            self._refuse(end_ns)
        low, high = start_ns // _NS, -(-end_ns // _NS)
        first, last, offset, period = self._layout.take(np.asarray(clients), axis=0).T
        safe_period = np.maximum(period, 1)
        lap = np.where(period > 0, (low + offset) // safe_period, 0)
        final_lap = np.where(period > 0, (high - 1 + offset) // safe_period, 0)
        laps = np.maximum(final_lap - lap + 1, 0)
        owner = np.repeat(np.arange(len(first)), laps)
        lap = np.repeat(lap, laps) + ranks(laps)
        # From an edge of this lap to simulated time (us).
        to_time = lap * period[owner] - offset[owner]
        first, last = first[owner], last[owner]
        row_low = self._edge_after(low - to_time, first, last) >> 1
        row_high = (self._edge_after(high - 1 - to_time, first, last) + 1) >> 1
        count = np.maximum(row_high - row_low, 0)
        edge = 2 * (np.repeat(row_low, count) + ranks(count))
        to_time = np.repeat(to_time, count)
        owner = np.repeat(owner, count)
        begin = np.maximum(np.maximum(self._edges[edge], -FAR_US // 2) + to_time, low) * _NS
        end = np.minimum(np.minimum(self._edges[edge + 1], FAR_US // 2) + to_time, high) * _NS
        begin, end = np.maximum(begin, start_ns), np.minimum(end, end_ns)
        some = end > begin
        return join_touching(owner[some], begin[some], end[some])

    def _spans(self, end_ns: int, start_ns: int = 0) -> Iterator[tuple[Ints, Ints, Ints]]:
        """:meth:`intervals_between` of all clients, of as many at a time as fit in memory together."""
        first, behind, _, period = self._layout.T
        laps = np.where(period > 0, (end_ns - start_ns) // _NS // np.maximum(period, 1) + 2, 1)
        total = np.cumsum((behind - first) // 2 * laps + 1)
        full = np.arange(_CHUNK_ROWS, int(total.max(initial=0)), _CHUNK_ROWS)
        for clients in np.split(np.arange(self.clients), np.unique(np.searchsorted(total, full))):
            row, begin, until = self.intervals_between(clients, start_ns, end_ns)
            yield clients[row], begin, until

    def online_summary(self, step_ns: int, end_ns: int) -> tuple[Ints, Ints]:
        """The number of clients online over time, and how long each is online.

        Returns:
            The number at 0, ``step_ns``, 2 ``step_ns``, ... until ``end_ns``, shape (n,); and the time (ns) that each
            client is online before ``end_ns``, shape (clients,).
        """
        last = end_ns // step_ns
        change, online_ns = np.zeros(last + 2, np.int64), np.zeros(self.clients, np.int64)
        for client, begin, until in self._spans(max(end_ns, last * step_ns + 1)):
            change += np.bincount(-(-begin // step_ns), minlength=len(change))
            change -= np.bincount(-(-until // step_ns), minlength=len(change))
            np.add.at(online_ns, client, np.minimum(until, end_ns) - np.minimum(begin, end_ns))
        return np.cumsum(change[:-1]), online_ns

    def online_between_ns(self, start_ns: int, end_ns: int) -> Ints:
        """Time (ns) that each client is online within ``[start_ns, end_ns)``, shape (clients,)."""
        online_ns = np.zeros(self.clients, np.int64)
        for client, begin, until in self._spans(end_ns, start_ns):
            np.add.at(online_ns, client, until - begin)
        return online_ns

    @cached_property
    def _before_view(self) -> memoryview[int]:
        """Time online (us) of each interval's device before the interval."""
        length = self._edges[1::2] - self._edges[::2]
        before: Ints = np.cumsum(length) - length
        first, last = self._layout[:, 0], self._layout[:, 1]
        heads = np.unique(first[first < last] >> 1)
        if len(heads):
            sizes = np.diff(np.append(heads, len(before)))
            before[heads[0] :] -= np.repeat(before[heads], sizes)
        return before.data

    def _refuse(self, t_ns: int) -> None:
        raise UserError(
            f"the availability trace ends before {format_duration(t_ns / NS_PER_S)}, and its on_end is error",
            hint="stop the run earlier, or set on_end to wrap, hold or unavailable",
        )


class Sweep:
    """The state of some clients at one instant; moving it forward looks up only those that change on the way.

    Attributes:
        clients: the clients, shape (n,).
        online: whether each is online, shape (n,).
        change_ns: when that changes next (NEVER if it does not), shape (n,).
    """

    def __init__(self, index: AvailabilityIndex, clients: Ints) -> None:
        self._index = index
        self.clients = clients
        self.online = np.zeros(len(clients), np.bool_)
        self.change_ns = np.zeros(len(clients), np.int64)
        # Between these instants, nobody comes or goes.
        self._from_ns = self._until_ns = NEVER
        self._online_clients: Ints | None = None

    def is_at(self, t_ns: int) -> bool:
        """Whether its state is that at ``t_ns``."""
        return self._from_ns <= t_ns < self._until_ns

    def advance(self, t_ns: int) -> None:
        """Move to ``t_ns``; going back in time looks up every client again."""
        if self.is_at(t_ns):
            return
        if t_ns >= self._index.horizon_ns:
            self._index._refuse(t_ns)
        if t_ns < self._from_ns:
            self.online, self.change_ns = self._index.state_many(self.clients, t_ns)
        else:
            behind = np.flatnonzero(self.change_ns <= t_ns)
            if len(behind) > _FEW:
                state = self._index.state_many(self.clients[behind], t_ns)
                self.online[behind], self.change_ns[behind] = state
            else:
                for row in behind.tolist():
                    state_of_one = self._index.state(int(self.clients[row]), t_ns)
                    self.online[row], self.change_ns[row] = state_of_one
        self._from_ns = t_ns
        self._until_ns = min(int(self.change_ns.min(initial=NEVER)), self._index.horizon_ns)
        self._online_clients = None

    def narrowed(self, rows: npt.NDArray[np.intp], index: AvailabilityIndex | None = None) -> Sweep:
        """A sweep of the clients in some rows, at the same instant; ``index``, if given, numbers them by row."""
        clients = self.clients[rows] if index is None else np.arange(len(rows))
        sweep = Sweep(index or self._index, clients)
        sweep.online, sweep.change_ns = self.online[rows], self.change_ns[rows]
        sweep._from_ns, sweep._until_ns = self._from_ns, self._until_ns
        return sweep

    @property
    def online_clients(self) -> Ints:
        """The clients that are online, in their order; not to be changed."""
        if self._online_clients is None:
            self._online_clients = self.clients.take(np.flatnonzero(self.online))
        return self._online_clients


class OnlineSampler:
    """Draws clients uniformly among those that are online and not busy.

    The clients drawn are a function of the stream, the draw, the instant and ``busy`` alone. Clients are drawn from a
    list until they pass an exact check, which leaves every acceptable client equally likely. Time is divided into bins.
    In a large population with a fair share online, the list holds all clients, so that idle clients cost nothing;
    otherwise it holds those online at any instant of the bin. If too few pass, the acceptable ones are listed instead;
    short lists are searched before that, so that few attempts are wasted when too few could pass.

    Args:
        index: the population.
        stream: random numbers of these draws; one sampler per stream.
        prepare: called with the clients that the next draws will probably return, in a large population.

    Attributes:
        online_until_ns: :meth:`AvailabilityIndex.online_until` of the clients drawn last, if the draw has looked it up.
    """

    # Uniform numbers are computed for many draws at once, and for as many attempts as most draws need.
    _MOST_IN_BLOCK = 1 << 13
    _ATTEMPTS = 64
    _KEYS_FROM = 1 << 20
    # On lists this short, the first attempts are made one by one; if these fail, the list is searched.
    _SHORT = 1 << 13
    # Populations of at least this size are not listed while at least this share is online, estimated from a sample.
    _LARGE = 1 << 18
    _FAIR_SHARE = 2**-5
    _PROBES = 1 << 9
    _BINS_A_PROBE = 8
    _PROBES_FROM = 1 << 41
    _MOST_DRAWS_AHEAD = 1 << 10
    # A sweep to the next bin costs as much as looking up this share of all clients, and more as more come and go.
    _SWEEP_WORTH = 0.007
    _CHANGE_WORTH = 0.16

    def __init__(
        self,
        index: AvailabilityIndex,
        stream: Stream,
        prepare: Callable[[Ints], None] | None = None,
    ) -> None:
        self._index = index
        self._stream = stream
        self._prepare = prepare
        # A quarter of a session: one draw in five meets a client that has left or is still to come.
        self._bin_ns = min(max(index.mean_session_ns // 4, NS_PER_S), DAY_S * NS_PER_S)
        self._sweep = index._sweep.narrowed(index._sweep.clients)
        self._bin_start = self._bin_end = self._listed_start = -1
        self._entered_until = -1
        # The share of clients online if draws are from all clients, otherwise 0; and the number of attempts then, so
        # that one draw in 100,000 fails while few are busy.
        self._share = 0.0
        self._most_attempts = 0
        self._probed_ns = -1
        # Attempts of the next draws from all clients, without clients that stay offline while these are used.
        self._first_ahead = self._draws_ahead = self._ahead_from = self._ahead_end = 0
        # Clients looked up in this bin instead of a sweep of all.
        self._looked_up = 0
        self._block_start = self._block_end = self._block_width = 0
        self._uniforms = np.zeros(0).data
        self._busy = np.zeros(0, np.bool_)
        self._busy_view = self._busy.data
        self.online_until_ns: dict[int, int] = {}

    def sample(self, k: int, t_ns: int, busy: Bools, draw: int) -> list[int]:
        """``k`` different clients that are online at ``t_ns`` and not busy, in random order.

        Args:
            k: number of clients.
            t_ns: the instant.
            busy: clients that are not to be drawn, shape (clients,).
            draw: number of this draw; different numbers give independent draws.

        Returns:
            Their numbers; fewer if fewer exist.
        """
        if not self._bin_start <= t_ns < self._entered_until:
            self._enter(t_ns)
        if busy is not self._busy:
            self._busy, self._busy_view = busy, busy.data
        self.online_until_ns = {}
        share = self._share
        count = self._index.clients if share else self._count
        if k <= 0 or not count:
            return []
        chosen: list[int] = []
        if k == 1 or 4 * k < count * (share or 1):
            is_few = k == 1 or (not share and 4 * k < self._SHORT)
            if is_few:
                ahead = self._of_all(t_ns, draw) if share else self._of_list(k, t_ns, draw)
                if self._passes(k, t_ns, ahead):
                    return list(self.online_until_ns)
            if share or not is_few:
                chosen = self._many(k, t_ns, busy, draw)
        if len(chosen) < k:
            chosen = self._in_random_order(k, self._acceptable(t_ns, busy), draw).tolist()
        looked_up = chosen if k == 1 else []
        self.online_until_ns = {each: self._index.online_until(each, t_ns) for each in looked_up}
        return chosen

    def _passes(self, k: int, t_ns: int, attempts: Iterable[tuple[int, int]]) -> bool:
        """Whether ``k`` clients of these attempts are online and not busy; they are in :attr:`online_until_ns`.

        ``attempts`` are clients, and until when each is online; if negative, when it comes; either may be long ago.
        """
        busy, chosen = self._busy_view, self.online_until_ns
        for client, until_ns in attempts:
            if busy[client] or client in chosen:
                continue
            if until_ns <= t_ns:
                if t_ns < -until_ns:
                    continue
                until_ns = self._index.online_until(client, t_ns)
                if until_ns == t_ns:
                    continue
            chosen[client] = until_ns
            if len(chosen) == k:
                return True
        return False

    def _many(self, k: int, t_ns: int, busy: Bools, draw: int) -> list[int]:
        """:meth:`sample` by attempts, many at once; fewer clients if these do not suffice."""
        share = self._share
        limit = self._most_attempts if share else self._ATTEMPTS
        limit += int(8 * k / (share or 1)) if k > 1 else 0
        chosen = np.zeros(0, np.int64)
        attempts = 0
        while len(chosen) < k and attempts < limit:
            missing = k - len(chosen)
            more = int(1.1 * missing / share) + 64 if share else 2 * missing + 16
            last = min(attempts + more, limit)
            if share:
                clients = self._attempts(draw, attempts, last)
                clients = clients[~busy[clients]]
                accepted = clients[self._index.state_many(clients, t_ns)[0]]
            else:
                uniforms = self._stream.uniforms(draw, np.arange(attempts, last))
                positions = (uniforms * self._count).astype(np.int64)
                clients = self._listed[positions]
                online = self._sure_until[positions] > t_ns
                unsure = np.flatnonzero(~online)
                online[unsure] = self._index.state_many(clients[unsure], t_ns)[0]
                accepted = clients[~busy[clients] & online]
            attempts = last
            chosen = np.concatenate([chosen, accepted])
            _, where = np.unique(chosen, return_index=True)
            chosen = chosen[np.sort(where)]
        first: list[int] = chosen[:k].tolist()
        return first

    def _attempts(self, draw: int | Ints, first: int, last: int) -> Ints:
        """The clients of attempts ``first`` to ``last`` of a draw from all clients; one row per draw if several."""
        uniforms = self._stream.uniforms(draw, np.arange(first, last))
        return (uniforms * self._index.clients).astype(np.int64)

    def _of_list(self, k: int, t_ns: int, draw: int) -> Iterator[tuple[int, int]]:
        """Attempts on the list, for :meth:`_passes`; they end early if too few clients could pass."""
        ahead = max(2 * k + 2, 16)
        if not self._block_start <= draw < self._block_end or ahead > self._block_width:
            # Blocks grow, because one of many edge servers may need few draws.
            most = max(self._MOST_IN_BLOCK // ahead, 1)
            size = min(max(2 * (self._block_end - self._block_start), 32), most)
            self._block_start, self._block_end = draw, draw + size
            self._block_width = ahead
            draws = np.arange(draw, draw + size)
            self._uniforms = self._stream.uniforms(draws[:, None], np.arange(ahead)).ravel().data
        at = (draw - self._block_start) * self._block_width
        count, listed, sure_until = self._count, self._listed_view, self._sure_until_view
        for uniform in self._uniforms[at : at + ahead]:
            position = int(uniform * count)
            yield listed[position], sure_until[position]
        # A short list may show that too few could pass.
        if count > self._SHORT or len(self._acceptable(t_ns, self._busy)) >= max(k, 2):
            limit = self._ATTEMPTS + (8 * k if k > 1 else 0)
            for uniform in self._stream.uniforms(draw, np.arange(ahead, limit)).tolist():
                position = int(uniform * count)
                yield listed[position], sure_until[position]

    def _of_all(self, t_ns: int, draw: int) -> Iterator[tuple[int, int]]:
        """As many attempts on all clients as most draws of one need, for :meth:`_passes`."""
        at = draw - self._first_ahead
        if not (0 <= at < self._draws_ahead and self._ahead_from <= t_ns < self._ahead_end):
            self._look_ahead(t_ns, draw)
            at = 0
        attempts = range(self._starts[at], self._starts[at + 1])
        return ((self._ahead[each], self._ahead_until[each]) for each in attempts)

    def _look_ahead(self, t_ns: int, draw: int) -> None:
        """Make the attempts of the next draws at once; the number of draws does not affect the clients drawn.

        A draw is repeated until it finds a client that stays online; clients that stay offline are left out.
        """
        worth = self._SWEEP_WORTH + self._CHANGE_WORTH * self._share
        if self._looked_up > worth * self._index.clients:
            self._sweep.advance(self._bin_start)
        swept = self._sweep.is_at(self._bin_start)
        end_ns = self._bin_end if swept else t_ns + 2 * self._bin_ns
        # Twice as many as the last time if these were used up, and half as many if most were not.
        used, count = draw - self._first_ahead, self._draws_ahead
        count = 2 * count if used >= count else max(used, count // 2)
        count = min(max(count, 4), self._MOST_DRAWS_AHEAD)
        attempted = np.full(count, self._most_attempts)
        rows, first = np.arange(count), 0
        # A call costs as much as a few hundred look-ups.
        last = max(int((0.5 if count > 512 else 1.5) / self._share) + 1, 512 // count)
        met = []
        while len(rows) and first < last:
            last = min(last, self._most_attempts)
            clients = self._attempts((draw + rows)[:, None], first, last).ravel()
            if swept:
                online, change_ns = self._sweep.online[clients], self._sweep.change_ns[clients]
            else:
                online, change_ns = self._index.state_many(clients, t_ns)
            self._looked_up += len(clients)
            useful = np.flatnonzero(online | (change_ns < end_ns))
            row = rows[useful // (last - first)]
            # Negative: when a client that is offline comes.
            until_ns = np.where(online, change_ns, -change_ns)[useful]
            met.append(np.stack([row, clients[useful], until_ns]))
            done = row[until_ns >= end_ns]
            attempted[done] = last
            rows = rows[attempted[rows] != last]
            first, last = last, min(last + last // 2 + 1, self._most_attempts)
        row, clients, until_ns = np.concatenate(met, axis=1)
        order = np.argsort(row, kind="stable")
        clients = clients[order]
        if self._prepare is not None:
            self._prepare(clients)
        self._ahead, self._ahead_until = clients.tolist(), until_ns[order].tolist()
        self._starts = [0, *np.cumsum(np.bincount(row, minlength=count)).tolist()]
        self._first_ahead, self._draws_ahead = draw, count
        self._ahead_from, self._ahead_end = t_ns, min(end_ns, self._index.horizon_ns)

    def _in_random_order(self, k: int, clients: Ints, draw: int) -> Ints:
        """The first ``k`` of all acceptable clients, ordered by a random key of each."""
        if len(clients) < 2:
            # If more clients are requested than exist, most draws find only the one that has just become free.
            return clients
        keys = self._stream.hashes(draw, clients + self._KEYS_FROM)
        if k < len(clients):
            some = np.argpartition(keys, k - 1)[:k]
            clients, keys = clients[some], keys[some]
        return clients[np.argsort(keys)]

    def _acceptable(self, t_ns: int, busy: Bools) -> Ints:
        """All clients that are online at an instant of the bin and not busy, ascending."""
        if self._listed_start != self._bin_start:
            self._list()
        self._present.advance(t_ns)
        clients = self._present.online_clients
        return clients[~busy[clients]]

    def _enter(self, t_ns: int) -> None:
        """Turn to the bin that holds ``t_ns``."""
        horizon_ns = self._index.horizon_ns
        if t_ns >= horizon_ns:
            self._index._refuse(t_ns)
        self._bin_start = t_ns // self._bin_ns * self._bin_ns
        self._bin_end = self._bin_start + self._bin_ns
        self._entered_until = min(self._bin_end, horizon_ns)
        # As many look-ups as in the last bin are expected.
        self._looked_up //= 2
        if self._index.clients >= self._LARGE:
            self._probe()
        if not self._share:
            self._list()

    def _probe(self) -> None:
        """Estimate the share of clients online, from a sample at the first of several bins."""
        span_ns = self._BINS_A_PROBE * self._bin_ns
        start_ns = self._bin_start // span_ns * span_ns
        if start_ns == self._probed_ns:
            return
        self._probed_ns = start_ns
        some = self._attempts(0, self._PROBES_FROM, self._PROBES_FROM + self._PROBES)
        share = float(self._index.state_many(some, start_ns)[0].mean())
        self._share = share if share >= self._FAIR_SHARE else 0.0
        self._most_attempts = int(12 / (share or 1)) + self._ATTEMPTS

    def _list(self) -> None:
        """List the clients that are online at any instant of the bin."""
        self._listed_start = self._bin_start
        self._sweep.advance(self._bin_start)
        online, change_ns = self._sweep.online, self._sweep.change_ns
        self._present = self._sweep.narrowed(np.flatnonzero(online | (change_ns < self._bin_end)))
        self._listed = self._present.clients
        self._count = len(self._listed)
        # A client that is online when the bin starts remains so until its next change; another one comes at that
        # instant, which is negative here.
        change_ns = self._present.change_ns
        self._sure_until = np.where(self._present.online, change_ns, -change_ns)
        self._listed_view = self._listed.data
        self._sure_until_view = self._sure_until.data
