"""Writing a comparison: the page, tables in several formats, and the figure."""

from __future__ import annotations

from pathlib import Path

from fedsim.analysis.comparison.figure import FigureStyle
from fedsim.analysis.comparison.latex import latex
from fedsim.analysis.comparison.loading import PAGE
from fedsim.analysis.comparison.page import render
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.pages import write_page
from fedsim.errors import UserError, writing
from fedsim.files.durable import replacing, write_text
from fedsim.runs.tables import csv_text


def write_files(comparison: ComparisonTables, folder: Path, style: FigureStyle) -> Path:
    """Write everything into a folder and return the page's path; an earlier comparison in the folder is replaced.

    Args:
        comparison: the runs.
        folder: where to write.
        style: style of the figure and initial view of the page.

    Raises:
        UserError: no run measured a metric of the figure; or the folder has other files with these names or cannot be
            written to.
    """
    figure_name = "curves" if comparison.metrics else "timing"
    if comparison.metrics or style.metrics:
        style = style.for_metrics(*map(comparison.measured, style.metrics or (None,)))
    page = folder / PAGE
    tables = {"summary": comparison.summary, "targets": comparison.targets}
    names = [f"{name}.{suffix}" for name in tables for suffix in ("csv", "parquet")]
    figures = [f"{figure_name}.{suffix}" for suffix in ("pdf", "svg", "png")]
    names += ["table.tex", *figures]
    if not page.exists() and (taken := [name for name in names if (folder / name).exists()]):
        raise UserError(
            "exists, but the folder contains no fedsim comparison, so it is not overwritten",
            where=str(folder / taken[0]),
            hint="choose another folder with -o, or remove the file",
        )
    # Matplotlib takes a second to import, and nothing else of a comparison needs it.
    from fedsim.analysis.comparison.plots import plot_curves, plot_timing, save_figure

    figure = (plot_curves if comparison.metrics else plot_timing)(comparison, style)
    write_page(page, render(comparison, style))
    with writing(folder):
        for name, frame in tables.items():
            if len(frame):
                write_text(folder / f"{name}.csv", csv_text(frame))
                with replacing(folder / f"{name}.parquet") as temporary:
                    frame.to_parquet(temporary, index=False)
        write_text(folder / "table.tex", latex(comparison))
        for name in figures:
            with replacing(folder / name) as temporary:
                save_figure(figure, temporary, style.venue)
    return page
