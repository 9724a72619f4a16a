"""Pensieve's "cooked" throughput traces: lines of ``time_s TAB Mbit/s``.

A rate is the mean over the interval that ends at its time. Source: Mao, Netravali, Alizadeh, "Neural Adaptive Video
Streaming with Pensieve", SIGCOMM 2017; many bandwidth collections are published in this form.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._numbers import TIME_S, Number, microseconds
from fedsim.traces.importers._series import Series, named_sources, series_tables
from fedsim.traces.tables import Floats, Ints

TIME = Number("the time", "s", TIME_S)
RATE = Number("the rate", "Mbit/s")


class Pensieve(Importer):
    """One series per file, from its first time; the rate in the first line belongs to no interval and is dropped.

    Of several lines with the same time, the first one counts. The series repeats at its end.
    """

    name = "pensieve"
    description = "Pensieve cooked throughput traces (time, Mbit/s), one file per link"
    signature = r"^[^\n]*\n(\d+(\.\d*)?([eE]-?\d+)?[\t ]+\d+\.\d*([eE]-?\d+)?[ ]*\r?\n){2}"

    class Params(ImporterParams):
        """Options of the Pensieve importer."""

        direction: Literal["down", "up", "both"] = "down"
        """Direction that was measured."""
        app_limited: bool = False
        """The rates are those of an application such as a video player, not the link's capacity (Puffer); noted in the
        manifest, because such a link appears slower than it is."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One series per file."""
        counts = {"first_rates": 0, "zero_length": 0}
        series = []
        for name, source in named_sources(sources, (".txt", ".log", ".csv")):
            time_us, rate_bps = _samples(source)
            length = np.diff(time_us)
            if (length < 0).any():
                row = int(np.argmax(length < 0)) + 2
                raise source.error(
                    f"sample {row} is before the one above it",
                    "times must not decrease; split the file there",
                )
            keep = length > 0
            if not keep.any():
                raise source.error("has no interval between two times")
            counts["first_rates"] += 1
            counts["zero_length"] += int(np.count_nonzero(~keep))
            edges_us = np.append(0, np.cumsum(length[keep]))
            rates = rate_bps[1:][keep]
            series.append(Series(name, params.direction, edges_us, rates, where=source.where))
        caveats = ["rates of an application, not of the link"] if params.app_limited else []
        return Imported(series_tables(series), counts, caveats)


def _samples(source: SourceFile) -> tuple[Ints, Floats]:
    """Times (us) and rates (bit/s) of the lines."""
    lines = source.cells(None, [2], "a cooked trace has lines of: time in seconds, a tab, Mbit/s")

    def where(row: int) -> str:
        return source.line(lines[row][0])

    time_s = TIME.read([fields[0] for _, fields in lines], where)
    return microseconds(time_s), RATE.read([fields[1] for _, fields in lines], where) * 1e6
