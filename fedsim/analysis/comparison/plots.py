"""Matplotlib figures for papers: lines differ in color, dash and marker, as on the page."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import (
    FuncFormatter,
    Locator,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from fedsim.analysis.comparison.curves import late_range
from fedsim.analysis.comparison.facts import COSTS, TIMING
from fedsim.analysis.comparison.figure import FigureStyle, Limits, Venue
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.palette import Look, looks
from fedsim.errors import UserError
from fedsim.vocabulary.formatting import Kind, axis_unit, format_value
from fedsim.vocabulary.metrics import MetricDefinition

_GROUP_WIDTH = 0.8
"""Width of the bars of a setting, as a share of the distance between settings."""
_LETTERS = 30
"""Letters below a panel from which the names of the settings are slanted."""
_BANDS_UP_TO = 5
"""Maximum number of bands; more would hide each other."""
_PANEL_INCHES = 3.4
_HEIGHT = (1.7, 0.27)
"""Height of a panel: inches, and inches per inch of its width; wide panels are flatter."""
_LOW_INCHES = 1.3
"""Least height of one of several panels, unless the height of the figure is given."""
_COLUMNS = 3
_INSET = (0.45, 0.44)
"""Width and height of an inset with its labels, as shares of its panel."""
_NARROWEST_INCHES = 1.6
"""Least width of a panel, which limits the number side by side; if there are several, narrower ones get no insets."""
_INSET_PANEL_INCHES = 2.2
"""The same for panels with insets: in narrower ones, an inset is too small to read."""
_LOWEST_INCHES = 0.9
"""Least height of a panel with an inset."""
_SMALLEST_REGION = 0.01
"""The smallest share of the horizontal axis that an inset may enlarge."""
_INSET_TICKS = 3
_NO_ROOM = "constrained_layout not applied"
"""The beginning of Matplotlib's warning that panels have no room."""
_PLAIN = (1e-4, 1e6)
"""Numbers outside this range are written with an exponent on logarithmic axes."""
_SMALLEST_TEXT = 5.0
"""Smallest text, in points, to which labels that are too long for their axis are reduced."""
_HANDLE = 3.2
"""Length of a line in a legend, in letters: the longest pattern of dashes appears twice."""
_BETWEEN = 1.0
"""Room between the columns of a legend below the panels, in letters."""
_ENTRY_INCHES = 0.6
"""Width of the shortest entry of a legend, which limits the number of columns tried."""
_LEGEND_INCHES = 0.4
"""Height reserved for a legend below the panels; a taller legend makes the figure taller."""
_LOG_ROOM = 0.03
"""Room before the curves on a logarithmic axis, as a share of their range."""
_MARGIN = 0.04
"""Room above and below the curves, as a share of their range."""
_POINTS = 4000
"""Points of a curve: enough for the smallest inset of the longest axis."""
_log = logging.getLogger(__name__)
# Text is saved as text, and the same figure always gives the same file.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "fedsim", "pdf.fonttype": 42, "font.size": 8}


