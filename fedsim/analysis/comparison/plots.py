"""Matplotlib figures for papers: lines differ in style, marker and shade, so that they survive gray print."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fedsim.analysis.comparison.facts import COSTS
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.formatting import axis_unit

# Okabe and Ito's colors from dark to light, so that neighbors differ in gray too.
STYLES = tuple(
    {"color": color, "linestyle": dash, "marker": marker}
    for color, dash, marker in (
        ("#000000", "-", "o"),
        ("#0072b2", "--", "s"),
        ("#d55e00", "-.", "^"),
        ("#009e73", ":", "D"),
        ("#cc79a7", (0, (5, 1)), "v"),
        ("#56b4e9", (0, (3, 1, 1, 1)), "P"),
        ("#e69f00", (0, (1, 1)), "X"),
        ("#666666", (0, (7, 2)), "*"),
    )
)
_DASHES = tuple(style["linestyle"] for style in STYLES)
_MARKERS = tuple(style["marker"] for style in STYLES)
_BANDS_UP_TO = 5
"""More bands than this hide each other."""
_PANEL_INCHES = (3.4, 2.6)
_COLUMNS = 3
# Text stays text, and the same figure gives the same file.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "fedsim", "pdf.fonttype": 42, "font.size": 8}


def plot_curves(comparison: ComparisonTables, metric: str, against: str) -> Figure:
    """Mean of a metric against time or cost, with a band if there are few variants; one panel per setting.

    Args:
        comparison: the runs.
        metric: the metric to draw.
        against: one of the costs of :data:`fedsim.analysis.comparison.facts.COSTS`.
    """
    frame = comparison.curves(metric, against)
    settings = comparison.grouping.settings
    columns = min(_COLUMNS, len(settings))
    rows = math.ceil(len(settings) / columns)
    width, height = _PANEL_INCHES
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
        definition = comparison.definition(metric)
        share = 100.0 if definition.unit == "share" else 1.0
        cost, kind = COSTS[against]
        scale, unit = axis_unit(float(frame["x"].max()), kind)
        styles = _styles(comparison)
        bands = len(styles) <= _BANDS_UP_TO
        for setting, axes in itertools.zip_longest(settings, panels):
            if setting is None:
                axes.set_visible(False)
                continue
            panel_rows = frame[frame["setting"] == setting]
            for label, rows_of in panel_rows.groupby("label", sort=False):
                _draw(axes, rows_of, str(label), styles[str(label)], scale, share, bands=bands)
            axes.set_title(setting)
            axes.set_xlabel(f"{cost}{f' ({unit})' if unit else ''}")
            if axes.get_subplotspec().is_first_col():
                axes.set_ylabel(f"{definition.label}{' (%)' if share > 1 else ''}")
            axes.grid(True, color="#dddddd", linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(left=0)
        handles, names = figure.axes[0].get_legend_handles_labels()
        if len(handles) > 4:
            figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
        else:
            figure.axes[0].legend(frameon=False)
    return figure


def _styles(comparison: ComparisonTables) -> dict[str, Any]:
    """Style of each variant; colors that repeat have different dashes and markers."""
    labels = dict.fromkeys(group.label for group in comparison.groups)
    count = len(STYLES)
    return {
        label: {
            "color": STYLES[number % count]["color"],
            "linestyle": _DASHES[(number + number // count) % count],
            "marker": _MARKERS[(number + number // count) % count],
        }
        for number, label in enumerate(labels)
    }


def _draw(
    axes: Any, rows: Any, label: str, style: Any, scale: float, share: float, *, bands: bool
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
        **style,
    )
    low, high = known["low"].to_numpy() * share, known["high"].to_numpy() * share
    if bands and np.isfinite(low).any():
        if share > 1:
            low, high = low.clip(0, share), high.clip(0, share)
        axes.fill_between(x, low, high, step="post", color=style["color"], alpha=0.12, linewidth=0)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the suffix of the path gives the file format."""
    dates: dict[str, Any] = {"CreationDate": None} if path.suffix == ".pdf" else {"Date": None}
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(path, metadata=dates)
