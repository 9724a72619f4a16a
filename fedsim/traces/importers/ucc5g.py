"""UCC 5G: logs of phones in an Irish production network, about one row per second.

Source: Raca, Leahy, Sreenan, Quinlan, "Beyond Throughput, the Next Generation: a 5G Dataset with Channel and Context
Metrics", MMSys 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._numbers import Floats, Ints, Number
from fedsim.traces.importers._series import (
    Series,
    hold_unknown,
    mean_by_time,
    named_sources,
    series_tables,
)

SECOND_US = 1_000_000
RATES = {"down": "DL_bitrate", "up": "UL_bitrate"}
NUMBERS = [
    Number(name, unit, missing=("-", ""))
    for name, unit in (
        ("DL_bitrate", "kbit/s"),
        ("UL_bitrate", "kbit/s"),
        ("PINGAVG", "ms"),
        ("PINGLOSS", "%"),
    )
]
REQUIRED = ("Timestamp", "NetworkMode", "State", *RATES.values())
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

    time_us: Ints
    numbers: Mapping[str, Floats]
    radio: list[str]
    idle: npt.NDArray[np.bool_]


class Ucc5g(Importer):
    """One link per file, down and up, with radio, round-trip time and loss where they were measured.

    Rows of one second are averaged. A second without a row, a missing rate and a rate measured while nothing was being
    downloaded (state without a D) hold the last rate known: they do not say what the link could carry. A row holds
    until the next one.
    """

    name: ClassVar[str] = "ucc5g"
    description: ClassVar[str] = "UCC 5G production traces (CSV, folder or zip)"
    signature: ClassVar[str] = r"NetworkMode.*DL_bitrate"
    Params: ClassVar[type[Parameters]] = Ucc5gParams

    @classmethod
    def read(cls, sources: Sources, params: Ucc5gParams) -> Imported:
        """Two series per file."""
        names = (
            "files",
            "app_limited_files",
            "rows",
            "same_second",
            "out_of_order",
            "seconds_without_row",
            "missing_rates",
            "idle_rows",
        )
        counts = dict.fromkeys(names, 0)
        series: list[Series] = []
        files = list(sources)
        chosen = [
            file
            for file in files
            if params.app_limited or not any(player in file.where for player in _PLAYERS)
        ]
        counts |= {"files": len(chosen), "app_limited_files": len(files) - len(chosen)}
        for name, source in named_sources(chosen, (".csv",)):
            series.extend(_series(name, source, _log(source), counts))
        if not series:
            raise UserError(
                "holds only traces of video players, whose rates are not those of the link",
                where=sources.where,
                hint="import the Download traces, or set app_limited=true",
            )
        caveats = ["a row is an average over about a second: shorter outages are unseen"]
        if params.app_limited:
            caveats.append("some rates are those of a video player, not of the link")
        return Imported(series_tables(series, kind="phone"), counts, caveats)


def _log(source: SourceFile) -> _Log:
    columns, lines = source.table()
    if lacking := [column for column in REQUIRED if column not in columns]:
        raise UserError(
            f"has no column {', '.join(lacking)}",
            where=source.line(1),
            hint=f"a UCC 5G log has the columns: {', '.join(REQUIRED)}",
        )
    if not lines:
        raise UserError("has no rows", where=source.where)
    stamp = pc.strptime(
        pa.array(columns["Timestamp"]), format="%Y.%m.%d_%H.%M.%S", unit="s", error_is_null=True
    ).cast(pa.int64())
    if stamp.null_count:
        row = int(np.argmax(stamp.is_null().to_numpy(zero_copy_only=False)))
        raise UserError(
            f"Timestamp is '{columns['Timestamp'][row]}'",
            where=source.line(lines[row]),
            hint="write it as 2020.02.27_18.39.27",
        )
    numbers = {
        number.name: number.read(columns[number.name], lambda row: source.line(lines[row]))
        for number in NUMBERS
        if number.name in columns
    }
    return _Log(
        stamp.to_numpy() * SECOND_US,
        numbers,
        [mode.lower() for mode in columns["NetworkMode"]],
        np.array(["D" not in state for state in columns["State"]]),
    )


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
    other: dict[str, Any] = {
        "radio": [_RADIO.get(log.radio[order[row]]) for row in first],
        "where": source.where,
    }
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
                f"no row gives {column} while data were being downloaded", where=source.where
            ) from None
        result.append(Series(name, direction, edges_us, held * 1000.0, **other))
    return result
