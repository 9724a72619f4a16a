"""Writing of exported files, and what all availability exporters ask of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedsim.durable import replacing
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle

Ints = npt.NDArray[np.int64]
US_PER_S = 1_000_000


def write_file(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write a file, all of it or nothing.

    Raises:
        UserError: ``path`` exists and may not be replaced, or cannot be written.
    """
    if path.exists() and not (overwrite and path.is_file()):
        raise UserError(
            "the output exists already",
            where=str(path),
            hint="name another file, or use --force to replace it",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from error


@dataclass(frozen=True)
class Rows:
    """Available intervals of a bundle, sorted by device and start: row of the device, start, end (us). Shape (n,)."""

    device: Ints
    start: Ints
    end: Ints


def available_rows(bundle: TraceBundle) -> Rows:
    """The intervals in which devices are available.

    Raises:
        UserError: the bundle has no availability.
    """
    table = bundle.table("availability")
    device = bundle.device_rows("availability")
    start, end = bundle.numpy("availability", "start_us"), bundle.numpy("availability", "end_us")
    if "state" in table.column_names:
        on = bundle.numpy("availability", "state") == 1
        device, start, end = device[on], start[on], end[on]
    order = np.lexsort((start, device))
    return Rows(device[order].astype(np.int64), start[order], end[order])


def whole_seconds(rows: Rows, counts: dict[str, int]) -> Rows:
    """Intervals rounded to whole seconds, still in microseconds; those that vanish are dropped.

    Adds to ``counts``: ``rounded`` intervals moved and ``vanished`` intervals dropped.
    """
    start = (rows.start + US_PER_S // 2) // US_PER_S * US_PER_S
    end = (rows.end + US_PER_S // 2) // US_PER_S * US_PER_S
    keep = end > start
    counts["rounded"] = int(np.count_nonzero((start != rows.start) | (end != rows.end)))
    counts["vanished"] = int(np.count_nonzero(~keep))
    return Rows(rows.device[keep], start[keep], end[keep])


def periods_us(bundle: TraceBundle) -> Ints:
    """Wrap period of each device: its own, else the length of its window. Shape (devices,)."""
    window: Ints = bundle.numpy("devices", "window_end_us") - bundle.numpy(
        "devices", "window_start_us"
    )
    if "period_us" not in bundle.devices.column_names:
        return window
    period = bundle.devices.column("period_us").combine_chunks()
    own: Ints = pc.fill_null(period, 0).to_numpy(zero_copy_only=False)
    return np.where(own > 0, own, window)


def valid_devices(bundle: TraceBundle) -> npt.NDArray[np.bool_]:
    """Whether each device has a usable trace. Shape (devices,)."""
    valid: npt.NDArray[np.bool_] = (
        bundle.devices.column("valid").combine_chunks().to_numpy(zero_copy_only=False)
    )
    return valid


def texts(bundle: TraceBundle, column: str) -> list[str | None]:
    """A column of the devices as text; all None where the bundle does not have it."""
    if column not in bundle.devices.column_names:
        return [None] * bundle.device_count
    values: list[Any] = bundle.devices.column(column).to_pylist()
    return values


def offsets(device: Ints, count: int) -> Ints:
    """First row of each device in rows sorted by device, and the number of rows. Shape (devices + 1,)."""
    result: Ints = np.searchsorted(device, np.arange(count + 1))
    return result
