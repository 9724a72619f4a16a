"""A comparison as a LaTeX table, which needs only the package booktabs.

Numbers are rounded as on the page. Variants are rows, after their setting if there are several.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedsim.analysis.comparison.facts import FIGURES, TIMING
from fedsim.analysis.comparison.headline import rows_in_order, speed_words
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import Target
from fedsim.vocabulary.formatting import (
    ABSENT,
    Kind,
    axis_unit,
    format_decimals,
    format_mean,
    format_mean_count,
    format_number,
)

_SIGNS = str.maketrans({ABSENT: "--", "%": "", "±": r"$\pm$", "×": r"$\times$", "−": "$-$"})
"""Signs of numbers as on the page; the heading of a column states the percent sign."""
_SPECIAL = str.maketrans(
    {
        **{sign: rf"\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "≡": r"$\equiv$",
    }
)


Cells = dict[tuple[str, str], Sequence[str]]
"""A cell per group, by the two lines of a column's heading; neighboring columns may share the first."""


def latex(comparison: ComparisonTables) -> str:
    """A table for a paper: the times to the targets and the final values of the variants.

    If there is one target, it also has the client updates. For timing-only runs, the table has their main figures.

    Final values are those of the targets' metrics, or of all metrics without targets. They are left out if runs stopped
    at their targets, because then they do not rank the variants.
    """
    rows, captions, cells = rows_in_order(comparison), list[str](), Cells()
    for goal in comparison.goals if comparison.metrics else ():
        cells |= _times(comparison, goal)
    if cells:
        captions.append(
            f"Mean time to target, and speed relative to {comparison.baseline} over the seeds with which both reached "
            f"it, each with its {comparison.spread}; a dash if fewer than half of the seeds reached it; [n/m] if only "
            "n of m did, so that the mean is theirs. Client updates: mean number up to the target, and per hour of "
            "that time."
        )
    if comparison.metrics and not comparison.is_stopped:
        captions.append("Final values: mean and standard deviation over seeds.")
        names = comparison.main_metrics if comparison.goals else comparison.metrics
        for metric in map(comparison.definition, names):
            heading = f"{metric.label}{' (%)' if metric.unit == 'share' else ''}"
            cells["final", heading] = _means(rows, f"final_{metric.name}", 1.0, metric.unit)
    for name in () if comparison.metrics else TIMING:
        captions = ["Mean and standard deviation over seeds."]
        label, kind = FIGURES[name]
        scale, unit = (1.0, "%") if kind == "share" else axis_unit(rows[name].median(), kind)
        written: Kind = "share" if kind == "share" else "number"
        cells[label, f"({unit})" if unit else ""] = _means(rows, name, scale, written)
    index = pd.MultiIndex.from_frame(rows[["setting", "label"]], names=[None, None])
    frame = pd.DataFrame(cells, index=index).map(lambda number: number.translate(_SIGNS))
    if len(comparison.grouping.settings) == 1:
        frame = frame.droplevel(0)
    style = frame.style.format_index(_escaped).format_index(_escaped, axis="columns")
    columns = "l" * frame.index.nlevels + "r" * len(cells)
    table = style.to_latex(
        column_format=columns, hrules=True, multirow_align="naive", multicol_align="c"
    )
    return f"% {' '.join(captions)}\n{table}"


def _escaped(name: object) -> str:
    """A name for LaTeX; formulas between dollar signs stay as they are, as in the figure."""
    text = str(name)
    pieces = re.split(r"(\$[^$]*\$)", text)
    escaped = [p if number % 2 else p.translate(_SPECIAL) for number, p in enumerate(pieces)]
    # After the end of a line, a bracket or a star would be an argument of the command.
    return f"{'{}' if text.startswith(('[', '*')) else ''}{''.join(escaped)}"


def _means(rows: pd.DataFrame, name: str, scale: float, kind: Kind) -> list[str]:
    pairs = zip(rows[name] / scale, rows[f"{name}_sd"] / scale, strict=True)
    return [format_mean(*pair, kind) for pair in pairs]


def _times(comparison: ComparisonTables, goal: Target) -> Cells:
    """The times to a target, and the client updates up to it if it is the only one."""
    frame = rows_in_order(comparison)[["setting", "label"]].merge(comparison.standings(goal))
    rows, title = frame.to_dict("records"), comparison.title(goal)
    times_s = comparison.targets["time_s"]
    scale, unit = axis_unit(float(times_s.median()), "time")
    shortest = times_s[times_s > 0].min() / scale
    # The shortest time has three significant digits.
    decimals = max(0, 2 - math.floor(math.log10(shortest))) if shortest > 0 else 0
    cells: Cells = {
        (title, f"time ({unit})"): [_time(comparison, row, scale, decimals) for row in rows]
    }
    speeds = [speed_words(comparison, row) for row in rows]
    if set(speeds) != {ABSENT}:
        cells[title, "speed"] = speeds
    if len(comparison.goals) == 1 and any(math.isfinite(row["client_updates"]) for row in rows):
        updates = [format_mean_count(row["client_updates"]) for row in rows]
        rates = [format_number(row["client_updates_per_h"]) for row in rows]
        cells |= {(title, "client updates"): updates, (title, "updates per hour"): rates}
    return cells


def _time(comparison: ComparisonTables, row: dict[Any, Any], scale: float, decimals: int) -> str:
    """A row of the standings: mean and range or interval, in units of ``scale`` seconds."""
    mean, low, high = (
        format_decimals(row[name] / scale, decimals) for name in ("time_s", "low_s", "high_s")
    )
    if mean == ABSENT:
        return ABSENT
    before = comparison.before(row["reached"])
    notes = [] if low == ABSENT else [f"[{before}{low}, {high}]"]
    if row["reached"] < row["runs"]:
        notes.append(f"[{row['reached']:.0f}/{row['runs']:.0f}]")
    return rf"{mean} {{\scriptsize {' '.join(notes)}}}" if notes else mean
