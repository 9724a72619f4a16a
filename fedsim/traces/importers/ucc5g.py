"""UCC 5G: logs of phones in an Irish production network, about a row a second.

Source: Raca, Leahy, Sreenan, Quinlan, "Beyond Throughput, the Next Generation: a 5G Dataset with Channel and Context
Metrics", MMSys 2020.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import bundle
from fedsim.traces.importers._files import SourceFile, source_files
from fedsim.traces.importers._series import (
    Series,
    hold_unknown,
    mean_by_time,
    require_single,
    series_names,
    series_tables,
)

MISSING = ("-", "")
SECOND_US = 1_000_000
RATES = {"down": "DL_bitrate", "up": "UL_bitrate"}
_PLAYERS = ("Amazon_Prime", "Netflix")
_RADIO: Mapping[str, str] = {
    "5g": "5g",
    "lte": "lte",
    "umts": "3g",
    "hspa": "3g",
    "hspa+": "3g",
    "hsdpa": "3g",
    "hsupa": "3g",
    "edge": "2g",
    "gprs": "2g",
    "gsm": "2g",
}


class Ucc5gParams(ImporterParams):
    """Options of the UCC 5G importer."""

    app_limited: bool = False
    """Also take the traces of video players (Amazon_Prime, Netflix), whose rates are what the player asked for and not
    what the link could carry."""


@dataclass(frozen=True)
class _Log:
    """The columns of one file that are used; numbers are NaN where missing."""

    time_us: npt.NDArray[np.int64]
    numbers: Mapping[str, npt.NDArray[np.float64]]
    radio: list[str]
    idle: npt.NDArray[np.bool_]


class Ucc5g(Importer):
    """A link a file, down and up, with radio, round-trip time and loss where they were measured.

    Rows of one second are averaged. A second without a row, a missing rate and a rate measured while nothing was being
    downloaded (state without a D) hold the last rate known: they do not say what the link could carry. A row holds
    until the next one.
    """

    name: ClassVar[str] = "ucc5g"
    description: ClassVar[str] = "UCC 5G production traces (CSV, folder or zip)"
    Params: ClassVar[type[Parameters]] = Ucc5gParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: Ucc5gParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        sources = list(source_files(paths))
        chosen = [
            source
            for source in sources
            if params.app_limited or not any(player in source.where for player in _PLAYERS)
        ]
        counts = {
            "files": len(chosen),
            "app_limited_files": len(sources) - len(chosen),
            "rows": 0,
            "same_second": 0,
            "out_of_order": 0,
            "seconds_without_row": 0,
            "missing_rates": 0,
            "idle_rows": 0,
        }
        if not chosen:
            raise UserError(
                "holds only traces of video players, whose rates are not those of the link",
                where=", ".join(map(str, paths)),
                hint="import the Download traces, or set app_limited=true",
            )
        names = series_names([source.name for source in chosen], (".csv",))
        require_single(names, [source.where for source in chosen])
        series: list[Series] = []
        for name, source in zip(names, chosen, strict=True):
            series.extend(_series(name, source, _log(source), counts))
        tables = series_tables(series, kind="phone")
        caveats = ["a row is an average over about a second: shorter outages are unseen"]
        if params.app_limited:
            caveats.append("some rates are those of a video player, not of the link")
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=int(tables["devices"].column("window_end_us").to_numpy().max()),
            on_end="wrap",
            caveats=caveats,
        )


def _log(source: SourceFile) -> _Log:
    wanted = ("Timestamp", "NetworkMode", "State", *RATES.values(), "PINGAVG", "PINGLOSS")
    reader = csv.reader(io.StringIO(source.text()))
    header = [field.strip() for field in next(reader, [])]
    needed = wanted[:5]
    if lacking := [column for column in needed if column not in header]:
        raise UserError(
            f"has no column {', '.join(lacking)}",
            where=source.line(1),
            hint=f"a UCC 5G log has the columns: {', '.join(wanted)}",
        )
    rows, lines = [], []
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            raise UserError(
                f"has {len(row)} fields, not {len(header)} as in the header",
                where=source.line(reader.line_num),
            )
        rows.append(row)
        lines.append(reader.line_num)
    if not rows:
        raise UserError("has no rows", where=source.where)
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))

    stamp = pc.strptime(
        pa.array(columns["Timestamp"]), format="%Y.%m.%d_%H.%M.%S", unit="s", error_is_null=True
    ).cast(pa.int64())
    if stamp.null_count:
        row_number = int(np.argmax(stamp.is_null().to_numpy(zero_copy_only=False)))
        raise UserError(
            f"Timestamp is '{columns['Timestamp'][row_number]}'",
            where=source.line(lines[row_number]),
            hint="write it as 2020.02.27_18.39.27",
        )
    numbers = {
        column: _numbers(source, lines, column, columns[column])
        for column in wanted[3:]
        if column in columns
    }
    return _Log(
        stamp.to_numpy() * SECOND_US,
        numbers,
        [mode.strip().lower() for mode in columns["NetworkMode"]],
        np.array(["D" not in state for state in columns["State"]]),
    )


def _numbers(
    source: SourceFile, lines: list[int], column: str, texts: list[str]
) -> npt.NDArray[np.float64]:
    values = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text.strip() in MISSING:
            continue
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < np.inf:
            raise UserError(
                f"{column} is '{text}'",
                where=source.line(lines[row]),
                hint="it must be a number of 0 or more, or '-' where it is missing",
            )
        values[row] = value
    return values


def _series(name: str, source: SourceFile, log: _Log, counts: dict[str, int]) -> list[Series]:
    counts["rows"] += len(log.time_us)
    counts["out_of_order"] += int(np.count_nonzero(np.diff(log.time_us) < 0))
    counts["idle_rows"] += int(np.count_nonzero(log.idle))
    order = np.argsort(log.time_us, kind="stable")
    time_us = log.time_us[order] - log.time_us.min()
    first = np.flatnonzero(np.append(True, time_us[1:] != time_us[:-1]))
    counts["same_second"] += len(time_us) - len(first)
    edges_us = np.append(time_us[first], time_us[-1] + SECOND_US)
    counts["seconds_without_row"] += int(edges_us[-1] // SECOND_US) - len(first)
    radio: list[str | None] = [_RADIO.get(log.radio[order[row]]) for row in first]

    other: dict[str, Any] = {}
    if "PINGAVG" in log.numbers:
        other["rtt_s"] = mean_by_time(time_us, log.numbers["PINGAVG"][order]) / 1000.0
    if "PINGLOSS" in log.numbers:
        other["loss"] = np.minimum(mean_by_time(time_us, log.numbers["PINGLOSS"][order]) / 100, 1)
    result = []
    for direction, column in RATES.items():
        kbps = log.numbers[column]
        counts["missing_rates"] += int(np.count_nonzero(np.isnan(kbps)))
        kbps = np.where(log.idle, np.nan, kbps)[order]
        try:
            held, _ = hold_unknown(mean_by_time(time_us, kbps))
        except ValueError:
            raise UserError(
                f"no row tells {column} while data were being downloaded", where=source.where
            ) from None
        result.append(Series(name, direction, edges_us, held * 1000.0, radio=radio, **other))
    return result