def plot_curves(comparison: ComparisonTables, style: FigureStyle) -> Figure:
    """Means of metrics against time or cost, with a band if there are few variants.

    One panel per setting; with several metrics, one row of panels per metric.
    """
    settings, metrics = comparison.grouping.settings, style.metrics
    style = _with_inset_in_data(comparison, style)
    size = style.resolved(comparison.definition(metrics[0]).unit)
    narrowest = _NARROWEST_INCHES if size.inset is None else _INSET_PANEL_INCHES
    most = max(1, int(size.width / narrowest)) if size.width else _COLUMNS
    columns = len(settings) if len(metrics) > 1 else min(_COLUMNS, most, len(settings))
    rows = len(metrics) if len(metrics) > 1 else math.ceil(len(settings) / columns)
    # Several metrics of one setting are side by side if the figure is wide enough.
    if len(settings) == 1 and (size.width is None or size.width >= 2.2 * len(metrics)):
        rows, columns = 1, len(metrics)
    width = size.width or _PANEL_INCHES * columns
    panel = min(_HEIGHT[0] + _HEIGHT[1] * width / columns, 0.8 * width / columns)
    height = size.height or panel * rows + _LEGEND_INCHES
    insets: list[Callable[[], int | None]] = []
    with matplotlib.rc_context(_settings(style.venue)), _quiet():
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=len(metrics) == 1).flat
        variants = looks(group.label for group in comparison.groups)
        for cell, axes in itertools.zip_longest(itertools.product(metrics, settings), panels):
            if cell is None:
                axes.set_visible(False)
                continue
            metric, setting = cell
            insets.append(_panel(comparison, axes, style, metric, setting, variants))
        _limit_to_what_is_shown(figure, style, comparison)
        if len(metrics) > 1:
            # In a column of panels, only the lowest has the label if it applies to all.
            for upper, lower in zip(figure.axes, figure.axes[columns:], strict=False):
                if rows > 1 and upper.get_xlabel() == lower.get_xlabel():
                    upper.set_xlabel("")
        handles, names = figure.axes[0].get_legend_handles_labels()
        if len(handles) > 4 or size.inset is not None or len(figure.axes) > 1:
            used = _legend_below(figure, handles, names)
            if size.height is None:
                height += max(0.0, used - _LEGEND_INCHES)
                figure.set_size_inches(width, height)
        else:
            figure.axes[0].legend(frameon=False, handlelength=_HANDLE)
        if size.height is None and rows * columns > 1:
            _lay_out(figure)
            lowest = min(axes.get_window_extent().height for axes in figure.axes) / figure.dpi
            figure.set_size_inches(width, height + rows * max(0.0, _LOW_INCHES - lowest))
        _fit_labels(figure)
        if size.inset is not None and len(insets) > 1 and width / columns < _NARROWEST_INCHES:
            _log.warning("the panels are too narrow for insets; choose a larger --width")
        # Panels share an axis and leave room for the legend, so positions are known once all are drawn.
        elif size.inset is not None:
            _lay_out(figure)
            if figure.axes[0].get_window_extent().height < _LOWEST_INCHES * figure.dpi:
                _log.warning("the panels are too low for insets; choose a larger --height")
            else:
                hidden = [count for inset in insets if (count := inset()) is not None]
                if not hidden:
                    raise _empty_inset(comparison, style)
                if any(hidden):
                    _log.warning(
                        "the inset hides parts of curves; choose a larger --height, or another region"
                    )
    return figure


def _with_inset_in_data(comparison: ComparisonTables, style: FigureStyle) -> FigureStyle:
    """The style with an inset that ends where the curves do.

    Raises:
        UserError: the inset is outside the data, or too small to see.
    """
    metric = comparison.definition(style.metrics[0])
    size = style.resolved(metric.unit)
    if size.inset is None:
        return style
    (left, right), up = size.inset
    kind = COSTS[style.against][1]
    frame = comparison.curves(metric.name, style.against, _POINTS)
    x = frame["x"][frame["mean"].notna()]
    first, last = float(x.min()), float(x.max())
    begin, end = size.xlim
    first = first if begin is None else max(first, begin)
    last = last if end is None else min(last, end)
    if first > last:
        # The panels refuse the range of their axis.
        return style
    low, high = first if left is None else left, last if right is None else right
    shown = f"{format_value(low, kind)} to {format_value(high, kind)}"
    data = f"the curves in the figure go from {format_value(first, kind)} to {format_value(last, kind)}"
    if low >= last or high <= first:
        raise UserError(f"the inset ({shown}) is outside the data", where="inset", hint=data)
    if high - low < _SMALLEST_REGION * last:
        raise UserError(
            f"the inset ({shown}) covers less than 1% of the horizontal axis",
            where="inset",
            hint=data,
        )
    if low >= first and high <= last:
        return style
    _log.warning("the inset (%s) is cut at the end of the data: %s", shown, data)
    cut = (None if left is None else max(left, first), None if right is None else min(right, last))
    return dataclasses.replace(style, inset=(cut, up))


