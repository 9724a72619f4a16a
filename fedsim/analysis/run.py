"""The run of the Python interface: the tables of a run folder, with its report page and its figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedsim.runs import Run as RunTables
from fedsim.runs import RunFolder
from fedsim.vocabulary.formatting import format_count, format_duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Run(RunTables):
    """One run folder. Tables are read on first use and then kept.

    A run that is still in progress, or was killed, has the rows that reached the disk.
    """

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the report page and return its path; in the folder of a complete run, also the facts for comparisons.

        Args:
            path: the file; ``report.html`` in the run folder if None.
        """
        from fedsim.analysis.comparison.facts import keep_facts
        from fedsim.analysis.pages import real_time, write_page
        from fedsim.analysis.report import render

        target = self.folder.report if path is None else Path(path)
        page = render(self)
        write_page(target, real_time(page) if self.info.get("clock") == "wall" else page)
        if path is None:
            keep_facts(self)
        return target

    def plot(self, metric: str | None = None, against: str = "time_s", **style: Any) -> Figure:
        """A Matplotlib figure of a metric of this run.

        Args:
            metric: name of the metric; the first one if None.
            against: the horizontal axis, one of :data:`fedsim.analysis.comparison.facts.COSTS`, such as ``bytes``.
            style: as for :meth:`fedsim.analysis.comparison.Comparison.plot`.
        """
        from fedsim.analysis.comparison import compare

        return compare([self]).plot(metric, against, **style)

    def _repr_html_(self) -> str:
        rows = {
            "status": str(self.status),
            "simulated time": format_duration(self.simulated_s),
            "dispatches": format_count(len(self.dispatches)),
            "server updates": format_count(len(self.aggregations)),
        }
        if len(self.metrics):
            last = self.metrics.iloc[-1]
            for name in self.metrics.columns[3:]:
                metric = self.metric_definition(name)
                rows[metric.label] = metric.format(last[name])
        return str(pd.Series(rows, name=self.name).to_frame().to_html())


def load_run(path: str | os.PathLike[str]) -> Run:
    """Open a run folder."""
    return Run(RunFolder(Path(path)))
