"""Export to Pensieve's cooked throughput traces (Mao et al., SIGCOMM 2017), one file per series."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter
from fedsim.traces.exporters._links import check_folder, links
from fedsim.traces.exporters._output import write_file


class PensieveExportParams(Parameters):
    """Options of the Pensieve exporter."""

    direction: Literal["down", "up"] = "down"
    """Direction to write; series that hold for both ways belong to either."""


class PensieveExporter(Exporter):
    """A folder with one file per series: ``time_s TAB Mbit/s``, the rate of the interval that ends at the time.

    The first line says when the first interval starts and repeats its rate. Scales and offsets of devices are not
    applied: the series are written, not the devices.
    """

    name: ClassVar[str] = "pensieve"
    description: ClassVar[str] = (
        "Pensieve cooked throughput traces, a folder with one file per series"
    )
    Params: ClassVar[type[Parameters]] = PensieveExportParams

    @classmethod
    def write(
        cls,
        bundle: TraceBundle,
        path: Path,
        params: PensieveExportParams,
        *,
        overwrite: bool = False,
    ) -> dict[str, int]:
        """Write the bundle in this format; see :meth:`Exporter.write`."""
        check_folder(path)
        counts = {"series": 0, "other_direction": 0}
        for link in links(bundle):
            if link.direction not in (params.direction, "both"):
                counts["other_direction"] += 1
                continue
            time_s = (link.edges_us - link.edges_us[0]) / 1e6
            rate = np.append(link.rate_bps[:1], link.rate_bps) / 1e6
            lines = [f"{t!r}\t{r!r}\n" for t, r in zip(time_s.tolist(), rate.tolist(), strict=True)]
            write_file(path / link.file_name, "".join(lines).encode(), overwrite=overwrite)
            counts["series"] += 1
        if not counts["series"]:
            raise UserError(f"has no series for {params.direction}", where=bundle.where)
        return counts
