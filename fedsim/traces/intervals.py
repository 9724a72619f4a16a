"""Columns of intervals: put in order, with counts of all fixes, and read from the tables of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.traces.bundle import TraceBundle
from fedsim.traces.tables import id_column, make_table, order_of, run_starts
from fedsim.traces.validation import require_sound
from fedsim.units import NEVER, NS_PER_US
from fedsim.vocabulary.arrays import Ints

FAR_US = NEVER // NS_PER_US
"""A trace instant (us) that stands for "forever"."""


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals of many devices, sorted by device and start.

    Args:
        device: device row, shape (n,).
        start: first instant (us), shape (n,).
        end: first instant after it (us), shape (n,).
        counts: numbers of fixes, by kind.
    """

    device: Ints
    start: Ints
    end: Ints
    counts: dict[str, int]

    def table(self, ids: Any, **columns: Any) -> Any:
        """The table ``availability``: state 1 and not censored unless ``columns`` say otherwise."""
        count = len(self.device)
        values = {
            "device_id": id_column(self.device, ids),
            "start_us": self.start,
            "end_us": self.end,
            "state": np.ones(count, np.int8),
            "censored": np.zeros(count, np.int8),
        }
        return make_table("availability", values | columns)


def join_touching(device: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Sorted intervals, with touching and overlapping ones of a device joined."""
    joins = (device[1:] == device[:-1]) & (start[1:] <= end[:-1])
    if not joins.any():
        return device, start, end
    begins = np.append(True, ~joins)
    return device[begins], start[begins], end[np.append(~joins, True)]


def normalize(
    device: Ints,
    start: Ints,
    end: Ints,
    *,
    window_start: Ints | None = None,
    window_end: Ints | None = None,
    merge_touching: bool = False,
) -> Intervals:
    """Sort, drop empty and reversed intervals, clip them to the window, and merge overlaps.

    Args:
        device: device row of each interval, in the order of the source.
        start: starts (us).
        end: ends (us), exclusive.
        window_start, window_end: per device (us); None to clip nothing.
        merge_touching: also merge an interval that starts where its predecessor ends. Off by default, to preserve the
            rows of the source.

    Returns:
        The intervals. Counts: ``zero_length`` and ``reversed`` rows dropped; ``out_of_order`` rows that started before
        their predecessor of the same device; ``overlapping`` and ``touching`` rows merged into their predecessor;
        ``outside_window`` rows dropped and ``cut_at_window`` rows shortened.
    """
    import pandas as pd  # which takes as long as the rest of a small command

    counts = {
        "zero_length": int(np.count_nonzero(end == start)),
        "reversed": int(np.count_nonzero(end < start)),
        "out_of_order": int(
            np.count_nonzero((device[1:] == device[:-1]) & (start[1:] < start[:-1]))
        ),
    }
    if counts["zero_length"] or counts["reversed"]:
        keep = end > start
        device, start, end = device[keep], start[keep], end[keep]
    if window_start is not None and window_end is not None:
        # Most logs have one window for all devices.
        low, high = (
            edge[device] if (edge != edge[:1]).any() else edge[:1]
            for edge in (window_start, window_end)
        )
        inside = (end > low) & (start < high)
        cut = inside & ((start < low) | (end > high))
        counts["outside_window"] = int(np.count_nonzero(~inside))
        counts["cut_at_window"] = int(np.count_nonzero(cut))
        if counts["cut_at_window"]:
            start, end = np.maximum(start, low), np.minimum(end, high)
        if counts["outside_window"]:
            device, start, end = device[inside], start[inside], end[inside]
    later = (device[1:] > device[:-1]) | (device[1:] == device[:-1]) & (start[1:] > end[:-1])
    if later.all():
        # In order, with gaps between them: nothing to merge.
        merged = {"overlapping": 0} | ({"touching": 0} if merge_touching else {})
        return Intervals(device, start, end, counts | merged)
    order = order_of(device, start, end)
    device, start, end = device[order], start[order], end[order]
    reach = pd.Series(end).groupby(device).cummax().to_numpy()
    same = device[1:] == device[:-1]
    joined = same & (start[1:] < reach[:-1])
    counts["overlapping"] = int(np.count_nonzero(joined))
    if merge_touching:
        touches = same & (start[1:] == reach[:-1])
        counts["touching"] = int(np.count_nonzero(touches))
        joined |= touches
    if joined.any():
        first, last = np.append(True, ~joined), np.append(~joined, True)
        device, start, end = device[first], start[first], reach[last]
    return Intervals(device, start, end, counts)


def ranks(counts: Ints) -> Ints:
    """0, 1, ..., counts[0] - 1, 0, 1, ..., counts[1] - 1, ..."""
    total = int(counts.sum())
    ranks: Ints = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def device_edges(bundle: TraceBundle) -> tuple[Ints, Ints, Ints, Ints]:
    """All online intervals of a bundle, whose availability must be sound, with touching ones joined.

    Returns:
        The device of each interval; the edges (us): start, end, start, end, ..., by device; and for each device the
        index of its first edge and of the one after its last, both even, and equal for invalid devices.
    """
    require_sound(bundle, "availability")
    rows = bundle.device_rows("availability")
    starts: Ints = bundle.numpy("availability", "start_us")
    ends: Ints = bundle.numpy("availability", "end_us")
    if bundle.has("availability", "state"):
        on = bundle.numpy("availability", "state") == 1
        if not on.all():
            rows, starts, ends = rows[on], starts[on], ends[on]
    rows, starts, ends = join_touching(rows, starts, ends)
    first = np.zeros(bundle.device_count, np.int64)
    last = np.zeros(bundle.device_count, np.int64)
    heads = np.flatnonzero(run_starts(rows))
    first[rows[heads]] = 2 * heads
    last[rows[heads]] = 2 * np.append(heads[1:], len(rows))
    last = np.where(bundle.valid, last, first)
    return rows, np.stack([starts, ends], axis=1).ravel(), first, last


def device_periods(bundle: TraceBundle, window: Ints) -> Ints:
    """Wrap period (us) of each device; 0 for a device without a window."""
    if "period_us" not in bundle.devices.column_names:
        return window
    # An integer column with nulls becomes float64, which is exact for 285 years of microseconds.
    period = bundle.numpy("devices", "period_us").astype(np.float64)
    known: Ints = np.where(np.isnan(period), 0, period).astype(np.int64)
    result: Ints = np.where(np.isnan(period), window, known)
    return result
