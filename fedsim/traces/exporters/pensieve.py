"""Export to Pensieve's cooked throughput traces (Mao et al., SIGCOMM 2017), one file per series."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from fedsim.parts.component import Parameters
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter, Files, links


class PensieveExporter(Exporter):
    """A folder with one file per series: ``time_s TAB Mbit/s``, the rate of the interval that ends at that time.

    The first line gives the start of the first interval and repeats its rate. Scales and offsets of devices are not
    applied, because series are written, not devices.
    """

    name = "pensieve"
    description = "Pensieve cooked throughput traces, a folder with one file per series"

    class Params(Parameters):
        """Options of the Pensieve exporter."""

        direction: Literal["down", "up"] = "down"
        """Direction to write; series for both directions are always written."""

    @classmethod
    def files(
        cls, bundle: TraceBundle, path: Path, params: Params, counts: dict[str, int]
    ) -> Files:
        """One file per series of the direction."""
        counts |= {"series": 0, "other_direction": 0}
        for link in links(bundle):
            if link.direction not in (params.direction, "both"):
                counts["other_direction"] += 1
                continue
            time_s = link.edges_us / 1e6
            rate = np.append(link.rate_bps[:1], link.rate_bps) / 1e6
            lines = [f"{t!r}\t{r!r}\n" for t, r in zip(time_s.tolist(), rate.tolist(), strict=True)]
            yield path / link.file_name, "".join(lines)
            counts["series"] += 1
        if not counts["series"]:
            raise bundle.error(f"has no series for {params.direction}")
