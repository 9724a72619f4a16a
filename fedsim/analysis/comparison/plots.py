"""Matplotlib figures for papers: lines differ in color, dash and marker, as on the page."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fedsim.analysis.comparison.facts import COSTS
from fedsim.analysis.comparison.figure import FigureStyle, ResolvedStyle
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.palette import Look, looks
from fedsim.formatting import axis_unit

_BANDS_UP_TO = 5
"""More bands than this hide each other."""
_PANEL_INCHES = (3.4, 2.6)
_COLUMNS = 3
# Text stays text, and the same figure gives the same file.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "fedsim", "pdf.fonttype": 42, "font.size": 8}


def plot_curves(comparison: ComparisonTables, style: FigureStyle) -> Figure:
    """Means of metrics against time or cost, with a band if there are few variants.

    One panel per setting; with several metrics, one row of panels per metric.
    """
    settings, metrics = comparison.grouping.settings, style.metrics
    columns = len(settings) if len(metrics) > 1 else min(_COLUMNS, len(settings))
    rows = len(metrics) if len(metrics) > 1 else math.ceil(len(settings) / columns)
    # Several metrics of one setting stand side by side where the figure is wide enough.
    size = style.resolved(comparison.definition(metrics[0]).unit)
    if len(settings) == 1 and (size.width is None or size.width >= 2.2 * len(metrics)):
        rows, columns = 1, len(metrics)
    width = size.width or _PANEL_INCHES[0] * columns
    height = size.height or (width / columns) * _PANEL_INCHES[1] / _PANEL_INCHES[0] * rows + 0.4
    with matplotlib.rc_context(_settings(size)):
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=len(metrics) == 1).flat
        variants = looks(group.label for group in comparison.groups)
        for cell, axes in itertools.zip_longest(itertools.product(metrics, settings), panels):
            if cell is None:
                axes.set_visible(False)
                continue
            metric, setting = cell
            _panel(comparison, axes, style, metric, setting, variants)
        handles, names = figure.axes[0].get_legend_handles_labels()
        if len(handles) > 4 or size.inset is not None or len(figure.axes) > 1:
            figure.legend(
                handles,
                names,
                loc="outside lower center",
                ncols=max(1, int(width / 1.6)),
                frameon=False,
            )
        else:
            figure.axes[0].legend(frameon=False)
    return figure


def _settings(size: ResolvedStyle) -> dict[str, Any]:
    if size.venue is None:
        return _SETTINGS
    from matplotlib.font_manager import fontManager

    # Matplotlib warns of every font that is not installed.
    installed = set(fontManager.get_font_names())
    serif = size.venue.fonts[-1] == "STIXGeneral"
    return _SETTINGS | {
        "font.family": [font for font in size.venue.fonts if font in installed],
        "font.size": size.venue.size,
        "mathtext.fontset": "stix" if serif else "dejavusans",
    }


def _panel(
    comparison: ComparisonTables,
    axes: Any,
    style: FigureStyle,
    metric: str,
    setting: str,
    variants: dict[str, Look],
) -> None:
    definition = comparison.definition(metric)
    size = style.resolved(definition.unit)
    frame = comparison.curves(metric, style.against)
    share = 100.0 if definition.unit == "share" and style.log != "logit" else 1.0
    cost, kind = COSTS[style.against]
    end = float(frame["x"].max()) if size.xlim[1] is None else size.xlim[1]
    scale, unit = axis_unit(end, kind)
    frame = frame[frame["setting"] == setting]

    def draw(target: Any) -> None:
        for label, rows in frame.groupby("label", sort=False):
            bands = len(variants) <= _BANDS_UP_TO
            _draw(target, rows, str(label), variants[str(label)], scale, share, bands=bands)
        _scales(target, style, percent=definition.unit == "share")

    draw(axes)
    axes.set_title(setting)
    axes.set_xlabel(f"{cost}{f' ({unit})' if unit else ''}")
    if axes.get_subplotspec().is_first_col() or len(style.metrics) > 1:
        axes.set_ylabel(f"{definition.label}{' (%)' if definition.unit == 'share' else ''}")
    axes.grid(True, color="#dddddd", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if "x" not in (style.log or ""):
        axes.set_xlim(left=0)
    _limit(axes.set_xlim, size.xlim, 1 / scale)
    _limit(axes.set_ylim, size.ylim, share)
    if size.inset is not None:
        _inset(axes, draw, size.inset, scale, share, low=definition.higher_is_better)


def _limit(setter: Any, ends: tuple[float | None, float | None], factor: float) -> None:
    low, high = (None if end is None else end * factor for end in ends)
    if low is not None or high is not None:
        setter(low, high)


def _scales(axes: Any, style: FigureStyle, *, percent: bool) -> None:
    log = style.log or ""
    if "x" in log:
        axes.set_xscale("log")
    if log in ("y", "xy"):
        axes.set_yscale("log")
    if log == "logit":
        axes.set_yscale("logit")
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v if percent else v:g}"))


def _inset(axes: Any, draw: Any, inset: Any, scale: float, share: float, *, low: bool) -> None:
    """An enlarged part in the right corner, low or high, where learning curves leave room."""
    (left, right), up = inset
    part = axes.inset_axes((0.45, 0.1 if low else 0.5, 0.52, 0.45))
    draw(part)
    _limit(part.set_xlim, (left, right), 1 / scale)
    if up is not None:
        _limit(part.set_ylim, up, share)
    else:
        begin, end = part.get_xlim()
        seen: list[float] = []
        for line in part.get_lines():
            x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
            seen += y[(x >= begin) & (x <= end)].tolist()
        if seen and max(seen) > min(seen):
            room = 0.08 * (max(seen) - min(seen))
            part.set_ylim(min(seen) - room, max(seen) + room)
    part.tick_params(labelsize="x-small")
    part.grid(True, color="#dddddd", linewidth=0.4)
    axes.indicate_inset_zoom(part, edgecolor="#666666")


def _draw(
    axes: Any,
    rows: pd.DataFrame,
    label: str,
    look: Look,
    scale: float,
    share: float,
    *,
    bands: bool,
) -> None:
    known = rows[rows["mean"].notna()]
    x = known["x"].to_numpy() / scale
    every = max(1, len(x) // 8)
    axes.plot(
        x,
        known["mean"].to_numpy() * share,
        label=label,
        drawstyle="steps-post",
        linewidth=1.3,
        markersize=3.5,
        markevery=(every // 2, every),
        color=look.light,
        linestyle=(0, look.dash) if look.dash else "-",
        marker=look.marker,
    )
    low, high = known["low"].to_numpy() * share, known["high"].to_numpy() * share
    if bands and np.isfinite(low).any():
        if share > 1:
            low, high = low.clip(0, share), high.clip(0, share)
        axes.fill_between(x, low, high, step="post", color=look.light, alpha=0.12, linewidth=0)


def save_figure(figure: Figure, path: Path, size: ResolvedStyle | None = None) -> None:
    """Write a figure; the suffix of the path gives the file format."""
    dates: dict[str, Any] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(
        path.suffix, {}
    )
    with matplotlib.rc_context(_settings(size) if size else _SETTINGS):
        figure.savefig(path, metadata=dates, dpi=300)
