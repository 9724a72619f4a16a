"""Export to AVT, the text form of the Repository of Availability Traces (Godfrey)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter
from fedsim.traces.exporters._output import (
    US_PER_S,
    available_rows,
    offsets,
    valid_devices,
    whole_seconds,
    write_file,
)


class AvtExportParams(Parameters):
    """The AVT exporter has no options."""


class AvtExporter(Exporter):
    """One line per valid device, its up-intervals in whole seconds of the bundle's time.

    AVT holds neither windows nor periods: readers take the trace as it stands.
    """

    name: ClassVar[str] = "avt"
    description: ClassVar[str] = "AVT availability traces, one line per node"
    Params: ClassVar[type[Parameters]] = AvtExportParams

    @classmethod
    def write(
        cls, bundle: TraceBundle, path: Path, params: AvtExportParams, *, overwrite: bool = False
    ) -> dict[str, int]:
        """Write the bundle in this format; see :meth:`Exporter.write`."""
        counts: dict[str, int] = {}
        rows = whole_seconds(available_rows(bundle), counts)
        first = offsets(rows.device, bundle.device_count).tolist()
        times = (np.column_stack([rows.start, rows.end]) // US_PER_S).tolist()
        valid = valid_devices(bundle)
        lines = []
        for row, name in enumerate(bundle.device_ids.to_pylist()):
            if not valid[row]:
                continue
            if len(name.split()) != 1 or name.startswith("#"):
                raise UserError(
                    f"the device '{name}' cannot be named in AVT, where spaces separate fields",
                    where=bundle.where,
                    hint="rename the device",
                )
            mine = times[first[row] : first[row + 1]]
            spans = " ".join(f"{start} {end}" for start, end in mine)
            lines.append(f"{name}\t{len(mine)}\t {spans}\n")
        counts["nodes"] = len(lines)
        counts["invalid_devices"] = int(np.count_nonzero(~valid))
        write_file(path, "".join(lines).encode(), overwrite=overwrite)
        return counts
