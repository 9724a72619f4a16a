"""Export to Mahimahi packet-delivery traces (Netravali et al., ATC 2015), one file per series and direction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter, Files, Link, links
from fedsim.traces.importers.links import PACKET_BITS
from fedsim.traces.tables import Ints


class MahimahiExporter(Exporter):
    """A folder with ``NAME.down`` and ``NAME.up``; a series for both directions is written twice.

    A packet is delivered in the millisecond in which the bits sent since the start reach the next multiple of 12,000.
    A trace must end with a packet: an idle end and an incomplete packet are cut off.
    """

    name = "mahimahi"
    description = "Mahimahi packet-delivery traces, a folder with .down and .up files"

    @classmethod
    def files(cls, bundle: TraceBundle, path: Path, params: Any, counts: dict[str, int]) -> Files:
        """One file per series and direction."""
        counts |= {"files": 0, "opportunities": 0, "idle_end_ms": 0}
        for link in links(bundle):
            packets_ms, length_ms = _opportunities(link)
            if not len(packets_ms):
                raise bundle.error(
                    f"the series '{link.series_id}' carries less than one packet",
                    "Mahimahi needs at least one packet of 1,500 bytes",
                )
            for direction in ("down", "up") if link.direction == "both" else (link.direction,):
                yield (
                    path / f"{link.file_name}.{direction}",
                    "\n".join(map(str, packets_ms.tolist())) + "\n",
                )
                counts["files"] += 1
                counts["opportunities"] += len(packets_ms)
                counts["idle_end_ms"] += length_ms - 1 - int(packets_ms[-1])
        if not counts["files"]:
            raise bundle.error("has no series")


def _opportunities(link: Link) -> tuple[Ints, int]:
    """Milliseconds of the packets, ascending, and the length of the series in milliseconds."""
    edges_us = link.edges_us
    sent = np.append(0.0, np.cumsum(link.rate_bps * np.diff(edges_us) / 1e6))
    length_ms = -(-int(edges_us[-1]) // 1000)
    ends_us = np.minimum(np.arange(1, length_ms + 1) * 1000, edges_us[-1])
    # Sums of many rates have rounding errors: a packet that lacks no more than these is complete.
    packets = np.floor(np.interp(ends_us, edges_us, sent) / PACKET_BITS * (1 + 1e-12) + 1e-6)
    number = np.diff(np.append(0, packets)).astype(np.int64)
    return np.repeat(np.arange(length_ms, dtype=np.int64), number), length_ms
