"""Tables of a bundle from an importer's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.traces.intervals import Intervals, normalize, polling_interval
from fedsim.traces.tables import Ints, constant_column, id_column, make_table
from fedsim.units import DAY_US, US_PER_S
from fedsim.vocabulary.formatting import format_counted, format_duration

# Profiles without a clock (capacities, benchmark scores, latencies) cover one day, which repeats.
STATIC_HORIZON_US = DAY_US


def nullable(values: npt.NDArray[Any]) -> Any:
    """An Arrow array in which NaN has become null (unknown)."""
    return pa.array(values, mask=np.isnan(values))


def devices_table(
    ids: Sequence[str],
    *,
    window_end_us: Ints | int = STATIC_HORIZON_US,
    window_start_us: Ints | int = 0,
    kind: str | Sequence[str | None] | None = None,
    **columns: Any,
) -> Any:
    """The table ``devices``; unless given as ``columns``, source ids equal the ids and every device is valid.

    ``kind`` is that of all devices, or one per device.
    """
    count = len(ids)
    values: dict[str, Any] = {
        "device_id": pa.array(ids, type=pa.string()),
        "source_id": pa.array(ids, type=pa.string()),
        "window_start_us": np.broadcast_to(np.asarray(window_start_us, np.int64), count),
        "window_end_us": np.broadcast_to(np.asarray(window_end_us, np.int64), count),
        "valid": np.ones(count, bool),
    }
    if kind is not None:
        values["kind"] = constant_column(kind, count) if isinstance(kind, str) else kind
    return make_table("devices", values | columns)


def observed_tables(
    ids: Sequence[str],
    device: Ints,
    start_us: Ints,
    end_us: Ints,
    window: tuple[Ints | int, Ints | int],
    counts: dict[str, int],
    **columns: Any,
) -> tuple[dict[str, Any], Intervals]:
    """Tables ``devices`` and ``availability`` from intervals in any order, and the intervals in order.

    Args:
        ids: names of the devices.
        device: device row of each interval.
        start_us: starts.
        end_us: ends, exclusive.
        window: start and end (us) of the observation, for all devices or per device. Intervals are clipped to it; one
            that reaches an edge is marked as censored there.
        counts: receives the counts of :func:`~fedsim.traces.intervals.normalize`.
        columns: other columns of ``devices``.
    """
    low, high = (np.broadcast_to(np.asarray(edge, np.int64), len(ids)) for edge in window)
    intervals = normalize(device, start_us, end_us, window_start=low, window_end=high)
    counts |= intervals.counts
    before = intervals.start <= low[intervals.device]
    after = intervals.end >= high[intervals.device]
    censored = before.astype(np.int8) | after.astype(np.int8) << 1
    tables = {
        "devices": devices_table(ids, window_start_us=low, window_end_us=high, **columns),
        "availability": intervals.table(ids, censored=censored),
    }
    return tables, intervals


def per_device(ids: Sequence[str], table: str, rows: Any = None, **columns: Any) -> Any:
    """A table whose rows belong to the devices ``rows``; by default one row per device.

    A string fills a whole column; NaN in a column of floats becomes null.
    """
    devices = np.arange(len(ids)) if rows is None else rows
    values: dict[str, Any] = {"device_id": id_column(devices, ids)}
    for name, column in columns.items():
        if isinstance(column, str):
            column = constant_column(column, len(devices))
        elif isinstance(column, np.ndarray) and column.dtype.kind == "f":
            column = nullable(column)
        values[name] = column
    return make_table(table, values)


def note_polling(intervals: Intervals, counts: dict[str, int], caveats: list[str]) -> None:
    """Add a count and a caveat if the source was polled and therefore misses shorter changes."""
    polled_us = polling_interval(intervals.end - intervals.start)
    if polled_us is not None:
        counts["polling_interval_s"] = round(polled_us / 1e6)
        caveats.append(
            f"lengths cluster at multiples of {polled_us / 1e6:.0f} s: the source was polled and misses shorter"
            " changes"
        )


def note_outside(
    intervals: Intervals,
    counts: Mapping[str, int],
    window_us: int,
    caveats: list[str],
    where: str,
    origin: str = "time 0",
) -> None:
    """Add a caveat if intervals were dropped because they lie outside the window; refuse an import with none left.

    ``origin`` is time 0, in words, and ``where`` the files, for messages.
    """
    dropped, left = counts["outside_window"], len(intervals.device)
    window = f"outside the window, {format_duration(window_us / US_PER_S)} from {origin}"
    if not left and any(counts[kind] for kind in ("outside_window", "zero_length", "reversed")):
        raise UserError(
            f"every interval ends before it starts or is {window}",
            where=where,
            hint="correct the times, their unit, or the window with -s window=...",
        )
    if dropped:
        caveats.append(f"{format_counted(dropped, 'interval')} {window}, dropped")


def texts(records: Sequence[Any], field: str) -> list[str | None]:
    """A field of each record as text; None if a record does not have it."""
    return [None if (value := item.get(field)) is None else str(value) for item in records]
