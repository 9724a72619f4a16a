"""Throughput logs: a column of times and one of rates, amounts or counters, of one or many links.

For formats without an importer of their own, such as the logs of HSDPA commutes, of broadband tests and of 5G drives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedsim.errors import UserError, raise_all
from fedsim.files import cells
from fedsim.files.cells import AMOUNTS, RATES, DataUnit, Floats, Ints
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import link, link_tables, named_sources
from fedsim.traces.tables import run_starts
from fedsim.units import Duration
from fedsim.vocabulary.formatting import format_counted, format_duration, format_names

_ENDINGS = (".csv", ".tsv", ".txt", ".log", ".dat", ".parquet", ".feather", ".jsonl", ".xlsx")
_FORM = "give -s time_format='%d.%m.%Y %H:%M', the form of the times"
_GAP = 30
_ROLES = ("time", "down", "up", "device", "direction")
_WAYS = {
    "down": "down",
    "dl": "down",
    "download": "down",
    "downlink": "down",
    "rx": "down",
    "in": "down",
}
_WAYS |= {"up": "up", "ul": "up", "upload": "up", "uplink": "up", "tx": "up", "out": "up"}
_WRAPS = (2.0**32, 2.0**64)


class Throughput(Importer):
    """Links over time, one per file or per device; cells are separated by commas, semicolons, tabs or spaces.

    Name the columns and their units: ``-s time=timestamp -s time_unit=ms -s down=throughput -s rate_unit=Mbit/s``; in a
    file without a header, columns have numbers from 1. A rate is the mean over the interval that ends at its time, so
    the one in the first row belongs to no interval and is dropped. Of rows with the same time, rates are averaged and
    amounts added; a missing rate is replaced by the one before it. A gap in a log of rates is cut out. The series
    repeats at its end.
    """

    name = "throughput"
    description = "throughput logs in any columns (time; rate, bytes or counter), by file or device"
    version = "2"

    class Params(ImporterParams):
        """Options of the throughput importer. Columns and units must be given; none is assumed."""

        time: int | str | None = None
        """Column of the times: its name in the header, or its number from 1. Times are numbers or timestamps."""
        time_unit: cells.TimeUnit | None = None
        """Unit of the times, unless they are timestamps: us, ms, s, min, h, d; unix_s, unix_ms, unix_us, unix_ns."""
        time_format: str | None = None
        """Form of the times as for strptime, such as ``%d.%m.%Y %H:%M``, if they are not like ISO 8601."""
        down: int | str | None = None
        """Column of the downlink."""
        up: int | str | None = None
        """Column of the uplink."""
        device: int | str | None = None
        """Column of the device, if a file has several."""
        direction: int | str | None = None
        """Column of the direction (down, rx, in ...; up, tx, out ...) of the values in the column ``down``."""
        rate_unit: DataUnit = None
        """Unit of ``down`` and ``up``, such as Mbit/s or MB/s: b is a bit, B is a byte. ``bit``, ``B``, ``kB`` and
        ``MB`` mean amounts."""
        kind: Literal["amount", "counter"] = "amount"
        """Whether an amount is what arrived since the previous row, or a counter that only grows; at its resets, the
        rate is unknown, and a counter of 32 or 64 bits may wrap."""
        max_gap: Duration | None = Field(None, gt=0)
        """Longest interval that a rate stands for; by default 30 times the median interval. Longer ones are cut out."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """A series per device and direction."""
        counts = dict.fromkeys(
            ("same_time", "missing_rates", "gaps", "counter_resets", "counter_wraps"), 0
        )
        caveats: list[str] = []
        links = [
            piece
            for name, source in named_sources(sources, _ENDINGS)
            for piece in _links(name, source, params, counts, caveats)
        ]
        return Imported(link_tables(links), counts, caveats)


def _links(
    name: str,
    source: SourceFile,
    params: Throughput.Params,
    counts: dict[str, int],
    caveats: list[str],
) -> Iterator[pd.DataFrame]:
    """The links of one file."""
    chosen = {role: column for role in _ROLES if (column := getattr(params, role)) is not None}
    file = TableFile(source, header=any(isinstance(column, str) for column in chosen.values()))
    if "time" not in chosen or not {"down", "up"} & set(chosen):
        first = TableFile(source).names
        raise source.error(
            "has several columns: " + ", ".join(f"{n} {cell}" for n, cell in enumerate(first, 1)),
            "give the names or numbers of those to import: -s time=... and -s down=... or -s up=...",
        )
    numbered = {
        role: file.names[c - 1] if isinstance(c, int) and 0 < c <= len(file.names) else str(c)
        for role, c in chosen.items()
    }
    frame = Frame([file], numbered).load(_ROLES, {"device", "direction"})
    if not len(frame):
        raise source.error("has no rows")
    unit = params.rate_unit
    values = [role for role in ("down", "up") if role in chosen]
    times = ["time"] * (params.time_format is None and frame.are_plain_numbers("time"))
    raise_all(
        UserError(
            f"the unit of {format_names([str(chosen[role]) for role in roles])} is not declared",
            where=source.where,
            hint=f"give it with -s {option}=..., such as {examples}",
        )
        for option, roles, examples in (
            ("time_unit", times, "s, ms or unix_s"),
            ("rate_unit", values, cells.RATE_EXAMPLES),
        )
        if roles and getattr(params, option) is None
    )
    moments = frame.instants(
        "time",
        params.time_unit,
        params.time_format,
        _FORM,
    )
    frame.refuse(moments.us == cells.NAT, "has no time")
    time_us = moments.us
    device, ids = (
        frame.text("device") if "device" in frame else (np.zeros(len(frame), np.int64), [name])
    )
    frame.refuse(device < 0, "has no device")
    way = np.full(len(frame), -1)
    if "direction" in frame:
        code, words = frame.text("direction", lower=True)
        frame.refuse(
            np.array([word not in _WAYS for word in words] + [True])[code],
            "direction is {}",
            f"it must be one of {', '.join(_WAYS)}",
            "direction",
        )
        way = np.array([_WAYS[word] == "up" for word in words])[code].astype(int)
    other = [n for n in file.names if n not in numbered.values()]
    backwards = np.flatnonzero(
        (np.diff(time_us) < 0) & (np.diff(device) == 0) & (np.diff(way) == 0)
    )
    if len(backwards):
        several = [n for n in other if "device" not in chosen]
        frame.refuse(
            np.arange(len(frame)) == backwards[0] + 1,
            "the time is {}, before that of the row above it",
            "times must not decrease; split the file there"
            + (
                f", or name the column of the device, -s device=..., one of {', '.join(several)}"
                if several
                else ""
            ),
            "time",
        )
    counts["same_time"] += int(pd.DataFrame([device, way, time_us]).T.duplicated().sum())
    columns: dict[str, Floats] = {role: frame.number(role, 1.0, unit=str(unit)) for role in values}
    if "device" not in chosen:
        _require_one_link(frame, other, source)
    found = len(caveats)
    pairs: dict[str, int] = {"down": 0, "up": 1}
    if "direction" not in frame:
        pairs = dict.fromkeys(columns, -1)
    groups = pd.Series(way).groupby([device, way]).indices
    for number, key in enumerate(ids):
        for direction, position in pairs.items():
            rows = groups.get((number, position))
            if rows is not None:
                values_ = columns.get(direction, next(iter(columns.values())))
                yield _piece(
                    key, direction, time_us[rows], values_[rows], params, counts, caveats, source
                )
    del caveats[found + 3 :]


def _require_one_link(frame: Frame, others: list[str], source: SourceFile) -> None:
    """Refuse a file whose other columns name several devices, each with a time more than once in a row of turns."""
    if not others:
        return
    frame = Frame(frame.files, {name: name for name in others}).load(others, others)
    for name in others:
        code, words = frame.text(name)
        turns = int(np.count_nonzero(np.diff(code)))
        # Few words that take turns, row by row, are the links of a file with several.
        if 2 <= len(words) <= len(code) / 2 and turns >= len(code) / 2 and not _are_numbers(words):
            raise source.error(
                f"the column {name} takes turns between {format_names(words, 4)}: are these several devices?",
                f"if so, give -s device={name}; if each row is of the same link, remove the column",
            )


def _are_numbers(words: list[str]) -> bool:
    return bool(pd.to_numeric(pd.Series(words), errors="coerce").notna().all())


def _piece(
    name: str,
    direction: str,
    time_us: Ints,
    values: Floats,
    params: Throughput.Params,
    counts: dict[str, int],
    caveats: list[str],
    source: SourceFile,
) -> pd.DataFrame:
    """The pieces of one direction of a link, from times that do not decrease."""
    unit = str(params.rate_unit)
    first = np.flatnonzero(run_starts(time_us))
    if len(first) < 2:
        raise source.error("has no interval between two times")
    length_us = np.diff(time_us[first])
    by_time = pd.Series(values).groupby(np.cumsum(run_starts(time_us)))
    if unit in RATES:
        rates: Any = by_time.mean().to_numpy()[1:] * RATES[unit]
        limit_us = params.max_gap * 1e6 if params.max_gap else _GAP * float(np.median(length_us))
        gap = length_us > limit_us
        if gap.any():
            counts["gaps"] += int(np.count_nonzero(gap))
            gaps = format_counted(int(np.count_nonzero(gap)), "gap")
            limit, total = (
                format_duration(us / 1e6) for us in (limit_us, float(length_us[gap].sum()))
            )
            caveats.append(
                f"{name}: {gaps} longer than {limit}, {total} in total, cut out (option max_gap)"
            )
            length_us, rates = length_us[~gap], rates[~gap]
    else:
        amount: Any = by_time.sum(min_count=1).to_numpy()
        if params.kind == "counter":
            amount = np.append(np.nan, _grown(by_time.last().to_numpy(np.float64), counts))
        elif len(amount) > 9 and (np.diff(amount) > 0).all():
            raise source.error(
                f"the amounts of {direction} increase from row to row: are they a counter?",
                "if so, give -s kind=counter; if not, remove a row",
            )
        rates = amount[1:] * AMOUNTS[unit] / (length_us / 1e6)
    counts["missing_rates"] += int(np.count_nonzero(np.isnan(rates)))
    if not len(length_us):
        raise source.error("has no interval between two times")
    edges_us = np.append(0, np.cumsum(length_us))
    return link(name, direction, edges_us, rates, source.where)


def _grown(counter: Any, counts: dict[str, int]) -> Any:
    """How much a counter has grown in each interval; NaN at its resets. A wrap is a fall from the top of its range."""
    grown = np.diff(counter)
    fell = grown < 0
    for size in _WRAPS:
        wraps = (
            fell & (counter[:-1] > 0.9 * size) & (counter[:-1] < size) & (counter[1:] < 0.1 * size)
        )
        grown = np.where(wraps, grown + size, grown)
        counts["counter_wraps"] += int(np.count_nonzero(wraps))
        fell &= ~wraps
    counts["counter_resets"] += int(np.count_nonzero(fell))
    return np.where(fell, np.nan, grown)
