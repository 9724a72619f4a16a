"""Mahimahi packet-delivery traces: a line is the millisecond in which one 1,500-byte packet can be delivered.

Source: Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", ATC 2015; Winstein, Sivaraman, Balakrishnan,
"Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks" (Sprout), NSDI 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import bundle
from fedsim.traces.importers._files import SourceFile, source_files
from fedsim.traces.importers._series import Series, require_single, series_names, series_tables

PACKET_BITS = 12_000
BPS_A_PACKET = PACKET_BITS / 0.001
_LONGEST_MS = 100 * 366 * 86_400_000


class MahimahiParams(ImporterParams):
    """Options of the Mahimahi importer."""

    direction: Literal["down", "up"] | None = None
    """Direction of the link; by default what the file's ending says (``.down`` or ``.up``)."""


class Mahimahi(Importer):
    """One link for each pair of ``NAME.down`` and ``NAME.up``, or for each other file.

    n opportunities at millisecond t become the rate n x 12 Mbit/s in [t, t + 1) ms; equal milliseconds are one row. So
    the series is one millisecond longer than Mahimahi's own loop, which starts again at its last timestamp.
    """

    name: ClassVar[str] = "mahimahi"
    description: ClassVar[str] = "Mahimahi packet-delivery traces (.down, .up)"
    Params: ClassVar[type[Parameters]] = MahimahiParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: MahimahiParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        sources = list(source_files(paths))
        names, directions = [], []
        short = series_names([source.name for source in sources], ())
        for source, name in zip(sources, short, strict=True):
            ending = next((e for e in (".down", ".up") if name.endswith(e)), None)
            direction = params.direction or (ending or "").removeprefix(".")
            if not direction:
                raise UserError(
                    "its name does not say which direction it is",
                    where=source.where,
                    hint="end the name in .down or .up, or set direction=down",
                )
            names.append(name.removesuffix(ending or ""))
            directions.append(direction)
        require_single(
            [f"{name}.{direction}" for name, direction in zip(names, directions, strict=True)],
            [source.where for source in sources],
        )
        counts = {"opportunities": 0, "out_of_order": 0}
        series = []
        for name, direction, source in zip(names, directions, sources, strict=True):
            time_ms = _times(source)
            counts["opportunities"] += len(time_ms)
            counts["out_of_order"] += int(np.count_nonzero(np.diff(time_ms) < 0))
            edges_us, packets = _pieces(np.sort(time_ms))
            series.append(Series(name, direction, edges_us, packets * BPS_A_PACKET))
        tables = series_tables(series)
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=int(tables["devices"].column("window_end_us").to_numpy().max()),
            on_end="wrap",
        )


def _times(source: SourceFile) -> npt.NDArray[np.int64]:
    words = source.text().split()
    try:
        times = np.array(list(map(int, words)), np.int64)
        good = (times >= 0) & (times <= _LONGEST_MS)
    except (ValueError, OverflowError):
        good = np.array([word.isascii() and word.isdigit() and len(word) < 15 for word in words])
    if len(words) == 0 or not good.all():
        lines = [
            number for number, text in enumerate(source.text().splitlines(), 1) if text.split()
        ]
        bad = int(np.argmin(good)) if len(words) else 0
        raise UserError(
            f"'{words[bad]}' is not a whole number of milliseconds" if words else "is empty",
            where=source.line(lines[bad]) if len(lines) == len(words) and words else source.where,
            hint="a Mahimahi trace has one number a line",
        )
    return times


def _pieces(
    time_ms: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Runs of milliseconds with the same number of packets: edges (us), shape (n + 1,), and that number, shape (n,)."""
    busy, packets = np.unique(time_ms, return_counts=True)
    # Each busy millisecond and the idle time after it, which is empty where the next millisecond is busy too.
    edges = np.append(0, np.column_stack([busy, busy + 1]).ravel())
    number = np.append(0, np.column_stack([packets, np.zeros_like(packets)]).ravel())[:-1]
    keep = np.diff(edges) > 0
    start, number = edges[:-1][keep], number[keep]
    first = np.append(True, number[1:] != number[:-1])
    edges_us = np.append(start[first], busy[-1] + 1) * 1000
    return edges_us.astype(np.int64), number[first].astype(np.float64)
