"""Rate series of links, and the tables of a bundle with one device per link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.traces.importers._assemble import devices_table, nullable, per_device
from fedsim.traces.importers._sources import SourceFile
from fedsim.traces.tables import DIRECTIONS, Floats, Ints, id_column, make_table, run_starts


@dataclass(frozen=True)
class Series:
    """Rates of one direction of one link.

    Args:
        series_id: name of the link.
        direction: down, up or both.
        edges_us: start of the first piece and ends of all pieces, ascending, shape (n + 1,).
        rate_bps: rate of each piece, shape (n,).
        rtt_s: round-trip time of each piece, NaN if unknown, shape (n,); None: all unknown.
        loss: share of packets lost in each piece, NaN if unknown, shape (n,); None: all unknown.
        radio: type of radio of each piece; None: all unknown.
        where: the file, for messages.
    """

    series_id: str
    direction: str
    edges_us: Ints
    rate_bps: Floats
    rtt_s: Floats | None = None
    loss: Floats | None = None
    radio: Sequence[str | None] | None = None
    where: str = ""


def series_tables(series: Sequence[Series], *, kind: str | None = None) -> dict[str, Any]:
    """Tables ``devices``, ``network_series`` and ``network_assign`` of the links, one device per link.

    A device is named after its link; its window and its period have the length of the longer direction. Two files must
    not give the same direction of the same link.
    """
    seen: dict[tuple[str, str], str] = {}
    for item in series:
        other = seen.setdefault((item.series_id, item.direction), item.where)
        if other is not item.where:
            raise UserError(
                f"has the same name '{item.series_id}' as {other}",
                where=item.where,
                hint="rename one of them, or import the folder that contains both",
            )
    ordered = sorted(series, key=lambda item: (item.series_id, item.direction))
    ids = sorted({item.series_id for item in ordered})
    row = {name: number for number, name in enumerate(ids)}
    ends = np.zeros(len(ids), np.int64)
    for item in ordered:
        ends[row[item.series_id]] = max(ends[row[item.series_id]], int(item.edges_us[-1]))
    lengths = [len(item.rate_bps) for item in ordered]
    link = np.repeat([row[item.series_id] for item in ordered], lengths)
    direction = np.repeat([DIRECTIONS.index(item.direction) for item in ordered], lengths)
    values: dict[str, Any] = {
        "series_id": id_column(link, ids),
        "direction": id_column(direction, DIRECTIONS),
        "start_us": np.concatenate([item.edges_us[:-1] for item in ordered]),
        "dur_us": np.concatenate([np.diff(item.edges_us) for item in ordered]),
        "rate_bps": np.concatenate([item.rate_bps for item in ordered]),
    }
    for column in ("rtt_s", "loss"):
        pieces = [getattr(item, column) for item in ordered]
        if any(piece is not None for piece in pieces):
            filled = [
                np.full(length, np.nan) if piece is None else piece
                for piece, length in zip(pieces, lengths, strict=True)
            ]
            values[column] = nullable(np.concatenate(filled).astype(np.float32))
    if any(item.radio is not None for item in ordered):
        radios = (item.radio or [None] * len(item.rate_bps) for item in ordered)
        values["radio"] = pa.array(chain.from_iterable(radios), pa.string())
    return {
        "devices": devices_table(ids, window_end_us=ends, kind=kind, period_us=ends),
        "network_series": make_table("network_series", values),
        "network_assign": per_device(
            ids,
            "network_assign",
            series_id=id_column(np.arange(len(ids)), ids),
            offset_us=np.zeros(len(ids), np.int64),
            scale=np.ones(len(ids), np.float32),
        ),
    }


def named_sources(
    sources: Iterable[SourceFile], endings: Sequence[str] = ()
) -> list[tuple[str, SourceFile]]:
    """The files with the names of their links: the file name without the ``endings``, or the path if names repeat."""

    def bare(name: str) -> str:
        for ending in endings:
            name = name.removesuffix(ending)
        return name

    files = list(sources)
    short = [bare(PurePosixPath(file.name).name) for file in files]
    unique = len(set(short)) == len(short)
    names = short if unique else [bare(file.name) for file in files]
    return list(zip(names, files, strict=True))


def hold_unknown(values: Floats, nothing_known: UserError) -> tuple[Floats, int]:
    """``values`` with each NaN replaced by the last known value (or else the first), and the number of NaN.

    ``nothing_known`` is raised if all values are NaN.
    """
    unknown = int(np.count_nonzero(np.isnan(values)))
    if unknown == len(values):
        raise nothing_known
    return np.asarray(pd.Series(values).ffill().bfill(), np.float64), unknown


def mean_by_time(time_us: Ints, value: Floats) -> Floats:
    """Mean of the values at each distinct instant (ascending) without NaN; NaN if all are. Shape (distinct,)."""
    first = np.flatnonzero(run_starts(time_us))
    known = ~np.isnan(value)
    number = np.add.reduceat(known.astype(np.int64), first)
    total = np.add.reduceat(np.where(known, value, 0.0), first)
    with np.errstate(invalid="ignore"):
        result: Floats = total / number
    return result
