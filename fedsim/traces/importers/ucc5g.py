"""UCC 5G: logs of phones in an Irish production network, about one row per second.

Source: Raca, Leahy, Sreenan, Quinlan, "Beyond Throughput, the Next Generation: a 5G Dataset with Channel and Context
Metrics", MMSys 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._numbers import Number
from fedsim.traces.importers._series import (
    Series,
    hold_unknown,
    mean_by_time,
    named_sources,
    series_tables,
)
from fedsim.traces.tables import run_starts
from fedsim.units import US_PER_S

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
    **dict.fromkeys(("umts", "hspa", "hspa+", "hsdpa", "hsupa"), "3g"),
    **dict.fromkeys(("edge", "gprs", "gsm"), "2g"),
    "lte": "lte",
    "5g": "5g",
}


class Ucc5g(Importer):
    """One link per file, down and up, with radio, round-trip time and loss if they were measured.

    Rows of the same second are averaged. Missing rates, and rates measured while nothing was downloaded (a state
    without a D), do not show the link's capacity; they are replaced by the last known rate. A row applies until the
    next one.
    """

    name = "ucc5g"
    description = "UCC 5G production traces (CSV, folder or zip)"
    signature = r"NetworkMode.*DL_bitrate"

    class Params(ImporterParams):
        """Options of the UCC 5G importer."""

        app_limited: bool = False
        """Also import the traces of video players (Amazon_Prime, Netflix), whose rates are those that the player
        requested, not the link's capacity."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """Two series per file."""
        kinds = "rows same_second out_of_order seconds_without_row missing_rates idle_rows"
        series: list[Series] = []
        files = list(sources)
        chosen = [
            file
            for file in files
            if params.app_limited or not any(player in file.where for player in _PLAYERS)
        ]
        counts = {"files": len(chosen), "app_limited_files": len(files) - len(chosen)}
        counts |= dict.fromkeys(kinds.split(), 0)
        for name, source in named_sources(chosen, (".csv",)):
            series += _series(name, source, counts)
        if not series:
            raise sources.error(
                "contains only traces of video players, whose rates are not those of the link",
                "import the Download traces, or set app_limited=true",
            )
        caveats = ["a row is an average over about a second and misses shorter outages"]
        if params.app_limited:
            caveats.append("some rates are those of a video player, not of the link")
        return Imported(series_tables(series, kind="phone"), counts, caveats)


def _series(name: str, source: SourceFile, counts: dict[str, int]) -> list[Series]:
    """The two directions of one file."""
    columns, lines = source.table()
    if lacking := [column for column in REQUIRED if column not in columns]:
        hint = f"a UCC 5G log has the columns: {', '.join(REQUIRED)}"
        raise source.error(f"has no column {', '.join(lacking)}", hint, line=1)
    if not lines:
        raise source.error("has no rows")
    stamp = pc.strptime(
        pa.array(columns["Timestamp"]), format="%Y.%m.%d_%H.%M.%S", unit="s", error_is_null=True
    ).cast(pa.int64())
    if stamp.null_count:
        row = int(np.argmax(stamp.is_null().to_numpy(zero_copy_only=False)))
        message = f"Timestamp is '{columns['Timestamp'][row]}'"
        raise source.error(message, "write it as 2020.02.27_18.39.27", line=lines[row])
    numbers = {
        number.name: number.read(columns[number.name], lambda row: source.line(lines[row]))
        for number in NUMBERS
        if number.name in columns
    }
    time_us = stamp.to_numpy() * US_PER_S
    idle = np.array(["D" not in state for state in columns["State"]])
    counts["rows"] += len(time_us)
    counts["out_of_order"] += int(np.count_nonzero(np.diff(time_us) < 0))
    counts["idle_rows"] += int(np.count_nonzero(idle))
    order = np.argsort(time_us, kind="stable")
    time_us = time_us[order] - time_us.min()
    first = np.flatnonzero(run_starts(time_us))
    counts["same_second"] += len(time_us) - len(first)
    edges_us = np.append(time_us[first], time_us[-1] + US_PER_S)
    counts["seconds_without_row"] += int(edges_us[-1] // US_PER_S) - len(first)
    other: dict[str, Any] = {
        "radio": [_RADIO.get(columns["NetworkMode"][row].lower()) for row in order[first]],
        "where": source.where,
    }
    if "PINGAVG" in numbers:
        other["rtt_s"] = mean_by_time(time_us, numbers["PINGAVG"][order]) / 1000.0
    if "PINGLOSS" in numbers:
        other["loss"] = np.minimum(mean_by_time(time_us, numbers["PINGLOSS"][order]) / 100, 1)
    result = []
    for direction, column in RATES.items():
        kbps = numbers[column]
        counts["missing_rates"] += int(np.count_nonzero(np.isnan(kbps)))
        error = source.error(f"no row gives {column} while data were being downloaded")
        kbps = mean_by_time(time_us, np.where(idle, np.nan, kbps)[order])
        held, _ = hold_unknown(kbps, error)
        result.append(Series(name, direction, edges_us, held * 1000.0, **other))
    return result
