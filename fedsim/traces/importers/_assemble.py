"""Tables of a bundle from the columns that importers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.traces.ordering import Intervals, polling_interval
from fedsim.traces.tables import constant_column, id_column, make_table

DAY_US = 86_400_000_000

# Profiles without a clock (capacities, benchmark scores, latencies) are given one day, which repeats.
STATIC_HORIZON_US = DAY_US


def nullable(values: npt.NDArray[Any]) -> Any:
    """An Arrow array in which NaN has become null (unknown)."""
    return pa.array(values, mask=np.isnan(values))


def devices_table(
    ids: Sequence[str],
    *,
    window_end_us: npt.NDArray[np.int64] | int,
    window_start_us: npt.NDArray[np.int64] | int = 0,
    kind: str | None = None,
    **columns: Any,
) -> Any:
    """A table of devices; ``source_id`` is the id and every device is valid unless ``columns`` say otherwise."""
    count = len(ids)
    values: dict[str, Any] = {
        "device_id": pa.array(ids, type=pa.string()),
        "source_id": pa.array(ids, type=pa.string()),
        "window_start_us": np.broadcast_to(np.asarray(window_start_us, np.int64), count),
        "window_end_us": np.broadcast_to(np.asarray(window_end_us, np.int64), count),
        "valid": np.ones(count, bool),
    }
    if kind is not None:
        values["kind"] = constant_column(kind, count)
    return make_table("devices", values | columns)


def availability_table(
    intervals: Intervals,
    ids: Any,
    *,
    window_start_us: npt.NDArray[np.int64] | None = None,
    window_end_us: npt.NDArray[np.int64] | None = None,
    **columns: Any,
) -> Any:
    """A table of availability, of state 1 unless ``columns`` say otherwise.

    With the windows of the devices given, an interval that reaches an edge of its window is marked as censored there.
    """
    count = len(intervals.device)
    censored = np.zeros(count, np.int8)
    if window_start_us is not None:
        censored |= (intervals.start <= window_start_us[intervals.device]).astype(np.int8)
    if window_end_us is not None:
        censored |= (intervals.end >= window_end_us[intervals.device]).astype(np.int8) << 1
    values = {
        "device_id": id_column(intervals.device, ids),
        "start_us": intervals.start,
        "end_us": intervals.end,
        "state": np.ones(count, np.int8),
        "censored": censored,
    }
    return make_table("availability", values | columns)


def per_device(ids: Sequence[str], table: str, rows: Any = None, **columns: Any) -> Any:
    """A table with one row per device: those of ``rows``, or all.

    A text stands for a column that holds it in every row; NaN in a column of floats is null.
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
    """Add a count and a caveat if the source was polled, so that shorter changes are unseen."""
    polled_us = polling_interval(intervals.end - intervals.start)
    if polled_us is not None:
        counts["polling_interval_s"] = round(polled_us / 1e6)
        caveats.append(
            f"lengths cluster at multiples of {polled_us / 1e6:.0f} s: the source was polled and shorter changes"
            " are unseen"
        )


def texts(records: Sequence[Any], field: str) -> list[str | None]:
    """A field of some records as text; None if a record does not have it."""
    return [None if (value := item.get(field)) is None else str(value) for item in records]


def single_ids(ids: Sequence[str], where: str, what: str) -> None:
    """Refuse an id that appears twice.

    Raises:
        UserError: names the first one.
    """
    seen: set[str] = set()
    for number, item in enumerate(ids, start=1):
        if item in seen:
            raise UserError(
                f"{what} {item!r} appears twice",
                where=f"{where}, record {number}",
                hint="give each its own name",
            )
        seen.add(item)
