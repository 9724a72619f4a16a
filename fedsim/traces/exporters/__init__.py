"""Writers of other trace formats, one file each, so that other simulators can read fedsim's bundles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedsim.errors import UserError
from fedsim.files.durable import replacing
from fedsim.parts.component import Component, discover
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.tables import Floats, Ints, run_starts
from fedsim.units import US_PER_S

Files = Iterator[tuple[Path, str | bytes]]
"""Files and their content."""


class Exporter(Component, ABC):
    """Base of every exporter.

    Attributes:
        description: one line for the list of formats.
    """

    description: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def files(cls, bundle: TraceBundle, path: Path, params: Any, counts: dict[str, int]) -> Files:
        """The files of a bundle in this format and their content.

        Args:
            bundle: a sound bundle (:func:`~fedsim.traces.validation.require_sound`).
            path: the file, or the folder for one file per series.
            params: an instance of the class's ``Params``.
            counts: receives the numbers of items written, and of those that the format cannot express.
        """

    @classmethod
    def write(
        cls, bundle: TraceBundle, path: Path, params: Any, *, overwrite: bool = False
    ) -> dict[str, int]:
        """Write a bundle in this format, replacing existing files only with ``overwrite``; returns the counts."""
        counts: dict[str, int] = {}
        for file, content in cls.files(bundle, path, params, counts):
            if file.exists() and not (overwrite and file.is_file()):
                raise UserError(
                    "the output already exists",
                    where=str(file),
                    hint="name another file, or use --force to replace this one",
                )
            data = content.encode() if isinstance(content, str) else content
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with replacing(file) as temporary:
                    temporary.write_bytes(data)
            except OSError as error:
                hint = "name a folder: there is one file per series" if path.is_file() else None
                message = f"cannot be written: {error.strerror}"
                raise UserError(message, where=str(file), hint=hint) from error
        return counts


def registry() -> Mapping[str, type[Exporter]]:
    """The exporters that ship with fedsim, by the name of their format."""
    return discover("fedsim.traces.exporters", Exporter)


class Rows(NamedTuple):
    """Available intervals of a bundle, sorted by device and start: row of the device, start, end (us). Shape (n,)."""

    device: Ints
    start: Ints
    end: Ints


def available_rows(bundle: TraceBundle) -> Rows:
    """The intervals in which devices are available."""
    table = bundle.table("availability")
    device = bundle.device_rows("availability")
    start, end = bundle.numpy("availability", "start_us"), bundle.numpy("availability", "end_us")
    if "state" in table.column_names:
        on = bundle.numpy("availability", "state") == 1
        device, start, end = device[on], start[on], end[on]
    order = np.lexsort((start, device))
    return Rows(device[order], start[order], end[order])


def whole_seconds(rows: Rows, counts: dict[str, int]) -> Rows:
    """Intervals rounded to whole seconds (s); intervals that become empty are dropped.

    Adds to ``counts``: ``rounded``, the intervals moved, and ``vanished``, those dropped.
    """
    start, end = ((time + US_PER_S // 2) // US_PER_S for time in (rows.start, rows.end))
    moved = (start * US_PER_S != rows.start) | (end * US_PER_S != rows.end)
    keep = end > start
    counts["rounded"] = int(np.count_nonzero(moved))
    counts["vanished"] = int(np.count_nonzero(~keep))
    return Rows(rows.device[keep], start[keep], end[keep])


def offsets(rows: Rows, devices: int) -> Ints:
    """First row of each device, and the number of rows. Shape (devices + 1,)."""
    return np.asarray(np.searchsorted(rows.device, np.arange(devices + 1)))


class Link(NamedTuple):
    """One direction of one series.

    Attributes:
        series_id, direction: name and direction of the series.
        file_name: the series' name as a file name.
        edges_us: start of the first piece (0) and ends of all pieces, shape (n + 1,).
        rate_bps: rate of each piece, shape (n,).
    """

    series_id: str
    direction: str
    file_name: str
    edges_us: Ints
    rate_bps: Floats


def links(bundle: TraceBundle) -> Iterator[Link]:
    """The series of a bundle, which must have a known rate in all pieces and different file names."""
    start = bundle.numpy("network_series", "start_us")
    end = start + bundle.numpy("network_series", "dur_us")
    rate = bundle.numpy("network_series", "rate_bps")
    unknown = np.flatnonzero(np.isnan(rate))
    if len(unknown):
        raise bundle.error(
            f"network_series row {unknown[0]} has no rate, which the format requires"
        )
    series = bundle.texts("network_series", "series_id")
    direction = bundle.texts("network_series", "direction")
    first = np.flatnonzero(run_starts(series, direction))
    seen: dict[tuple[str, str], str] = {}
    for low, high in zip(first, np.append(first[1:], len(series)), strict=True):
        name, way = str(series[low]), str(direction[low])
        file_name = name.replace("/", "_")
        other = seen.setdefault((file_name, way), name)
        if other != name:
            raise bundle.error(f"the series '{other}' and '{name}' would have the same file name")
        edges_us = np.append(start[low:high], end[high - 1]) - start[low]
        yield Link(name, way, file_name, edges_us, rate[low:high])