def _empty_inset(comparison: ComparisonTables, style: FigureStyle) -> UserError:
    """The error for an inset between whose horizontal ends no curve has one of its values."""
    metric = comparison.definition(style.metrics[0])
    size = style.resolved(metric.unit)
    left, right = (size.inset or ((None, None), None))[0]
    frame = comparison.curves(metric.name, style.against, _POINTS)
    inside = frame["x"].between(
        -math.inf if left is None else left, math.inf if right is None else right
    )
    values = frame["mean"][inside].dropna()
    hint = (
        f"the curves go from {metric.format(values.min())} to {metric.format(values.max())} there"
        if len(values)
        else None
    )
    return UserError("no curve has a value in the inset", where="inset", hint=hint)


def plot_timing(comparison: ComparisonTables, style: FigureStyle) -> Figure:
    """The main figures of timing-only runs: one panel each, one bar per variant with its deviation, by setting.

    Raises:
        UserError: the style has a range, a scale or a region, which bars do not have.
    """
    for name in ("xlim", "ylim", "log", "inset"):
        if getattr(style, name):
            raise UserError(
                "the runs are timing-only, so the figure has bars instead of curves",
                where=name,
                hint=f"leave out {name}; width, height and labels apply to bars, too",
            )
    stated_width, stated_height = style.size
    columns = len(TIMING) if (stated_width or 0) >= _NARROWEST_INCHES * len(TIMING) else 2
    rows = math.ceil(len(TIMING) / columns)
    width = stated_width or _PANEL_INCHES * columns
    height = stated_height or (_HEIGHT[0] + _LEGEND_INCHES / rows) * rows
    variants = looks(group.label for group in comparison.groups)
    settings = comparison.grouping.settings
    with matplotlib.rc_context(_settings(style.venue)), _quiet():
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for axes, (name, (label, kind)) in zip(panels, TIMING.items(), strict=True):
            _bars(axes, comparison.summary, name, label, kind, variants)
            _name_settings(axes, settings)
        handles, names = figure.axes[0].get_legend_handles_labels()
        if len(handles) > 1:
            used = _legend_below(figure, handles, names)
            if stated_height is None:
                figure.set_size_inches(width, height + max(0.0, used - _LEGEND_INCHES))
        _fit_labels(figure)
    return figure


def _bars(
    axes: Any,
    summary: pd.DataFrame,
    name: str,
    label: str,
    kind: Kind,
    variants: dict[str, Look],
) -> None:
    """Draw one bar per variant in each setting."""
    settings = summary["setting"].unique()
    largest = float(summary[name].max())
    scale, unit = (0.01, "%") if kind == "share" else axis_unit(largest, kind)
    each = _GROUP_WIDTH / len(variants)
    for number, (variant, look) in enumerate(variants.items()):
        rows = summary[summary["label"] == variant].set_index("setting").reindex(settings)
        axes.bar(
            np.arange(len(settings)) + (number - (len(variants) - 1) / 2) * each,
            rows[name] / scale,
            0.9 * each,
            yerr=rows[f"{name}_sd"] / scale,
            label=variant,
            color=look.light,
            error_kw={"elinewidth": 0.8, "capsize": 2, "capthick": 0.8},
        )
    axes.set_ylabel(f"{label}{f' ({unit})' if unit else ''}")
    axes.set_ylim(bottom=0, top=None if largest > 0 else 1)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _name_settings(axes: Any, settings: Sequence[str]) -> None:
    """Name the groups of bars; if all names give values of one key, the key labels the axis."""
    keys, values = zip(*(setting.rpartition("=")[::2] for setting in settings), strict=True)
    same = len(set(keys)) == 1 and "=" not in keys[0] and bool(keys[0])
    axes.set_xlabel(keys[0] if same and axes.get_subplotspec().is_last_row() else "")
    shown = values if same else settings
    axes.set_xticks(range(len(settings)), shown)
    axes.set_xlim(-0.5, len(settings) - 0.5)
    axes.tick_params(axis="x", length=0)
    if max(map(len, shown)) * len(shown) > _LETTERS:
        axes.tick_params(axis="x", labelrotation=30)
        for text in axes.get_xticklabels():
            text.set_horizontalalignment("right")
            text.set_rotation_mode("anchor")


