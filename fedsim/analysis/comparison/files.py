"""Writing a comparison: the page, tables in several formats, and the figure."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pandas as pd

from fedsim.analysis.comparison.facts import TIMING
from fedsim.analysis.comparison.figure import FigureStyle
from fedsim.analysis.comparison.loading import PAGE
from fedsim.analysis.comparison.page import render
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.pages import write_page
from fedsim.durable import replacing, write_text
from fedsim.errors import UserError, writing
from fedsim.formatting import (
    ABSENT,
    Kind,
    axis_unit,
    format_decimals,
    format_mean,
    format_mean_count,
    format_number,
    format_ratio,
)
from fedsim.runs.tables import csv_text

_ABSENT = "--"


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


def latex(comparison: ComparisonTables) -> str:
    """A table for a paper (package booktabs): variants by settings, with their times to the targets and final values.

    For timing-only runs, one row per setting and variant.

    Final values are those of the targets' metrics, or of all metrics without targets. They are left out if runs stopped
    at their targets, because then they do not rank the variants.
    """
    if not comparison.metrics:
        return _latex_of_timing(comparison)
    settings = comparison.grouping.settings
    labels = list(dict.fromkeys(group.label for group in comparison.groups))
    captions, columns = [], []
    if comparison.goals:
        captions.append(_caption_of_times(comparison))
        unit = axis_unit(float(comparison.targets["time_s"].median()), "time")
        for goal in comparison.goals:
            frame = comparison.targets_of(goal)
            head = f"{comparison.title(goal)} ({unit[1]})"
            columns.append((head, frame, frame.apply(_time, axis=1, scale=unit[0])))
            if frame["client_updates"].notna().any():
                head = f"client updates to {comparison.phrase(goal)} (per h)"
                columns.append((head, frame, frame.apply(_updates, axis=1)))
    if not any(run.stopped_at for run in comparison.facts):
        captions.append("Final values: mean and standard deviation over seeds.")
        frame = comparison.summary
        names = comparison.main_metrics if comparison.goals else comparison.metrics
        for metric in map(comparison.definition, names):
            head = f"final {metric.label}{' (%)' if metric.unit == 'share' else ''}"
            texts = frame.apply(_final, axis=1, name=metric.name, kind=metric.unit)
            columns.append((head, frame, texts))
    table = pd.DataFrame(index=labels)
    for setting, (head, frame, texts) in itertools.product(settings, columns):
        rows = frame["setting"] == setting
        column: Any = (setting, head) if len(settings) > 1 else head
        by_label = pd.Series(texts[rows].to_numpy(), index=frame["label"][rows], dtype=object)
        table[column] = by_label.reindex(labels).fillna(_ABSENT)
    if len(settings) > 1 and columns:
        heads = [head for head, _, _ in columns]
        table.columns = pd.MultiIndex.from_product([settings, heads])
    return _latex(table, captions, "l")


def _latex_of_timing(comparison: ComparisonTables) -> str:
    """The main figures of timing-only runs: one row per setting and variant."""
    frame = comparison.summary
    several = len(comparison.grouping.settings) > 1
    index = ["setting", "label"] if several else ["label"]
    table = frame[index].set_index(index)
    table.index.names = [None] * len(index)
    for name, (label, kind) in TIMING.items():
        scale, unit = (1.0, "%") if kind == "share" else axis_unit(frame[name].median(), kind)
        pairs = zip(frame[name] / scale, frame[f"{name}_sd"] / scale, strict=True)
        head = f"{label} ({unit})" if unit else label
        written: Kind = "share" if kind == "share" else "number"
        table[head] = [_in_latex(format_mean(*pair, written)) for pair in pairs]
    return _latex(table, ["Mean and standard deviation over seeds."], "l" * len(index))


def _in_latex(text: str) -> str:
    """A number as on the page, in LaTeX; the heading of its column states the percent sign."""
    for sign, command in {
        ABSENT: _ABSENT,
        "%": "",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
    }.items():
        text = text.replace(sign, command)
    return text


def _latex(table: pd.DataFrame, captions: list[str], names: str) -> str:
    """A table with its captions as a comment; ``names`` aligns the columns before the numbers."""
    # Formulas between dollar signs stay as they are, as in the figure.
    styler = table.style.format_index(escape="latex-math")
    styler = styler.format_index(escape="latex-math", axis=1)
    text: str = styler.to_latex(
        hrules=True,
        multicol_align="c",
        sparse_index=False,
        column_format=names + "r" * table.shape[1],
    )
    return f"% {' '.join(captions)}\n{text}"


def _caption_of_times(comparison: ComparisonTables) -> str:
    has_intervals = comparison.targets["time_low_s"].notna().any()
    interval = " with its 95% bootstrap interval" if has_intervals else ""
    means = comparison.targets[comparison.targets["time_s"].notna()]
    some = (
        "; [n/m] if only n of m seeds did, so that the mean is theirs"
        if (means["reached"] < means["runs"]).any()
        else ""
    )
    updates = (
        " Client updates: mean number up to the target, and that number per hour of the mean time."
        if comparison.targets["client_updates"].notna().any()
        else ""
    )
    return (
        f"Mean time to target over seeds{interval}, and relative to {comparison.baseline} over the seeds with which"
        f" both reached it; a dash if fewer than half of the seeds reached it{some}.{updates}"
    )


def _time(row: pd.Series[Any], scale: float) -> str:
    """A row of the targets: mean, interval and ratio, in units of ``scale`` seconds."""
    if not math.isfinite(row["time_s"]):
        return _ABSENT
    mean, low, high = (
        format_decimals(row[name] / scale, 2) for name in ("time_s", "time_low_s", "time_high_s")
    )
    text = mean if low == ABSENT else f"{mean} [{low}, {high}]"
    if math.isfinite(row["relative"]):
        text += f" ({_in_latex(format_ratio(row['relative']))})"
    if row["reached"] < row["runs"]:
        text += f" {{[{row['reached']:.0f}/{row['runs']:.0f}]}}"
    return text


def _updates(row: pd.Series[Any]) -> str:
    """A row of the targets: client updates up to the target, and per hour."""
    if not math.isfinite(row["client_updates"]):
        return _ABSENT
    number, rate = (
        format_mean_count(row["client_updates"]),
        format_number(row["client_updates_per_h"]),
    )
    return f"{number} ({rate})"


def _final(row: pd.Series[Any], name: str, kind: Kind) -> str:
    """A row of the summary: mean and standard deviation of a metric's last values; of shares in percent."""
    return _in_latex(format_mean(row[f"final_{name}"], row[f"final_{name}_sd"], kind))
