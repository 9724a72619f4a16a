"""Writing a comparison: the page, tables for people, programs and papers, and the figure."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from fedsim.analysis.comparison.comparison import Comparison
from fedsim.analysis.comparison.page import render
from fedsim.analysis.comparison.targets import Target
from fedsim.analysis.pages import write_page
from fedsim.analysis.text import is_share, metric_label
from fedsim.errors import UserError
from fedsim.runs.folder import write_atomically

PAGE = "compare.html"
_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SPECIAL = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"}
_SPECIAL |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
_SPECIAL |= {"…": r"\ldots{}", "µ": r"$\mu$"}


def write_files(comparison: Comparison, folder: Path) -> Path:
    """Write everything into a folder; files of these names that are there are replaced.

    Returns:
        The page.

    Raises:
        UserError: the folder cannot be written.
    """
    page = folder / PAGE
    write_page(page, render(comparison))
    try:
        for name, frame in (("summary", comparison.summary), ("targets", comparison.targets)):
            if len(frame):
                write_atomically(folder / f"{name}.csv", frame.to_csv(index=False))
                frame.to_parquet(folder / f"{name}.parquet", index=False)
        write_atomically(folder / "table.tex", latex(comparison))
        if comparison.metrics:
            from fedsim.analysis.comparison.plots import save_figure

            figure = comparison.plot()
            for kind in ("pdf", "svg"):
                save_figure(figure, folder / f"curves.{kind}")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(folder)) from error
    return page


def latex(comparison: Comparison) -> str:
    """A table for a paper (package booktabs): variants by settings and targets, or final metrics without targets."""
    settings = comparison.grouping.settings
    labels = list(dict.fromkeys(group.label for group in comparison.groups))
    if comparison.goals:
        columns = [(s, goal) for s in settings for goal in comparison.goals]
        unit, scale = _unit(comparison.targets["time_s"])
        head = [f"{_escaped(goal.title)} ({unit})" for _, goal in columns]
        cells = {
            (label, number): _time(comparison.targets, setting, label, goal, scale)
            for label in labels
            for number, (setting, goal) in enumerate(columns)
        }
        spans = len(comparison.goals)
        caption = (
            f"Mean time to target over seeds with its 95\\% bootstrap interval, and relative to "
            f"{_escaped(comparison.baseline)}; a dash where fewer than half of the seeds reached it."
        )
    else:
        names = list(comparison.metrics)
        head = [_escaped(metric_label(name)) for _ in settings for name in names]
        cells = {
            (label, place * len(names) + number): _final(comparison.summary, setting, label, name)
            for label in labels
            for place, setting in enumerate(settings)
            for number, name in enumerate(names)
        }
        spans = len(names)
        caption = "Final values, mean and standard deviation over seeds."
    lines = [f"% {caption}", rf"\begin{{tabular}}{{l{'r' * len(head)}}}", r"\toprule"]
    if len(settings) > 1 and spans:
        titles = [rf"\multicolumn{{{spans}}}{{c}}{{{_escaped(setting)}}}" for setting in settings]
        lines.append(" & ".join(["", *titles]) + r" \\")
    lines += [" & ".join(["", *head]) + r" \\", r"\midrule"]
    for label in labels:
        row = [cells[label, number] for number in range(len(head))]
        lines.append(" & ".join([_escaped(label), *row]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _unit(times: pd.Series[float]) -> tuple[str, float]:
    middle = float(times.median())
    for scale, unit in _UNITS:
        if math.isfinite(middle) and middle >= 2 * scale:
            return unit, scale
    return "s", 1.0


def _time(frame: pd.DataFrame, setting: str, label: str, goal: Target, scale: float) -> str:
    here = (frame["setting"] == setting) & (frame["label"] == label)
    rows = frame[here & (frame["metric"] == goal.metric) & (frame["target"] == goal.value)]
    if not len(rows) or not math.isfinite(rows.iloc[0]["time_s"]):
        return "--"
    row = rows.iloc[0]
    text = f"{row['time_s'] / scale:.2f}"
    if math.isfinite(row["time_low_s"]):
        text += f" [{row['time_low_s'] / scale:.2f}, {row['time_high_s'] / scale:.2f}]"
    if math.isfinite(row["relative"]):
        text += rf" ({row['relative']:.2f}$\times$)"
    return text


def _final(frame: pd.DataFrame, setting: str, label: str, metric: str) -> str:
    rows = frame[(frame["setting"] == setting) & (frame["label"] == label)]
    if not len(rows) or not math.isfinite(rows.iloc[0][f"final_{metric}"]):
        return "--"
    factor, digits = (100, 2) if is_share(metric) else (1, 4)
    mean, spread = (rows.iloc[0][f"final_{metric}{end}"] * factor for end in ("", "_sd"))
    return f"{mean:.{digits}f}" + (rf" $\pm$ {spread:.{digits}f}" if math.isfinite(spread) else "")


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)
