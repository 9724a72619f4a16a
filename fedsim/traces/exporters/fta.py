"""Export to an ``event_trace`` table of the Failure Trace Archive (Kondo et al., CCGrid 2010)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np

from fedsim.parts.component import Parameters
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter, Files
from fedsim.traces.importers.fta import COLUMNS
from fedsim.traces.tables import Bools, Ints
from fedsim.units import US_PER_S


class FtaExporter(Exporter):
    """All rows of both states in epoch seconds, to the microsecond; component ids equal the node ids.

    If a bundle has available intervals only, the gaps inside each device's window become unavailable rows. Time 0 is
    the bundle's epoch, read as UTC, or 1970 if it has none. Invalid devices are left out.
    """

    name = "fta"
    description = "Failure Trace Archive event_trace table"

    class Params(Parameters):
        """Options of the FTA exporter."""

        available_type: Literal[0, 1] = 1
        """The ``event_type`` that means available; the other means unavailable."""

    @classmethod
    def files(
        cls, bundle: TraceBundle, path: Path, params: Params, counts: dict[str, int]
    ) -> Files:
        """One file."""
        device = bundle.device_rows("availability")
        start = bundle.numpy("availability", "start_us")
        end = bundle.numpy("availability", "end_us")
        reason = bundle.texts("availability", "end_reason").tolist()
        state = np.ones(len(device), np.int64)
        if bundle.has("availability", "state"):
            state = bundle.numpy("availability", "state").astype(np.int64)
        valid = bundle.valid
        gaps = 0
        if not (state == 0).any():
            between = _gaps(bundle, device, start, end, valid)
            gaps = len(between[0])
            device, start, end = map(np.append, (device, start, end), between)
            state = np.append(state, np.zeros(gaps, np.int64))
            reason += [None] * gaps
        order = np.lexsort((start, device))
        order = order[valid[device[order]]]

        epoch = bundle.epoch or datetime(1970, 1, 1)
        epoch = epoch if epoch.tzinfo else epoch.replace(tzinfo=UTC)
        epoch_us = round(epoch.timestamp()) * US_PER_S
        names = bundle.device_ids.to_pylist()
        bare = [name.rpartition("/")[2] for name in names]
        nodes = bare if all(name.isdigit() for name in bare) else list(map(str, range(len(names))))
        source_ids = bundle.texts("devices", "source_id")
        labels = [label or name for label, name in zip(source_ids, names, strict=True)]
        platforms = [platform or "1" for platform in bundle.texts("devices", "group")]
        types = (str(1 - params.available_type), str(params.available_type))
        lines = ["# " + "\t".join(COLUMNS)]
        for number, row in enumerate(order.tolist()):
            owner = int(device[row])
            node, when = nodes[owner], (int(start[row]) + epoch_us, int(end[row]) + epoch_us)
            fields = (
                *(str(number), node, node, platforms[owner], labels[owner], types[int(state[row])]),
                *map(_seconds, when),
                reason[row] or "NULL",
            )
            lines.append("\t".join(fields))
        counts |= {
            "gaps_written": gaps,
            "events": len(order),
            "invalid_devices": int(np.count_nonzero(~valid)),
        }
        yield path, "\n".join(lines) + "\n"


def _gaps(
    bundle: TraceBundle, device: Ints, start: Ints, end: Ints, valid: Bools
) -> tuple[Ints, Ints, Ints]:
    """Gaps in the windows of valid devices: device row, start and end (us) of each part that no interval covers."""
    rows = np.flatnonzero(valid)
    low, high = (edge[rows] for edge in bundle.windows)
    # With the window's edges as empty intervals, every gap lies between two neighbors.
    device, start, end = (
        np.concatenate(parts)
        for parts in ((device, rows, rows), (start, low, high), (end, low, high))
    )
    order = np.lexsort((end, start, device))
    device, start, end = device[order], start[order], end[order]
    gap = (device[1:] == device[:-1]) & (start[1:] > end[:-1])
    return device[1:][gap], end[:-1][gap], start[1:][gap]


def _seconds(time_us: int) -> str:
    whole, rest_us = divmod(time_us, US_PER_S)
    return f"{whole}.{rest_us // 1000:03d}" if rest_us % 1000 == 0 else f"{whole}.{rest_us:06d}"
