"""Mahimahi packet-delivery traces: a line is the millisecond in which one 1,500-byte packet can be delivered.

Source: Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", ATC 2015; Winstein, Sivaraman, Balakrishnan,
"Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks" (Sprout), NSDI 2013.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedsim.files.cells import Bounds, Floats, Ints
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import link, link_tables, named_sources
from fedsim.traces.tables import run_starts
from fedsim.units import DAY_S

PACKET_BITS = 12_000
BPS_PER_PACKET = PACKET_BITS / 0.001
_TIMES = Bounds(0, 100 * 366 * 1000 * DAY_S, words="from 0 to a hundred years")


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
        links = []
        for name, source in named_sources(sources):
            ending = next((ending for ending in (".down", ".up") if name.endswith(ending)), "")
            direction = params.direction or ending.removeprefix(".")
            if not direction:
                hint = "end the name in .down or .up, or set direction=down"
                raise source.error("its name does not give the direction", hint)
            frame = Frame([TableFile(source, header=False)], {"the time": "1"}).load(["the time"])
            time_ms = frame.number("the time", 1.0, _TIMES, "ms")
            frame.refuse(
                time_ms % 1 != 0, "the time is {}", "it must be a whole number of ms", "the time"
            )
            counts["opportunities"] += len(time_ms)
            counts["out_of_order"] += int(np.count_nonzero(np.diff(time_ms) < 0))
            edges_us, packets = _pieces(np.sort(time_ms.astype(np.int64)))
            links.append(
                link(
                    name.removesuffix(ending),
                    direction,
                    edges_us,
                    packets * BPS_PER_PACKET,
                    source.where,
                )
            )
        return Imported(link_tables(links), counts)


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
