"""Columns of disjoint intervals from the tables of a bundle, and operations on such columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.traces.arrays import Ints
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.ordering import join_touching
from fedsim.traces.validation import require_sound
from fedsim.units import NEVER, NS_PER_US

FAR_US = NEVER // NS_PER_US
"""A trace instant (us) that stands for "forever"."""


def ranks(counts: Ints) -> Ints:
    """0, 1, ..., counts[0] - 1, 0, 1, ..., counts[1] - 1, ..."""
    total = int(counts.sum())
    ranks: Ints = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def first_at_or_after(times: Ints, instants: Ints) -> npt.NDArray[np.intp]:
    """Index of the first of ``times`` (ascending) at or after each instant; ``len(times)`` if there is none."""
    steps = np.diff(times)
    if len(steps) and steps[0] > 0 and (steps == steps[0]).all():
        # On a regular grid, division is several times faster than a search.
        positions = -((times[0] - instants) // steps[0])
        clipped: npt.NDArray[np.intp] = np.clip(positions, 0, len(times))
        return clipped
    return np.searchsorted(times, instants, side="left")


def device_edges(bundle: TraceBundle) -> tuple[Ints, Ints, Ints]:
    """All online intervals of a bundle, with touching ones joined.

    Returns:
        The edges (us): start, end, start, end, ..., by device; and for each device the index of its first edge and of
        the one after its last, both even.

    Raises:
        UserError: the availability is inconsistent.
    """
    rows = bundle.device_rows("availability")
    starts: Ints = bundle.numpy("availability", "start_us")
    ends: Ints = bundle.numpy("availability", "end_us")
    if not _sound(rows, starts, ends, *bundle.windows):
        require_sound(bundle)
        raise bundle.error("its availability is inconsistent")
    if bundle.has("availability", "state"):
        on = bundle.numpy("availability", "state") == 1
        if not on.all():
            rows, starts, ends = rows[on], starts[on], ends[on]
    rows, starts, ends = join_touching(rows, starts, ends)
    first = np.zeros(bundle.device_count, np.int64)
    last = np.zeros(bundle.device_count, np.int64)
    if len(rows):
        heads = np.append(0, np.flatnonzero(rows[1:] != rows[:-1]) + 1)
        first[rows[heads]] = 2 * heads
        last[rows[heads]] = 2 * np.append(heads[1:], len(rows))
    last = np.where(bundle.valid, last, first)
    edges = np.empty(2 * len(rows), np.int64)
    edges[::2], edges[1::2] = starts, ends
    return edges, first, last


def _sound(
    rows: Ints,
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    window_start: Ints,
    window_end: Ints,
) -> bool:
    """Whether intervals are in order and consistent; validation lists the rows that are not."""
    if not len(rows):
        return True
    if starts.dtype != np.int64 or ends.dtype != np.int64 or rows.min() < 0:
        return False
    if window_start.dtype != np.int64 or window_end.dtype != np.int64:
        return False
    same = rows[1:] == rows[:-1]
    if (ends <= starts).any() or (same & (starts[1:] < ends[:-1])).any():
        return False
    if (starts < window_start[rows]).any() or (ends > window_end[rows]).any():
        return False
    heads = rows[np.append(True, ~same)]
    return bool(np.bincount(heads).max() == 1)


def device_periods(bundle: TraceBundle, window: Ints) -> Ints:
    """Wrap period (us) of each device; 0 for a device without a window."""
    if "period_us" not in bundle.devices.column_names:
        return window
    # An integer column with nulls becomes float64, which is exact for 285 years of microseconds.
    period = bundle.numpy("devices", "period_us").astype(np.float64)
    known: Ints = np.where(np.isnan(period), 0, period).astype(np.int64)
    result: Ints = np.where(np.isnan(period), window, known)
    if (result < window).any():
        require_sound(bundle)
    return result


def hold_ends(
    edges: Ints,
    first: Ints,
    last: Ints,
    window_start: Ints,
    window_end: Ints,
) -> None:
    """Extend the state at either end of each device's window forever; changes ``edges``."""
    some = first < last
    heads, tails = first[some], last[some] - 1
    edges[heads] = np.where(edges[heads] == window_start[some], -FAR_US, edges[heads])
    edges[tails] = np.where(edges[tails] == window_end[some], FAR_US, edges[tails])


def subtract_by_device(edges: Ints, first: Ints, last: Ints, origin: Ints) -> None:
    """Make the edges (us) of each device relative to its origin; changes ``edges``."""
    if not origin.any():
        return
    devices = np.flatnonzero(first < last)
    devices = devices[np.argsort(first[devices])]
    lengths = last[devices] - first[devices]
    # Edges of invalid devices are not used and stay unchanged.
    positions = np.repeat(first[devices], lengths) + ranks(lengths)
    edges[positions] -= np.repeat(origin[devices], lengths)
