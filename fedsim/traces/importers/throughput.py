"""Throughput logs of links, one file per session: a column of times and one of rates or of amounts per interval.

For formats without an importer of their own, such as the logs of HSDPA commutes, of broadband tests and of 5G drives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import pandas as pd

from fedsim.errors import UserError, raise_all
from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._numbers import RATE_UNITS, TIME_S, Number, RateUnit, microseconds
from fedsim.traces.importers._series import (
    Series,
    hold_unknown,
    mean_by_time,
    named_sources,
    series_tables,
)
from fedsim.traces.tables import Bounds, Ints, run_starts
from fedsim.units import DURATION_UNITS
from fedsim.vocabulary.formatting import format_names

# Bits of each unit of an amount.
AMOUNTS = {"bit": 1.0, "B": 8.0, "kB": 8e3, "MB": 8e6}
_MISSING = ("", "-", "nan", "NaN", "NA", "N/A", "null")
_ENDINGS = (".csv", ".tsv", ".txt", ".log", ".dat", ".parquet", ".feather")

TimeUnit = Literal["us", "ms", "s", "min", "h", "d"]
Unit = Literal[RateUnit, "bit", "B", "kB", "MB"]


class Throughput(Importer):
    """One link per file, from its first time; cells are separated by commas, semicolons, tabs or spaces.

    Name the columns and their units: ``-s time=timestamp -s time_unit=ms -s down=throughput -s rate_unit=Mbps``; in a
    file without a header, columns have numbers from 1. A rate is the mean over the interval that ends at its time, so
    the one in the first row belongs to no interval and is dropped. Of rows with the same time, rates are averaged and
    amounts added; a missing rate is replaced by the one before it. The series repeats at its end.
    """

    name = "throughput"
    description = "throughput logs in any columns (time; rate or bytes), one file per link"

    class Params(ImporterParams):
        """Options of the throughput importer. Columns and units must be given; none is assumed."""

        time: int | str | None = None
        """Column of the times: its name in the header, or its number from 1. Times are numbers or ISO 8601
        timestamps."""
        time_unit: TimeUnit | None = None
        """Unit of the times, unless they are timestamps."""
        down: int | str | None = None
        """Column of the downlink."""
        up: int | str | None = None
        """Column of the uplink."""
        rate_unit: Unit | None = None
        """Unit of ``down`` and ``up``: b is a bit, B is a byte. ``bit``, ``B``, ``kB`` and ``MB`` mean the amount that
        arrived since the previous row."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """A series per file and direction."""
        counts = {"same_time": 0, "missing_rates": 0}
        series = []
        for name, source in named_sources(sources, _ENDINGS):
            series += _series(name, source, params, counts)
        return Imported(series_tables(series), counts)


def _series(
    name: str, source: SourceFile, params: Throughput.Params, counts: dict[str, int]
) -> list[Series]:
    """The series of one file."""
    _, first = next(source.lines("#"), (0, ""))
    separator = next((mark for mark in ",;\t" if mark in first), None)
    header = [cell.strip(' "') for cell in first.split(separator)]
    rows = source.cells(separator, [len(header)], "every line has as many cells as the first", "#")
    chosen = {key: getattr(params, key) for key in ("time", "down", "up")}
    columns = {
        key: _position(column, header, source)
        for key, column in chosen.items()
        if column is not None
    }
    if "time" not in columns or len(columns) < 2:
        raise source.error(
            "has several columns: " + ", ".join(f"{n} {cell}" for n, cell in enumerate(header, 1)),
            "give the names or numbers of those to import: -s time=... and -s down=... or -s up=...",
        )
    if any(isinstance(column, str) for column in chosen.values()):
        rows = rows[1:]
    if not rows:
        raise source.error("has no rows")
    cells = [row[columns["time"]].strip('"') for _, row in rows]
    dated = bool(np.isnan(pd.to_numeric(cells[:1], errors="coerce")[0]))
    raise_all(
        UserError(
            f"the unit of {format_names([str(chosen[key]) for key in keys if key in columns])} is not declared",
            where=source.where,
            hint=f"give it with -s {option}=..., one of {', '.join(get_args(units))}",
        )
        for option, units, keys in (
            ("time_unit", TimeUnit, ("time",)),
            ("rate_unit", Unit, ("down", "up")),
        )
        if getattr(params, option) is None and not (dated and option == "time_unit")
    )

    def where(row: int) -> str:
        return source.line(rows[row][0])

    if dated:
        time_us = _timestamps(cells, where)
    else:
        unit_s = DURATION_UNITS[str(params.time_unit)]
        bounds = Bounds(TIME_S.low / unit_s, TIME_S.high / unit_s, words=TIME_S.words)
        number = Number("the time", str(params.time_unit), bounds)
        time_us = microseconds(number.read(cells, where) * unit_s)
    if (np.diff(time_us) < 0).any():
        row = int(np.argmax(np.diff(time_us) < 0)) + 1
        raise UserError(
            f"the time is '{cells[row]}', before that of the row above it",
            where=where(row),
            hint="times must not decrease; split the file there",
        )
    first_rows = np.flatnonzero(run_starts(time_us))
    if len(first_rows) < 2:
        raise source.error("has no interval between two times")
    counts["same_time"] += len(time_us) - len(first_rows)
    edges_us = time_us[first_rows] - time_us[0]
    result = []
    for direction in ("down", "up"):
        if direction not in columns:
            continue
        number = Number(direction, str(params.rate_unit), missing=_MISSING)
        values = number.read([row[columns[direction]] for _, row in rows], where)
        if params.rate_unit in AMOUNTS:
            amounts = np.add.reduceat(values, first_rows)[1:] * AMOUNTS[params.rate_unit]
            rates = amounts / (np.diff(edges_us) / 1e6)
        else:
            rates = mean_by_time(time_us, values)[1:] * RATE_UNITS[str(params.rate_unit)]
        held, missing = hold_unknown(rates, source.error(f"has no value of {direction}"))
        counts["missing_rates"] += missing
        result.append(Series(name, direction, edges_us, held, where=source.where))
    return result


def _position(column: int | str, header: list[str], source: SourceFile) -> int:
    """Index of a column by its name or number."""
    if isinstance(column, str) and column in header:
        return header.index(column)
    if isinstance(column, int) and 1 <= column <= len(header):
        return column - 1
    raise source.error(f"has no column {column}", f"its columns are {', '.join(header)}")


def _timestamps(cells: list[str], where: Callable[[int], str]) -> Ints:
    """ISO 8601 timestamps in us; without an offset, as UTC."""
    times = pd.to_datetime(pd.Series(cells), format="ISO8601", utc=True, errors="coerce")
    bad = np.flatnonzero(times.isna())
    if len(bad):
        raise UserError(
            f"the time is '{cells[bad[0]]}', which is neither a number nor an ISO 8601 timestamp",
            where=where(bad[0]),
            hint="write it as in 2024-05-01T08:00:00; if this is a header, give the names of its columns",
        )
    return np.asarray(times.dt.as_unit("us").astype(np.int64))
