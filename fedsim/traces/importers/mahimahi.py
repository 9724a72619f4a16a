"""Mahimahi packet-delivery traces: a line is the millisecond in which one 1,500-byte packet can be delivered.

Source: Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", ATC 2015; Winstein, Sivaraman, Balakrishnan,
"Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks" (Sprout), NSDI 2013.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._numbers import Number
from fedsim.traces.importers._series import Series, named_sources, series_tables
from fedsim.traces.tables import Bounds, Floats, Ints, run_starts
from fedsim.units import DAY_S

PACKET_BITS = 12_000
BPS_PER_PACKET = PACKET_BITS / 0.001
TIME = Number(
    "the time",
    "ms",
    Bounds(0, 100 * 366 * 1000 * DAY_S, words="from 0 to a hundred years"),
    whole=True,
)


class Mahimahi(Importer):
    """One link per pair of ``NAME.down`` and ``NAME.up``, or per single file.

    n opportunities at millisecond t become the rate n x 12 Mbit/s in [t, t + 1) ms; adjacent milliseconds with the same
    rate are one row. The series is thus one millisecond longer than Mahimahi's loop, which restarts at its last
    timestamp.
    """

    name = "mahimahi"
    description = "Mahimahi packet-delivery traces (.down, .up)"
    signature = r"^[^\n]*\.(down|up)\n\s*\d+\s"

    class Params(ImporterParams):
        """Options of the Mahimahi importer."""

        direction: Literal["down", "up"] | None = None
        """Direction of the link; by default that of the file's ending (``.down`` or ``.up``)."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One series per file; the files of a pair belong to one link."""
        counts = {"opportunities": 0, "out_of_order": 0}
        series = []
        for name, source in named_sources(sources):
            ending = next((ending for ending in (".down", ".up") if name.endswith(ending)), "")
            direction = params.direction or ending.removeprefix(".")
            if not direction:
                hint = "end the name in .down or .up, or set direction=down"
                raise source.error("its name does not give the direction", hint)
            time_ms = _times(source)
            counts["opportunities"] += len(time_ms)
            counts["out_of_order"] += int(np.count_nonzero(np.diff(time_ms) < 0))
            edges_us, packets = _pieces(np.sort(time_ms))
            rates = packets * BPS_PER_PACKET
            link = name.removesuffix(ending)
            series.append(Series(link, direction, edges_us, rates, where=source.where))
        return Imported(series_tables(series), counts)


def _times(source: SourceFile) -> Ints:
    """The timestamps (ms), in the order of the file."""
    words = [(line, word) for line, text in source.lines() for word in text.split()]
    if not words:
        raise source.error("is empty")
    times = TIME.read([word for _, word in words], lambda row: source.line(words[row][0]))
    return times.astype(np.int64)


def _pieces(time_ms: Ints) -> tuple[Ints, Floats]:
    """Runs of milliseconds with the same number of packets: edges (us), shape (n + 1,), and that number, shape (n,)."""
    busy, packets = np.unique(time_ms, return_counts=True)
    # Each busy millisecond and the idle time after it, which is empty if the next millisecond is busy too.
    edges = np.append(0, np.column_stack([busy, busy + 1]).ravel())
    number = np.append(0, np.column_stack([packets, np.zeros_like(packets)]).ravel())[:-1]
    keep = np.diff(edges) > 0
    start, number = edges[:-1][keep], number[keep]
    first = run_starts(number)
    edges_us = np.append(start[first], busy[-1] + 1) * 1000
    return edges_us.astype(np.int64), number[first].astype(np.float64)
