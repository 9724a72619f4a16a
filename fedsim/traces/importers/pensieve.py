"""Pensieve's "cooked" throughput traces: lines of ``time_s TAB Mbit/s``.

A rate is the mean over the interval that ends at its time. Source: Mao, Netravali, Alizadeh, "Neural Adaptive Video
Streaming with Pensieve", SIGCOMM 2017; many bandwidth collections are published in this form.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedsim.files.cells import TIME_S
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import link, link_tables, microseconds, named_sources


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
        links = []
        for name, source in named_sources(sources, (".txt", ".log", ".csv")):
            file = TableFile(source, header=False)
            if len(file.names) != 2:
                message = f"has {len(file.names)} fields, not 2"
                raise source.error(
                    message, "a cooked trace has lines of: time in seconds, a tab, Mbit/s", line=1
                )
            frame = Frame([file], {"time": "1", "rate": "2"}).load(("time", "rate"))
            time_us = microseconds(frame.number("time", 1.0, TIME_S, "s"))
            rate_bps = frame.number("rate", 1e6, unit="Mbit/s")
            length = np.diff(time_us)
            frame.refuse(
                np.append(False, length < 0),
                "the time is {}, before the one above it",
                "times must not decrease; split the file there",
                "time",
            )
            keep = length > 0
            if not keep.any():
                raise source.error("has no interval between two times")
            counts["first_rates"] += 1
            counts["zero_length"] += int(np.count_nonzero(~keep))
            edges_us = np.append(0, np.cumsum(length[keep]))
            links.append(link(name, params.direction, edges_us, rate_bps[1:][keep], source.where))
        caveats = ["rates of an application, not of the link"] if params.app_limited else []
        return Imported(link_tables(links), counts, caveats)
