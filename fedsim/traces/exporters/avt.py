"""Export to AVT, the text form of the Repository of Availability Traces (Godfrey)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter, Files, available_rows, offsets, whole_seconds


class AvtExporter(Exporter):
    """One line per valid device with its up intervals, in whole seconds of the bundle's time.

    AVT has neither windows nor periods.
    """

    name = "avt"
    description = "AVT availability traces, one line per node"

    @classmethod
    def files(cls, bundle: TraceBundle, path: Path, params: Any, counts: dict[str, int]) -> Files:
        """One file."""
        rows = whole_seconds(available_rows(bundle), counts)
        first = offsets(rows, bundle.device_count).tolist()
        times = np.column_stack([rows.start, rows.end]).tolist()
        valid = bundle.valid
        lines = []
        for row in np.flatnonzero(valid):
            name = bundle.device_ids[row].as_py()
            if len(name.split()) != 1 or name.startswith("#"):
                raise bundle.error(f"the device '{name}' has spaces, which separate fields in AVT")
            intervals = times[first[row] : first[row + 1]]
            spans = " ".join(f"{start} {end}" for start, end in intervals)
            lines.append(f"{name}\t{len(intervals)}\t {spans}\n")
        counts |= {"nodes": len(lines), "invalid_devices": int(np.count_nonzero(~valid))}
        yield path, "".join(lines)