def _legend_below(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> float:
    """Draw a legend below the panels, in as many columns as fit; return its height in inches."""
    room = figure.bbox.width
    for columns in range(max(1, min(len(names), int(room / figure.dpi / _ENTRY_INCHES))), 0, -1):
        legend = figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=_HANDLE,
            columnspacing=_BETWEEN,
            borderpad=0.2,
        )
        taken = legend.get_window_extent()
        if taken.width <= room or columns == 1:
            break
        legend.remove()
    if taken.width > room:
        for letters in range(max(map(len, names)) - 1, 7, -1):
            for name, text in zip(names, legend.get_texts(), strict=True):
                text.set_text(textwrap.fill(name, letters))
            taken = legend.get_window_extent()
            if taken.width <= room:
                break
    return float(taken.height / figure.dpi)


def _lay_out(figure: Figure) -> None:
    """Place the panels, so that their sizes are known."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Matplotlib's warning about panels without room; :func:`plot_curves` gives one that suggests a fix."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _NO_ROOM)
        yield


def _fit_labels(figure: Figure) -> None:
    """Break labels of vertical axes that are taller than their panel, or make them smaller."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", _NO_ROOM)
        _lay_out(figure)
    if caught:
        _log.warning("the figure has no room for its panels; choose a larger --width or --height")
    for axes in figure.axes:
        label = axes.yaxis.label
        available = axes.get_window_extent().height
        if label.get_window_extent().height > available:
            label.set_text(label.get_text().replace(" (", "\n("))
        taken = label.get_window_extent().height
        if taken > available:
            label.set_fontsize(max(_SMALLEST_TEXT, float(label.get_fontsize()) * available / taken))


def _settings(venue: Venue | None) -> dict[str, Any]:
    if venue is None:
        return _SETTINGS
    from matplotlib.font_manager import fontManager

    # Matplotlib warns about every font that is not installed.
    installed = set(fontManager.get_font_names())
    serif = venue.fonts[-1] == "STIXGeneral"
    return _SETTINGS | {
        "font.family": [font for font in venue.fonts if font in installed],
        "font.size": venue.size,
        "mathtext.fontset": "stix" if serif else "dejavusans",
    }


def _panel(
    comparison: ComparisonTables,
    axes: Any,
    style: FigureStyle,
    metric: str,
    setting: str,
    variants: dict[str, Look],
) -> Callable[[], int | None]:
    """Draw a panel, and return the function that draws its inset; see :func:`_inset`."""
    definition = comparison.definition(metric)
    size = style.resolved(definition.unit, metric)
    frame = comparison.curves(metric, style.against, _POINTS)
    share = 100.0 if definition.unit == "share" and style.log != "logit" else 1.0
    cost, kind = COSTS[style.against]
    end = float(frame["x"].max()) if size.xlim[1] is None else size.xlim[1]
    scale, unit = axis_unit(end, kind)
    measured = frame[frame["mean"].notna()]
    first, last = float(measured["x"].min()), float(measured["x"].max())
    _require_visible("xlim", size.xlim, first, last, kind)
    unit_kind: Kind = "share" if definition.unit == "share" else "number"
    low, high = float(measured["mean"].min()), float(measured["mean"].max())
    _require_visible("ylim", size.ylim, low, high, unit_kind)
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
    elif size.ylim != (None, None):
        # A logarithmic axis begins where the first curve enters the visible range, with a little room before.
        bottom, top = size.ylim
        visible = measured[
            measured["mean"].between(
                -math.inf if bottom is None else bottom, math.inf if top is None else top
            )
        ]
        entered = float(visible["x"][visible["x"] > 0].min())
        if math.isfinite(entered):
            axes.set_xlim(left=entered / scale * (entered / last) ** _LOG_ROOM)
    _limit(axes.set_xlim, size.xlim, 1 / scale)
    _limit(axes.set_ylim, size.ylim, share)
    if size.xlim != (None, None) or size.ylim != (None, None):
        _say_what_is_hidden(axes, definition, _outside(axes))
    return lambda: None if size.inset is None else _inset(axes, draw, size.inset, scale, share)


