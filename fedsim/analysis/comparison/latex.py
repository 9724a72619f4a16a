"""A comparison as a LaTeX table, which needs only the package booktabs.

Numbers are rounded as on the page. Variants are rows, after their setting if there are several.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedsim.analysis.comparison.facts import TIMING
from fedsim.analysis.comparison.headline import rows_in_order
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
    format_ratio,
)

_ABSENT = "--"
_SIGNS = {ABSENT: _ABSENT, "%": "", "±": r"$\pm$", "×": r"$\times$", "−": "$-$"}
_SPECIAL = str.maketrans(
    {
        **{sign: rf"\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
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
    if not comparison.metrics:
        captions, cells = ["Mean and standard deviation over seeds."], _timing(comparison)
        return _tabular(comparison, cells, captions)
    captions, cells = [], {}
    if comparison.goals:
        captions.append(_caption_of_times(comparison))
        for goal in comparison.goals:
            cells |= _times(comparison, goal)
    if not comparison.is_stopped:
        captions.append("Final values: mean and standard deviation over seeds.")
        cells |= _finals(comparison)
    return _tabular(comparison, cells, captions)


def _tabular(comparison: ComparisonTables, cells: Cells, captions: list[str]) -> str:
    """The table, with its captions as a comment."""
    index = pd.MultiIndex.from_frame(
        rows_in_order(comparison)[["setting", "label"]], names=[None, None]
    )
    frame = pd.DataFrame(cells, index=index)
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


def _in_latex(text: str) -> str:
    """A number as on the page, in LaTeX; the heading of its column states the percent sign."""
    for sign, command in _SIGNS.items():
        text = text.replace(sign, command)
    return text


def _times(comparison: ComparisonTables, goal: Target) -> Cells:
    """The times to a target, and the client updates up to it if it is the only one."""
    frame = rows_in_order(comparison)[["setting", "label"]].merge(comparison.standings(goal))
    rows, title = frame.to_dict("records"), comparison.title(goal)
    scale, unit = axis_unit(float(comparison.targets["time_s"].median()), "time")
    decimals = _decimals(comparison.targets["time_s"] / scale)
    cells: Cells = {(title, f"time ({unit})"): [_time(row, scale, decimals) for row in rows]}
    speeds = [_in_latex(format_ratio(row["speed"])) for row in rows]
    if set(speeds) != {_ABSENT}:
        cells[title, "speed"] = speeds
    if len(comparison.goals) == 1 and any(math.isfinite(row["client_updates"]) for row in rows):
        updates = [_in_latex(format_mean_count(row["client_updates"])) for row in rows]
        rates = [_in_latex(format_number(row["client_updates_per_h"])) for row in rows]
        cells |= {(title, "client updates"): updates, (title, "updates per hour"): rates}
    return cells


def _decimals(times: pd.Series[float]) -> int:
    """The number of decimals with which the shortest time has three significant digits."""
    positive = times[times > 0]
    return max(0, 2 - math.floor(math.log10(positive.min()))) if len(positive) else 0


def _time(row: dict[Any, Any], scale: float, decimals: int) -> str:
    """A row of the standings: mean and range or interval, in units of ``scale`` seconds."""
    mean, low, high = (
        format_decimals(row[name] / scale, decimals) for name in ("time_s", "low_s", "high_s")
    )
    if mean == ABSENT:
        return _ABSENT
    notes = [] if low == ABSENT else [f"[{low}, {high}]"]
    if row["reached"] < row["runs"]:
        notes.append(f"[{row['reached']:.0f}/{row['runs']:.0f}]")
    return rf"{mean} {{\scriptsize {' '.join(notes)}}}" if notes else mean


def _finals(comparison: ComparisonTables) -> Cells:
    """Means and standard deviations of the last values."""
    names = comparison.main_metrics if comparison.goals else comparison.metrics
    cells: Cells = {}
    for metric in map(comparison.definition, names):
        rows = rows_in_order(comparison)
        means, spreads = (rows[f"final_{metric.name}{end}"] for end in ("", "_sd"))
        heading = f"{metric.label}{' (%)' if metric.unit == 'share' else ''}"
        cells["final", heading] = [
            _in_latex(format_mean(mean, spread, metric.unit))
            for mean, spread in zip(means, spreads, strict=True)
        ]
    return cells


def _timing(comparison: ComparisonTables) -> Cells:
    """The main figures of timing-only runs."""
    frame, cells = rows_in_order(comparison), Cells()
    for name, (label, kind) in TIMING.items():
        scale, unit = (1.0, "%") if kind == "share" else axis_unit(frame[name].median(), kind)
        pairs = zip(frame[name] / scale, frame[f"{name}_sd"] / scale, strict=True)
        written: Kind = "share" if kind == "share" else "number"
        texts = [_in_latex(format_mean(*pair, written)) for pair in pairs]
        cells[label, f"({unit})" if unit else ""] = texts
    return cells


def _caption_of_times(comparison: ComparisonTables) -> str:
    has_ends = any(comparison.standings(goal)["low_s"].notna().any() for goal in comparison.goals)
    spread = "range" if comparison.is_few else "95% bootstrap interval"
    interval = f" with its {spread}" if has_ends else ""
    means = comparison.targets[comparison.targets["time_s"].notna()]
    some = (
        "; [n/m] if only n of m seeds did, so that the mean is theirs"
        if (means["reached"] < means["runs"]).any()
        else ""
    )
    updates = (
        " Client updates: mean number up to the target, and that number per hour of the mean time."
        if len(comparison.goals) == 1 and comparison.targets["client_updates"].notna().any()
        else ""
    )
    return (
        f"Mean time to target over seeds{interval}, and speed relative to {comparison.baseline} over the seeds with"
        f" which both reached it; a dash if fewer than half of the seeds reached it{some}.{updates}"
    )
