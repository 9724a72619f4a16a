"""A comparison as a LaTeX table, which needs only the package booktabs.

Numbers are rounded as on the page. Variants are rows, grouped by setting; headings have at most two lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from fedsim.analysis.comparison.facts import TIMING
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


class _Column(NamedTuple):
    """A column: the second line of its heading, and a cell per group."""

    heading: str
    cells: Sequence[str]


class _Columns(NamedTuple):
    """Neighboring columns with a common first line of their headings."""

    heading: str
    columns: Sequence[_Column]


def latex(comparison: ComparisonTables) -> str:
    """A table for a paper: the times to the targets and the final values of the variants.

    If there is one target, it also has the client updates. For timing-only runs, the table has their main figures.

    Final values are those of the targets' metrics, or of all metrics without targets. They are left out if runs stopped
    at their targets, because then they do not rank the variants.
    """
    if not comparison.metrics:
        return _tabular(
            comparison, _timing(comparison), ["Mean and standard deviation over seeds."]
        )
    captions, parts = [], []
    if comparison.goals:
        captions.append(_caption_of_times(comparison))
        parts += [_times(comparison, goal) for goal in comparison.goals]
    if not any(run.stopped_at for run in comparison.facts):
        captions.append("Final values: mean and standard deviation over seeds.")
        parts.append(_finals(comparison))
    return _tabular(comparison, parts, captions)


def _tabular(comparison: ComparisonTables, parts: Sequence[_Columns], captions: list[str]) -> str:
    """The table, with its captions as a comment."""
    columns = [column for part in parts for column in part.columns]
    width = 1 + len(columns)
    first, rules, begin = [""], [], 2
    for part in parts:
        span, heading = len(part.columns), _escaped(part.heading)
        first.append(rf"\multicolumn{{{span}}}{{c}}{{{heading}}}" if span > 1 else heading)
        if span > 1:
            rules.append(rf"\cmidrule(lr){{{begin}-{begin + span - 1}}}")
        begin += span
    second = ["", *(_escaped(column.heading) for column in columns)]
    lines = [rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule"]
    lines += [_row(first), *filter(None, [" ".join(rules)]), _row(second)]
    setting = None
    for number, group in enumerate(comparison.groups):
        if group.setting != setting:
            setting = group.setting
            lines.append(r"\midrule")
            if setting:
                name = rf"\textit{{{_escaped(setting)}}}"
                lines.append(_row([rf"\multicolumn{{{width}}}{{l}}{{{name}}}"]))
        lines.append(_row([_escaped(group.label), *(column.cells[number] for column in columns)]))
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join([f"% {' '.join(captions)}", *lines])


def _row(cells: Sequence[str]) -> str:
    text = " & ".join(cells)
    # After the end of a line, a bracket or a star would be an argument of the command.
    return rf"{'{}' if text.startswith(('[', '*')) else ''}{text} \\"


def _escaped(text: str) -> str:
    """Text for LaTeX; formulas between dollar signs stay as they are, as in the figure."""
    pieces = re.split(r"(\$[^$]*\$)", text)
    return "".join(
        piece if number % 2 else piece.translate(_SPECIAL) for number, piece in enumerate(pieces)
    )


def _in_latex(text: str) -> str:
    """A number as on the page, in LaTeX; the heading of its column states the percent sign."""
    for sign, command in _SIGNS.items():
        text = text.replace(sign, command)
    return text


def _times(comparison: ComparisonTables, goal: Target) -> _Columns:
    """The times to a target, and the client updates up to it if it is the only one."""
    rows = comparison.targets_of(goal).to_dict("records")
    scale, unit = axis_unit(float(comparison.targets["time_s"].median()), "time")
    decimals = _decimals(comparison.targets["time_s"] / scale)
    columns = [_Column(f"time ({unit})", [_time(row, scale, decimals) for row in rows])]
    relative = [_in_latex(format_ratio(row["relative"])) for row in rows]
    if set(relative) != {_ABSENT}:
        columns.append(_Column("relative", relative))
    if len(comparison.goals) == 1 and any(math.isfinite(row["client_updates"]) for row in rows):
        for heading, name, written in (
            ("client updates", "client_updates", format_mean_count),
            ("updates per hour", "client_updates_per_h", format_number),
        ):
            columns.append(_Column(heading, [_in_latex(written(row[name])) for row in rows]))
    return _Columns(comparison.title(goal), columns)


def _decimals(times: pd.Series[float]) -> int:
    """The number of decimals with which the shortest time has three significant digits."""
    positive = times[times > 0]
    return max(0, 2 - math.floor(math.log10(positive.min()))) if len(positive) else 0


def _time(row: dict[Any, Any], scale: float, decimals: int) -> str:
    """A row of the targets: mean and interval, in units of ``scale`` seconds."""
    mean, low, high = (
        format_decimals(row[name] / scale, decimals)
        for name in ("time_s", "time_low_s", "time_high_s")
    )
    if mean == ABSENT:
        return _ABSENT
    notes = [] if low == ABSENT else [f"[{low}, {high}]"]
    if row["reached"] < row["runs"]:
        notes.append(f"[{row['reached']:.0f}/{row['runs']:.0f}]")
    return rf"{mean} {{\scriptsize {' '.join(notes)}}}" if notes else mean


def _finals(comparison: ComparisonTables) -> _Columns:
    """Means and standard deviations of the last values."""
    names = comparison.main_metrics if comparison.goals else comparison.metrics
    columns = []
    for metric in map(comparison.definition, names):
        ends = (comparison.summary[f"final_{metric.name}{suffix}"] for suffix in ("", "_sd"))
        heading = f"{metric.label}{' (%)' if metric.unit == 'share' else ''}"
        pairs = zip(*ends, strict=True)
        cells = [_in_latex(format_mean(mean, spread, metric.unit)) for mean, spread in pairs]
        columns.append(_Column(heading, cells))
    return _Columns("final", columns)


def _timing(comparison: ComparisonTables) -> list[_Columns]:
    """The main figures of timing-only runs."""
    frame = comparison.summary
    parts = []
    for name, (label, kind) in TIMING.items():
        scale, unit = (1.0, "%") if kind == "share" else axis_unit(frame[name].median(), kind)
        pairs = zip(frame[name] / scale, frame[f"{name}_sd"] / scale, strict=True)
        written: Kind = "share" if kind == "share" else "number"
        cells = [_in_latex(format_mean(*pair, written)) for pair in pairs]
        words = [*label.split(), *([f"({unit})"] if unit else [])]
        lines = [(" ".join(words[:end]), " ".join(words[end:])) for end in range(1, len(words))]
        first, second = min(lines, key=lambda pair: max(map(len, pair)))
        parts.append(_Columns(first, [_Column(second, cells)]))
    return parts


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
        if len(comparison.goals) == 1 and comparison.targets["client_updates"].notna().any()
        else ""
    )
    return (
        f"Mean time to target over seeds{interval}, and relative to {comparison.baseline} over the seeds with which"
        f" both reached it; a dash if fewer than half of the seeds reached it{some}.{updates}"
    )