def _limit_to_what_is_shown(
    figure: Figure, style: FigureStyle, comparison: ComparisonTables
) -> None:
    """Fit the vertical axes to the visible part of the curves, and never beyond what a share or a loss can be.

    Without a stated range, scale or inset, they have the late range of the page.
    """
    bands = len({group.label for group in comparison.groups}) <= _BANDS_UP_TO
    panels = [axes for axes in figure.axes if axes.get_visible()]
    rows = len(panels) // len(style.metrics)
    for number, metric in enumerate(style.metrics):
        of_metric = panels[number * rows : (number + 1) * rows]
        definition = comparison.definition(metric)
        size = style.resolved(definition.unit, metric)
        if None not in size.ylim:
            continue
        share = definition.unit == "share"
        scale = 100 if share and style.log != "logit" else 1
        shown = np.concatenate([_shown(axes) for axes in of_metric])
        if not len(shown):
            continue
        axes = of_metric[0]
        transform = axes.yaxis.get_transform()
        low, high = transform.transform(np.array([shown.min(), shown.max()]))
        room = _MARGIN * ((high - low) or 1.0)
        bottom, top = transform.inverted().transform(np.array([low - room, high + room]))
        if axes.get_yscale() == "linear":
            bottom = max(bottom, 0.0) if shown.min() >= 0 else bottom
            top = min(top, 100.0) if share else top
        late = None
        if not style.log and size.xlim == size.ylim == (None, None) and size.inset is None:
            curves = comparison.curves(metric, style.against, _POINTS)
            late = late_range(curves, definition, bands=bands)
        if late is not None:
            low, high = late
            hidden = [f"below {definition.format(low)}"] if shown.min() / scale < low else []
            hidden += [f"above {definition.format(high)}"] if shown.max() / scale > high else []
            # Otherwise, only a part of a band is hidden that a share cannot reach.
            _say_what_is_hidden(axes, definition, hidden)
        for axes in of_metric:
            axes.set_ylim(bottom, top)
            _limit(axes.set_ylim, late or size.ylim, scale)


def _say_what_is_hidden(axes: Any, metric: MetricDefinition, hidden: Sequence[str]) -> None:
    """Write which values or variants are not shown, if any, in the corner that the curves leave free."""
    if not hidden:
        return
    up = metric.higher_is_better
    axes.text(
        0.98,
        0.03 if up else 0.97,
        f"not shown: {', '.join(hidden)}",
        transform=axes.transAxes,
        ha="right",
        va="bottom" if up else "top",
        size="x-small",
        color="#666666",
    )


def _shown(axes: Any) -> Any:
    """The finite values of a panel's curves and bands within its horizontal range that its scale can show."""
    left, right = axes.get_xlim()
    values = [_values_between(line, left, right) for line in axes.get_lines()]
    for band in axes.collections:
        x, y = band.get_paths()[0].vertices.T if band.get_paths() else np.zeros((2, 0))
        values.append(y[(x >= left) & (x <= right)])
    result = np.concatenate(values) if values else np.zeros(0)
    scale = axes.get_yscale()
    possible = np.isfinite(result) & ((result > 0) | (scale == "linear"))
    return result[possible & ((result < 1) | (scale != "logit"))]


def _outside(axes: Any) -> list[str]:
    """The variants whose curves lie outside the ranges of a panel."""
    low, high = axes.get_ylim()
    curves = {
        line.get_label(): _values_between(line, *axes.get_xlim())
        for line in axes.get_lines()
        if len(line.get_xdata())
    }
    return [label for label, y in curves.items() if not len(y) or y.max() < low or y.min() > high]


