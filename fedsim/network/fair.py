"""Max-min fair sharing of links among flows, with the exact instants at which flows complete.

An allocation is max-min fair when no flow can have more without taking from one that has no more than it (Bertsekas and
Gallager, *Data Networks*, section 6.5.2). It is kept here as one **level** per link: a flow's rate is the lowest level
on its route, and a link is *settled* when it carries exactly its capacity at its level, or no more than its capacity at
an infinite level. Once all links are settled, every flow has a bottleneck, that is, a full link on which no flow has
more: the condition for max-min fairness. When flows start or end, only the links whose flows changed are filled
again, then the links of the flows affected by that, until all are settled. Each step settles the lowest remaining
bottleneck, so this terminates. A step is one sorted filling of one link, vectorized over its flows.

This module does not depend on the simulation: the caller passes the time, in integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvariantViolation
from fedsim.network.base import BIT_NS_PER_BYTE, column_view
from fedsim.network.static import rate_column_bps
from fedsim.units import NEVER
from fedsim.vocabulary.arrays import Bools, Floats, Ints

_NO_LINK = 0  # pads short routes; never a bottleneck
_ABOVE_ROUNDING = 1 + 1e-9  # more than the rounding of a sum of rates
_SAME_LEVEL = 4e-15  # a relative difference of levels up to this is the rounding of a sum


def fill_level(offers: Floats, capacity: float, guess: float = np.inf) -> float:
    """The level at which a link is full: ``sum(minimum(offers, level)) == capacity``.

    Args:
        offers: rate that each flow could have without this link, possibly infinite; not empty.
        capacity: capacity of the link, zero or more, in the same unit.
        guess: initial value; a close one saves time.

    Returns:
        The level; infinite if the link carries all offers.
    """
    if offers.sum() <= capacity:
        return np.inf
    # Newton's method: the load is concave and piecewise linear in the level, so the first step ends at or below the
    # solution, later steps increase the level, and the first step that passes no further offer is exact.
    satisfied = offers < guess
    below = int(np.count_nonzero(satisfied))
    if below == len(offers):
        satisfied, below = np.zeros(len(offers), np.bool_), 0
    climbing = False
    while True:
        level = float(capacity - offers[satisfied].sum()) / (len(offers) - below)
        satisfied = offers < level
        count = int(np.count_nonzero(satisfied))
        if count == below or (climbing and count < below) or count == len(offers):
            return level
        below, climbing = count, True


class FairLinks:
    """Flows over routes of links whose capacities they share max-min fairly.

    Instants must not decrease from call to call. A flow completes at the nanosecond nearest to the instant at which its
    last bit has passed, and rates change at those nanoseconds. Changes at the same instant are settled together when
    time advances or the next completion is requested: starting a thousand flows at once costs one settlement.

    Args:
        capacity_bps: capacity of each link, zero or more, possibly infinite; shape ``(links,)``.
    """

    def __init__(self, capacity_bps: npt.ArrayLike) -> None:
        capacities = np.asarray(capacity_bps, dtype=np.float64)
        self._capacity_of = column_view(rate_column_bps(capacities, len(capacities), "links"))
        self._now_ns = 0
        self._stale = False
        self._next_ns = NEVER
        self._started = 0
        self._completed: dict[int, tuple[int, float]] = {}

        # Flows in contiguous slots 0..n-1.
        self._slot: dict[int, int] = {}
        self._flow: list[int] = []
        self._routes: Ints = np.zeros((4, 16), np.int64)
        self._size_bytes: Floats = np.zeros(16)
        self._work: Floats = np.zeros(16)  # remaining at the anchor, in bit/s x ns
        self._rate: Floats = np.zeros(16)
        self._anchor_ns: Ints = np.zeros(16, np.int64)
        self._end_ns: Ints = np.zeros(16, np.int64)
        self._order: Ints = np.zeros(16, np.int64)

        # Links in use, renumbered so that idle ones cost nothing.
        self._position: dict[int, int] = {}
        self._number: list[int] = [-1]
        self._free: list[int] = []
        self._capacity: Floats = np.full(16, np.inf)
        self._level: Floats = np.full(16, np.inf)
        self._users: Ints = np.zeros(16, np.int64)
        self._touched: Bools = np.zeros(16, np.bool_)

    def __contains__(self, flow_id: int) -> bool:
        """Whether a flow is on the links, or has completed and not been popped."""
        return flow_id in self._slot or flow_id in self._completed

    def start(
        self,
        flow_id: int,
        route: Sequence[int],
        size_bytes: float,
        now_ns: int,
        limit_bps: float = np.inf,
    ) -> None:
        """Put a flow on the links of ``route``.

        A flow of no bytes, or whose links are all infinite, completes at once.

        Args:
            flow_id: the caller's number for the flow, not in use.
            route: numbers of its links, without repetition.
            size_bytes: bytes to move, zero or more.
            now_ns: the instant.
            limit_bps: maximum rate of the flow itself, above 0.
        """
        self._advance(now_ns)
        links = [link for link in route if self._capacity_of[link] < np.inf]
        limited = limit_bps < np.inf
        if size_bytes == 0 or not (links or limited):
            self._completed[flow_id] = (now_ns, float(size_bytes))
            return
        slot = len(self._flow)
        if slot == len(self._rate) or len(links) + limited > len(self._routes):
            self._make_room(len(links) + limited)
        self._slot[flow_id] = slot
        self._flow.append(flow_id)
        column = self._routes[:, slot]
        column[:] = _NO_LINK
        for row, link in enumerate(links):
            column[row] = self._join(link, self._capacity_of[link])
        if limited:
            # The limit is a link used by no other flow; its number is less than that of any link.
            column[len(links)] = self._join(-2 - self._started, limit_bps)
        self._size_bytes[slot] = size_bytes
        self._work[slot] = size_bytes * BIT_NS_PER_BYTE
        self._rate[slot] = 0.0
        self._anchor_ns[slot] = now_ns
        self._end_ns[slot] = NEVER
        self._order[slot] = self._started
        self._started += 1
        self._stale = True

    def cancel(self, flow_id: int, now_ns: int) -> float:
        """Remove a flow from the links.

        Returns:
            Bytes moved; its size if it has completed but was not popped.

        Raises:
            KeyError: no such flow.
        """
        self._advance(now_ns)
        if flow_id in self._completed:
            return self._completed.pop(flow_id)[1]
        slot = self._slot[flow_id]
        passed_ns = now_ns - int(self._anchor_ns[slot])
        left_bytes = (self._work[slot] - self._rate[slot] * passed_ns) / BIT_NS_PER_BYTE
        size_bytes = self._size_bytes[slot]
        self._remove(slot)
        return float(min(max(size_bytes - left_bytes, 0.0), size_bytes))

    def next_completion_ns(self) -> int:
        """The instant at which the next flow completes at the current rates; :data:`NEVER` if none will."""
        if self._completed:
            return next(iter(self._completed.values()))[0]
        if self._stale:
            self._settle()
        return self._next_ns

    def pop_completed(self, now_ns: int) -> list[tuple[int, int]]:
        """Flows that have completed by ``now_ns``, as (instant, flow), in order of time and then of their start.

        A flow that completes at ``now_ns`` only because others left then is returned by the next call.
        """
        self._advance(now_ns)
        while self.next_completion_ns() <= now_ns and not self._completed:
            self._complete_next()
        done = [(time_ns, flow_id) for flow_id, (time_ns, _) in self._completed.items()]
        self._completed.clear()
        return done

    def capacity_bps(self, link: int) -> float:
        """Capacity of a link."""
        capacity: float = self._capacity_of[link]
        return capacity

    def rate_bps(self, flow_id: int) -> float:
        """The current rate of a flow.

        Raises:
            KeyError: no such flow on the links.
        """
        if self._stale:
            self._settle()
        return float(self._rate[self._slot[flow_id]])

    def _advance(self, now_ns: int) -> None:
        if now_ns == self._now_ns:
            return
        if self._stale:
            self._settle()
        while self._next_ns < now_ns:
            self._complete_next()
            self._settle()
        # Other changes at this instant are settled together with these completions.
        if self._next_ns == now_ns:
            self._complete_next()
        self._now_ns = now_ns

    def _complete_next(self) -> None:
        self._now_ns = self._next_ns
        slots = (self._end_ns[: len(self._flow)] == self._next_ns).nonzero()[0]
        flows = [self._flow[slot] for slot in slots[self._order[slots].argsort()]]
        for flow_id in flows:
            slot = self._slot[flow_id]
            self._completed[flow_id] = (self._now_ns, float(self._size_bytes[slot]))
            self._remove(slot)

    def _join(self, link: int, capacity_bps: float) -> int:
        """Count one more user of ``link``; returns its position among the links in use."""
        position = self._position.get(link)
        if position is None:
            if self._free:
                position = self._free.pop()
                self._number[position] = link
            else:
                position = len(self._number)
                self._number.append(link)
                if position == len(self._level):
                    self._lengthen("_capacity", "_level", "_users", "_touched")
            self._position[link] = position
            self._capacity[position] = capacity_bps
            self._users[position] = 0
        self._users[position] += 1
        # A link with one user is a bottleneck at its capacity; a newly shared link is not one until it is filled.
        if self._users[position] == 1:
            self._level[position] = self._capacity[position]
        elif self._users[position] == 2:
            self._level[position] = np.inf
        self._touched[position] = True
        return position

    def _leave(self, position: int) -> None:
        self._users[position] -= 1
        self._touched[position] = True
        if self._users[position] == 1:
            self._level[position] = self._capacity[position]
        elif self._users[position] == 0:
            self._touched[position] = False
            del self._position[self._number[position]]
            self._free.append(position)

    def _remove(self, slot: int) -> None:
        for position in self._routes[:, slot].tolist():
            if position != _NO_LINK:
                self._leave(position)
        del self._slot[self._flow[slot]]
        last = len(self._flow) - 1
        if slot != last:
            moved = self._flow[last]
            self._flow[slot] = moved
            self._slot[moved] = slot
            self._routes[:, slot] = self._routes[:, last]
            for column in (self._size_bytes, self._work, self._rate):
                column[slot] = column[last]
            for whole in (self._anchor_ns, self._end_ns, self._order):
                whole[slot] = whole[last]
        self._flow.pop()
        self._stale = True

    def _make_room(self, depth: int) -> None:
        rows, columns = self._routes.shape
        grown = np.zeros((max(rows, depth), max(columns, 2 * len(self._flow))), np.int64)
        grown[:rows, :columns] = self._routes
        self._routes = grown
        if len(self._flow) == len(self._rate):
            self._lengthen("_size_bytes", "_work", "_rate", "_anchor_ns", "_end_ns", "_order")

    def _lengthen(self, *columns: str) -> None:
        """Double the length of these columns."""
        for name in columns:
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))

    def _settle(self) -> None:
        """Settle every link, and apply the new rates from now on."""
        self._stale = False
        count = len(self._flow)
        if count == 0:
            self._next_ns = NEVER
            return
        rates = self._fair_rates(count)
        changed = (rates != self._rate[:count]).nonzero()[0]
        now_ns = self._now_ns
        passed_ns = now_ns - self._anchor_ns[changed]
        work = self._work[changed] - self._rate[changed] * passed_ns
        np.maximum(work, 0.0, out=work)
        new = rates[changed]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            wire_ns = work / new
        # The comparison is also false for a rate of 0, for which the quotient is infinite or NaN.
        ends = wire_ns < NEVER - now_ns
        self._work[changed] = work
        self._rate[changed] = new
        self._anchor_ns[changed] = now_ns
        self._end_ns[changed] = NEVER
        self._end_ns[changed[ends]] = now_ns + np.rint(wire_ns[ends]).astype(np.int64)
        self._next_ns = int(self._end_ns[:count].min())

    def _fair_rates(self, count: int) -> Floats:
        """The max-min fair rates of all flows; shape ``(count,)``."""
        rows = [row[:count] for row in self._routes]
        rates = _least(self._level, rows)
        touched = self._touched
        self._touch(rows, (rates != self._rate[:count]).nonzero()[0])
        positions = len(self._number)
        users, capacity = self._users[:positions], self._capacity[:positions]
        shared, share, level = users > 1, capacity / np.maximum(users, 1), self._level[:positions]
        for _ in range(positions * positions + 64):
            # Only a link on which a flow may have more than an equal share needs the sum of the rates.
            above = rates.max() * _ABOVE_ROUNDING > share
            unsure = touched[:positions] & shared & ((level < np.inf) | above)
            touched[:] = False
            if not unsure.any():
                return rates
            load = np.bincount(rows[0], rates, positions)
            for row in rows[1:]:
                load += np.bincount(row, rates, positions)
            links = (unsure & ((level < np.inf) | (load > capacity))).nonzero()[0]
            if len(links) == 0:
                return rates
            touched[links] = True
            for link in links.tolist():
                self._fill(link, rows, rates)
        raise InvariantViolation(
            f"fair rates of {count} flows over {positions} links do not settle"
        )

    def _fill(self, link: int, rows: list[Ints], rates: Floats) -> None:
        """Settle one link; marks the other links of the flows whose rates change."""
        old = float(self._level[link])
        self._level[link] = np.inf
        if self._users[link] == len(rates):
            flows = np.arange(len(rates))
            offers = _least(self._level, rows)
        else:
            on_link = rows[0] == link
            for row in rows[1:]:
                on_link |= row == link
            flows = on_link.nonzero()[0]
            offers = _least(self._level, [row[flows] for row in rows])
        level = fill_level(offers, float(self._capacity[link]), old)
        if old < np.inf and abs(level - old) <= _SAME_LEVEL * old:
            level = old
        self._level[link] = level
        np.minimum(offers, level, out=offers)
        changed = flows[offers != rates[flows]]
        rates[flows] = offers
        self._touch(rows, changed)
        self._touched[link] = False

    def _touch(self, rows: list[Ints], flows: Ints) -> None:
        if len(flows):
            for row in rows:
                self._touched[row[flows]] = True


def _least(level: Floats, rows: list[Ints]) -> Floats:
    """The least level on each flow's route."""
    least: Floats = level[rows[0]]
    for row in rows[1:]:
        np.minimum(least, level[row], out=least)
    return least