def _values_between(line: Any, left: float, right: float) -> Any:
    """The values of a curve from ``left`` to ``right``; as it is a step function, the last one before enters, too."""
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    if x.max(initial=-math.inf) < left:
        return y[:0]
    first = max(0, int(np.searchsorted(x, left, side="right")) - 1)
    return y[first : int(np.searchsorted(x, right, side="right"))]


def _require_visible(where: str, region: Limits, start: float, end: float, kind: Kind) -> None:
    """Refuse a range of an axis that has no data."""
    low, high = (start if region[0] is None else region[0], end if region[1] is None else region[1])
    if low > end or high < start:
        hint = f"the curves go from {format_value(start, kind)} to {format_value(end, kind)}"
        raise UserError("the range is outside the data", where=where, hint=hint)


def _limit(setter: Any, ends: tuple[float | None, float | None], factor: float) -> None:
    low, high = (None if end is None else end * factor for end in ends)
    if low is not None or high is not None:
        setter(low, high)


def _scales(axes: Any, style: FigureStyle, *, percent: bool) -> None:
    log = style.log or ""
    if "x" in log:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
    if log in ("y", "xy"):
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    if log == "logit":
        axes.set_yscale("logit")
        axes.yaxis.set_major_locator(_LogitTicks())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v if percent else v:g}"))


class _LogTicks(LogLocator):
    """Ticks at 1, 2 and 5, or only at 1, of every decade, as many as fit on the axis; evenly spaced on short axes.

    Args:
        most: the largest number of ticks, if there is room.
    """

    def __init__(self, most: int = 9) -> None:
        super().__init__()
        self._most = most

    def __call__(self) -> Any:
        axis: Any = self.axis
        low, high = sorted(axis.get_view_interval())
        return self.tick_values(low if low > 0 else axis.get_minpos(), high)

    def tick_values(self, vmin: float, vmax: float) -> Any:
        most = self._most if self.axis is None else min(self._most, self.axis.get_tick_space())
        most = max(2, most)
        decades = 10.0 ** np.arange(math.floor(math.log10(vmin)), math.ceil(math.log10(vmax)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            ticks = np.sort(np.outer(decades, digits).ravel())
            ticks = ticks[(ticks >= vmin * (1 - 1e-9)) & (ticks <= vmax * (1 + 1e-9))]
            if len(ticks) <= most:
                break
        if len(ticks) > most:
            return LogLocator(numticks=most).tick_values(vmin, vmax)
        return ticks if len(ticks) > 1 else _even_ticks(vmin, vmax, most)


class _LogitTicks(Locator):
    """Round shares within the axis, as many as fit: denser toward 0 and 1."""

    def __call__(self) -> Any:
        return self.tick_values(*sorted(self.axis.get_view_interval()))  # type: ignore[union-attr]

    def tick_values(self, vmin: float, vmax: float) -> Any:
        middles: tuple[list[float], ...] = ([0.2, 0.3, 0.4, 0.6, 0.7, 0.8], [0.2, 0.8], [])
        tails = (1.0, 2.0, 5.0), (1.0, 5.0), (1.0,)
        most = max(3, self.axis.get_tick_space() if self.axis is not None else 9)
        ticks = np.zeros(0)
        for middle, tail in itertools.product(middles, tails):
            low = [digit * 10.0**-power for power in range(1, 9) for digit in tail]
            low = [value / 10 if value > 0.1 else value for value in low]
            levels = np.unique(np.round([0.5, *middle, *low, *(1 - value for value in low)], 9))
            ticks = levels[(levels >= vmin - 1e-12) & (levels <= vmax + 1e-12)]
            if len(ticks) <= most:
                break
        return ticks if len(ticks) > 1 else _even_ticks(vmin, vmax, most)


def _even_ticks(low: float, high: float, most: int) -> Any:
    ticks = np.asarray(MaxNLocator(most).tick_values(low, high))
    return ticks[(ticks >= low) & (ticks <= high)]


def _plain_ticks(axis: Any) -> None:
    """Few ticks with plain numbers on a logarithmic axis."""
    axis.set_major_locator(_LogTicks())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float) -> str:
    low, high = _PLAIN
    if low <= value < high:
        return f"{value:,.10g}"
    digits, _, exponent = f"{value:.3g}".partition("e")
    if not exponent:
        digits, exponent = "1", str(round(math.log10(value)))
    factor = "" if float(digits) == 1 else rf"{digits} \times "
    return f"${factor}10^{{{int(exponent)}}}$"


def _inset(axes: Any, draw: Any, inset: Any, scale: float, share: float) -> int | None:
    """Enlarge a region, with the inset where it hides the least.

    Returns:
        The number of curve points that the inset hides; None if there is no inset because no curve has a value in the
        region.
    """
    (left, right), up = inset
    begin, end = axes.get_xlim()
    begin = begin if left is None else max(begin, left / scale)
    end = end if right is None else min(end, right / scale)
    y = _values(axes, np.linspace(begin, end, 200))
    y = y[np.isfinite(y)]
    if up is None and len(y):
        room = 0.08 * (float(np.ptp(y)) or abs(float(y[0])) or 1.0)
        low, high = float(y.min()) - room, float(y.max()) + room
        if axes.get_yscale() != "linear":
            low, high = float(y.min()), float(y.max())
        # The inset shows nothing that lies outside the panel.
        bottom, top = sorted(axes.get_ylim())
        low, high = max(low, bottom), min(high, top)
        if low >= high:
            return None
    else:
        bounds = zip(up or (None, None), axes.get_ylim(), strict=True)
        low, high = (limit if stated is None else stated * share for stated, limit in bounds)
    if not ((y >= low) & (y <= high)).any():
        return None
    to_axes = axes.transScale + axes.transLimits
    first, last = axes.get_xlim()
    across = np.linspace(first, last, 400)
    drawn = _values(axes, across)
    covered = to_axes.transform(
        np.column_stack([np.broadcast_to(across, drawn.shape).ravel(), drawn.ravel()])
    )
    curves = covered.reshape(*drawn.shape, 2)
    region = to_axes.transform([(begin, low), (end, high)])
    # In a corner, or elsewhere if that hides less.
    most_right, most_up = (0.98 - share for share in _INSET)
    corners = itertools.product((most_right, 0.02), (0.02, most_up))
    others = itertools.product(np.linspace(most_right, 0.02, 9), np.linspace(0.02, most_up, 9))
    places = [*corners, *others]
    # Room for the labels of the ticks, in inches.
    box = axes.get_window_extent()
    dpi = axes.get_figure().dpi
    labels = np.array([0.3 * dpi / box.width, 0.16 * dpi / box.height])

    def frame(position: Any) -> Any:
        return np.array([position + labels, np.add(position, _INSET) - 0.03])

    hidden = [_hidden(np.asarray(position), region, covered) for position in places]
    free = [
        position for position, count in zip(places, hidden, strict=True) if count == min(hidden)
    ]
    corner = min(free, key=lambda position: sum(_leaders(frame(position), region, curves).values()))
    low_left, high_right = frame(corner)
    inset_axes = axes.inset_axes((*low_left, *(high_right - low_left)))
    draw(inset_axes)
    inset_axes.set_xlim(begin, end)
    inset_axes.set_ylim(low, high)
    for axis in (inset_axes.xaxis, inset_axes.yaxis):
        if axis.get_scale() == "linear":
            axis.set_major_locator(MaxNLocator(_INSET_TICKS))
        elif axis.get_scale() == "log":
            axis.set_major_locator(_LogTicks(_INSET_TICKS))
    inset_axes.tick_params(labelsize="x-small", pad=1.5, length=2)
    inset_axes.grid(True, color="#dddddd", linewidth=0.4)
    inset_axes.set_in_layout(False)
    # The labels of the inset are above the grid and the lines that lead to it.
    for text in (*inset_axes.get_xticklabels(), *inset_axes.get_yticklabels()):
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])
    indicator = axes.indicate_inset_zoom(inset_axes, edgecolor="#666666")
    leaders = _leaders(frame(corner), region, curves)
    clear = [number for number, crossings in leaders.items() if not crossings]
    for number, connector in enumerate(indicator.connectors):
        # A line that crosses a curve is only drawn if no other leads to the inset.
        connector.set_visible(number in (clear or list(leaders)[:1]))
    return min(hidden)[0]


_CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Corners of a box, in the order of Matplotlib's lines between those of a region and of its inset."""


def _leaders(frame: Any, region: Any, curves: Any) -> dict[int, int]:
    """The two lines from the region to its inset that cross the fewest curves: number of the corner, and crossings.

    Lines that pass through the inset or the region are left out.

    Args:
        frame, region: lower left and upper right corner of both boxes, in coordinates of the panel.
        curves: points of each curve, shape (curves, points, 2).
    """
    crossings: dict[int, int] = {}
    along = np.linspace(0.02, 0.98, 49)[:, None]
    for number, corner in enumerate(_CORNERS):
        begin, end = (np.where(corner, box[1], box[0]) for box in (region, frame))
        points = begin + along * (end - begin)
        if any(
            ((points > box[0]) & (points < box[1])).all(axis=1).any() for box in (region, frame)
        ):
            continue
        # A curve crosses the line where consecutive points lie on both sides of it, between its ends.
        offset, line = curves - begin, end - begin
        across = line[0] * offset[..., 1] - line[1] * offset[..., 0]
        position = offset @ line / max(float(line @ line), 1e-12)
        with np.errstate(invalid="ignore"):
            sides = across[:, 1:] * across[:, :-1] <= 0
            middle = (position[:, 1:] + position[:, :-1]) / 2
            crossings[number] = int((sides & (middle > 0) & (middle < 1)).sum())
    best = sorted(crossings, key=lambda number: crossings[number])[:2]
    return {number: crossings[number] for number in best}


def _values(axes: Any, x: Any) -> Any:
    """The curves of a panel at points, one row per curve; NaN where a curve has no value."""
    rows = []
    for line in axes.get_lines():
        known, y = np.asarray(line.get_xdata()), np.append(np.nan, line.get_ydata())
        values = y[np.searchsorted(known, x, side="right")]
        rows.append(np.where(x <= known.max(initial=-np.inf), values, np.nan))
    return np.stack(rows) if rows else np.zeros((0, len(x)))


def _hidden(corner: Any, region: Any, covered: Any) -> tuple[int, float]:
    """The number of curve points and the area of the region that an inset hides with its lower left corner here."""
    end = corner + _INSET
    sides = np.minimum(end, region[1]) - np.maximum(corner, region[0])
    inside = ((covered >= corner) & (covered <= end)).all(axis=1)
    return int(inside.sum()), float(np.prod(sides.clip(0)))


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
    # The last value has a marker, because the step to it ends there.
    marked = [*range(every // 2, len(x) - every, every), len(x) - 1] if len(x) else []
    axes.plot(
        x,
        known["mean"].to_numpy() * share,
        label=label,
        drawstyle="steps-post",
        linewidth=1.3,
        markersize=3.5,
        markevery=marked,
        color=look.light,
        linestyle=(0, look.dash) if look.dash else "-",
        marker=look.marker,
    )
    low, high = known["low"].to_numpy() * share, known["high"].to_numpy() * share
    if bands and np.isfinite(low).any():
        if share > 1:
            low, high = low.clip(0, share), high.clip(0, share)
        axes.fill_between(x, low, high, step="post", color=look.light, alpha=0.12, linewidth=0)


def save_figure(figure: Figure, path: Path, venue: Venue | None = None) -> None:
    """Write a figure; the suffix of the path gives the file format."""
    dates: dict[str, Any] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(
        path.suffix, {}
    )
    with matplotlib.rc_context(_settings(venue)), _quiet():
        figure.savefig(path, metadata=dates, dpi=300)
