"""The figure of a comparison for a paper: curves of metrics, or bars of timing-only runs.

Variants differ in color, dash and marker, as on the page. Matplotlib places everything (``layout="constrained"``) and
is imported when a figure is drawn.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.curves import RUNS_UP_TO, late_range
from fedsim.analysis.comparison.facts import COSTS, FIGURES, TIMING, require_cost
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.figures.lines import drawing, filled, label_plainly, legend_names, save_picture
from fedsim.analysis.palette import Look, looks
from fedsim.errors import UserError, nearest_or_all, refused
from fedsim.units import parse_duration_s, parse_size_bytes, share_of, without_comma
from fedsim.vocabulary.formatting import Kind, axis_unit, format_level, format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Limits = tuple[float, float]
"""Ends of an axis; infinite if they follow from the data."""
Log = Literal["x", "y", "xy", "logit"]
_BOUND = "lower bound"
_FREE: Limits = (-math.inf, math.inf)


class Venue(NamedTuple):
    """Widths of a column and of the text in inches, from the venue's template, and the style sheet of its text."""

    column: float
    text: float
    sheet: str = "times"


VENUES = {
    "acm": Venue(3.33, 7.0, "libertine"),
    "iclr": Venue(5.5, 5.5),
    "icml": Venue(3.25, 6.75),
    "ieee": Venue(3.5, 7.16),
    "lncs": Venue(4.8, 4.8),
    "mlsys": Venue(3.25, 6.75),
    "nature": Venue(3.5, 7.2, "helvetica"),
    "neurips": Venue(5.5, 5.5),
    "usenix": Venue(3.33, 7.0),
}
_SHEETS = Path(__file__).parents[1] / "styles"
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
_NEAR = 18
"""How far from the end of its line a name may be, in points."""
_LETTERS = 4
"""Letters of a name beside a plot per inch of its panel; longer names would take more than a quarter of it."""
_PANEL_INCHES, _NARROWEST_INCHES, _COLUMNS = 3.4, 1.6, 3
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)


@dataclass(frozen=True)
class FigureStyle:
    """The content and the look of a figure.

    Attributes:
        metrics: one panel each; the first metric if empty.
        against: one of :data:`~fedsim.analysis.comparison.facts.COSTS`.
        xlim: ends of the horizontal axis, ``"0:2d"`` or a pair of numbers; those of the data if None.
        ylim: ends of the vertical axis of the first metric, ``"85%:95%"`` or a pair of numbers; or several texts,
            each of which may name its metric: ``["accuracy=85%:95%", "loss=0:1"]``; by default, the late part of the
            curves if the rest would compress it.
        log: which axes are logarithmic, or ``logit`` for a vertical axis that spreads shares near 0 and 1.
        bands: whether bands from the lowest to the highest run are drawn, instead of thin lines of the runs.
        bound: whether the lower bounds of the curves on time are drawn, thin and pale; see
            :mod:`fedsim.analysis.comparison.curves`.
        width, height: size of the whole figure, in inches or as ``"84mm"``; the width also as a key of :data:`VENUES`.
    """

    metrics: tuple[str, ...] = ()
    against: str = "time_s"
    xlim: str | Sequence[float | None] | None = None
    ylim: str | Sequence[float | None] | Sequence[str] | None = None
    log: Log | None = None
    bands: bool | None = None
    bound: bool = False
    width: str | float | None = None
    height: str | float | None = None

    def __post_init__(self) -> None:
        require_cost(self.against, where="against")
        if self.bound and self.against != "time_s":
            raise UserError("the bound is one on time", where="bound", hint="leave out --against")
        if self.log not in (None, *get_args(Log)):
            hint = f"choose one of {', '.join(get_args(Log))}"
            raise UserError(f"there is no scale '{self.log}'", where="log", hint=hint)

    @property
    def venue(self) -> Venue | None:
        """The venue that the width names."""
        return VENUES.get(self.width.removesuffix("-text")) if isinstance(self.width, str) else None

    @property
    def size(self) -> tuple[float | None, float | None]:
        """Width and height in inches."""
        width, venue = self.width, self.venue
        if venue is not None:
            width = venue.text if str(width).endswith("-text") else venue.column
        return inches(width, "width"), inches(self.height, "height")

    def context(self) -> AbstractContextManager[None]:
        """The parameters of Matplotlib in which the figure is drawn and saved."""
        sheets = ["figure", *([self.venue.sheet] if self.venue is not None else [])]
        return drawing(*(_SHEETS / f"{name}.mplstyle" for name in sheets))

    def has_log_x(self, comparison: ComparisonTables) -> bool:
        """Whether the horizontal axis is logarithmic: as requested, or because runs end far apart in time."""
        is_free = self.log is None and self.xlim is None and self.against == "time_s"
        return self.log in ("x", "xy") or (is_free and comparison.needs_log_time)

    def x_limits(self) -> Limits:
        """Ends of the horizontal axis; infinite if they follow from the data."""
        top = math.inf if self.log in ("x", "xy") else None
        return limits(self.xlim, COSTS[self.against][1], "xlim", top)

    def y_limits(self, metric: str, kind: Kind) -> Limits:
        """Ends of the vertical axis of a metric with values of a kind."""
        given: Any = self.ylim or ()
        several = not isinstance(given, str) and all(isinstance(item, str) for item in given)
        metrics, ranges = self.metrics or (metric,), {}
        for item in given if several else [given]:
            name, ends = item.split("=", 1) if "=" in item else (metrics[0], item)
            if name not in metrics:
                hint = nearest_or_all(name, metrics, "add its panel with --metric")
                raise UserError(f"the figure has no panel of '{name}'", where="ylim", hint=hint)
            ranges[name] = ends
        top = {"y": math.inf, "xy": math.inf, "logit": 1.0}.get(self.log or "")
        return limits(ranges.get(metric), kind, "ylim", top)


def limits(value: Any, kind: Kind, where: str, top: float | None = None) -> Limits:
    """A range such as ``0:2d``, ``85%:95%`` or ``0.9:``, or a pair of numbers; infinite ends if left out.

    Args:
        value: the range.
        kind: kind of the axis' values.
        where: the option that gives it.
        top: the end of an axis that begins above 0; None for a linear axis.
    """
    example = {"time": "0:2d", "bytes": "0:500MB", "share": "85%:95%"}.get(kind, "0:100")
    hint = f"write two values, the lower first: {example}"
    with refused(f"'{value}' is not a range", where, hint, (ValueError, TypeError)):
        ends = value.split(":") if isinstance(value, str) else value or (None, None)
        low, high = (_number(end, kind, free) for end, free in zip(ends, _FREE, strict=True))
        if not low < high:
            raise ValueError("the lower end comes first")
    for end in (low, high) if top is not None else ():
        if math.isfinite(end) and not 0 < end < (top or 0):
            raise UserError(f"--log cannot show {end:g}", where=where, hint="leave out that end")
    return low, high


def _number(end: Any, kind: Kind, free: float) -> float:
    """An end of a range, ``free`` if it is left out; ValueError if it is not a value of the axis."""
    if not isinstance(end, str) or not end.strip():
        return free if end in (None, "") else float(end)
    if kind not in ("time", "bytes"):
        return float(share_of(end) or end)
    number = parse_duration_s(end) if kind == "time" else parse_size_bytes(end)
    if number and not end[-1].isalpha():
        # The axis is labeled in minutes, days or megabytes, and would seem to be meant.
        raise ValueError(f"'{end}' has no unit, as {end}{'min' if kind == 'time' else 'MB'} has")
    return number


def inches(value: str | float | None, where: str) -> float | None:
    """A length in inches: a number, or text with its unit."""
    if value is None:
        return None
    text = value.strip() if isinstance(value, str) else f"{value}in"
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(in|cm|mm|pt)", text)
    if match and 0.5 <= (length := float(match[1]) * _INCHES[match[2]]) <= 100:
        return length
    hint = "write 0.5 to 100 inches, such as 84mm, 8.4cm, 3.25in or 240pt"
    if where == "width":
        hint += f", or name a venue: {', '.join(VENUES)}, with -text for the width of its text"
    raise UserError(f"'{value}' is not a length", where=where, hint=without_comma(text) or hint)


def draw(comparison: ComparisonTables, style: FigureStyle) -> Figure:
    """Medians of metrics against time or cost, a panel per metric and setting; the main figures of timing-only runs."""
    settings, metrics = comparison.grouping.settings, style.metrics
    for name in ("xlim", "ylim", "log", "bands", "bound"):
        if not metrics and getattr(style, name):
            message = "the runs are timing-only, so the figure has bars instead of curves"
            raise UserError(message, where=name, hint=f"leave out {name}")
    variants = looks(comparison.shown.values())
    # As on the page, the lines of many variants hide each other: they have one panel each.
    has_one = len(metrics) == len(settings) == 1
    alone = list(variants) if len(variants) > RUNS_UP_TO and has_one else []
    cells = list(itertools.product(metrics, alone or settings)) or [(name, "") for name in TIMING]
    width, height = style.size
    columns = min(len(cells), max(1, int(width / _NARROWEST_INCHES)) if width else _COLUMNS)
    if len(settings) > 1 and len(metrics) > 1:
        columns = len(settings)
    elif not metrics and columns < len(cells):
        columns = 2
    rows = math.ceil(len(cells) / columns)
    width = width or _PANEL_INCHES * columns
    with style.context():
        from matplotlib.figure import Figure

        lines = [*variants, _BOUND] if style.bound else [*variants]
        texts, beside = legend_names(lines, 72 * width)
        below = 0 if alone else math.ceil(len("\n".join(texts).splitlines()) / beside)
        high = min(1.7 + 0.27 * width / columns, 0.8 * width / columns)
        height = height or max(1.5, high) * rows + 0.17 * below
        figure = Figure(figsize=(width, height), layout="constrained")
        shared: Any = "row" if len(metrics) > 1 < len(settings) else len(metrics) == 1
        grid = list(figure.subplots(rows, columns, squeeze=False, sharey=shared).flat)
        panels = list(zip(grid, cells, strict=False))
        for metric in metrics:
            of_metric = [(axes, setting) for axes, (name, setting) in panels if name == metric]
            if alone:
                of_metric = [(axes, settings[0]) for axes, _ in panels]
            _curves(comparison, style, metric, of_metric, variants, alone)
        for axes, (name, _) in () if metrics else panels:
            _bars(axes, comparison.merged(comparison.summary), name, variants)
        if metrics and (alone or len(settings) > 1):
            for place, (axes, _) in enumerate(panels):
                if place % columns:
                    axes.set_ylabel("")
                    axes.tick_params("y", which="both", labelleft=False)
                # The panel below it, if any, has the axis.
                if place + columns < len(panels):
                    axes.set_xlabel("")
                    axes.tick_params("x", which="both", labelbottom=False)
        for axes in grid:
            axes.set_visible(axes.has_data())
        drawn = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in grid]
        handles = {
            label: handle
            for panel in drawn
            for handle, label in panel
            if not alone or label == _BOUND  # The title of a panel names its variant.
        }
        if handles:
            shown = [texts[lines.index(name)] for name in handles]
            figure.legend(handles.values(), shown, loc="outside lower center", ncols=beside)
    return figure


def _curves(
    comparison: ComparisonTables,
    style: FigureStyle,
    metric: str,
    panels: Sequence[tuple[Any, str]],
    variants: Mapping[str, Look],
    alone: Sequence[str],
) -> None:
    """Draw the panels of a metric, one per setting or, if there are any, one per variant in ``alone``, whose others are
    gray; with one vertical range, the targets, and short names at the ends of lines."""
    from matplotlib.cbook import pts_to_poststep
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import FixedLocator, NullLocator

    definition, (cost, kind) = comparison.definition(metric), COSTS[style.against]
    frame = comparison.merged(comparison.curves(metric, style.against, 4000))
    frame = frame.dropna(subset="median")
    percent, log = definition.unit == "share", style.log or ""
    log_x = style.has_log_x(comparison)
    scale = 100.0 if percent and log != "logit" else 1.0
    if log == "logit" and not frame["median"].between(0, 1).all():
        message = f"logit shows shares between 0 and 1, which {metric} is not"
        raise UserError(message, where="log", hint="choose y")
    xlim, ylim = style.x_limits(), style.y_limits(metric, definition.unit)
    bands = bool(style.bands)
    runs = style.bands is None and (bool(alone) or len(variants) <= RUNS_UP_TO)
    axes_of = (("xlim", xlim, "x", kind), ("ylim", ylim, "median", definition.unit))
    for where, ends, column, of in axes_of:
        first, last = float(frame[column].min()), float(frame[column].max())
        if ends[0] > last or ends[1] < first:
            hint = f"the curves go from {format_value(first, of)} to {format_value(last, of)}"
            raise UserError("the range is outside the data", where=where, hint=hint)
    is_free = not log and not log_x and xlim == ylim == _FREE
    late = late_range(frame, definition, bands=bands) if is_free else None
    low, high = late or _FREE
    notes = [f"below {definition.format(low)}"] if frame["median"].min() < low else []
    notes += [f"above {definition.format(high)}"] if frame["median"].max() > high else []
    per_unit, unit = axis_unit(min(xlim[1], float(frame["x"].max())), kind)
    times = log_x and kind == "time"
    if times:  # The ticks have units.
        per_unit, unit = 1.0, ""
    frame["x"] /= per_unit
    frame[["median", "low", "high"]] *= scale
    of_runs = list(comparison.series(metric, style.against, 4000)) if runs else []
    bound = frame[:0]
    if style.bound:
        bound = comparison.merged(comparison.curves(metric, points=4000, bound=True))
    left, right = (end / per_unit for end in xlim)
    bottom, top = (end * scale for end in late or ylim)
    inches = panels[0][0].figure.get_figwidth() / panels[0][0].get_gridspec().ncols
    has_names = not alone and max(map(len, variants)) <= _LETTERS * inches
    room = 72 * (inches - 0.5)
    for number, (axes, setting) in enumerate(panels):
        hidden = list(notes)
        for label, rows in frame[frame["setting"] == setting].groupby("label", sort=False):
            # A value holds until the next one; the last one is a point.
            until = rows["x"].shift(-1, fill_value=rows["x"].iloc[-1])
            rows = rows[(until >= left) & (rows["x"] <= right)]
            if alone and label != alone[number]:
                gray = {"color": "0.75", "linewidth": 0.6, "zorder": 1}
                axes.plot(rows["x"], rows["median"], drawstyle="steps-post", **gray)
                continue
            hidden += [] if rows["median"].between(bottom, top).any() else [str(label)]
            look, count = variants[str(label)], len(rows)
            every = max(1, count // 8)
            # The last value has a marker, because the step to it ends there.
            marked = [*range(every // 2, count - every, every), count - 1] if count else []
            line = {"color": look.light, "linestyle": (0, look.dash), "drawstyle": "steps-post"}
            points = {"marker": look.marker, "markevery": marked, "label": label}
            axes.plot(rows["x"], rows["median"], **line, **points)
            if bands and rows["low"].notna().any():
                shade = {"step": "post", "color": look.light, "alpha": 0.12, "linewidth": 0}
                axes.fill_between(rows["x"], rows["low"], rows["high"], **shade)
        for group, x, curve in of_runs:
            name = comparison.shown.get((group.setting, group.label))
            if alone and name != alone[number]:
                continue
            if name and group.setting == setting and len(group.runs) > 1:
                steps, *values = pts_to_poststep(x / per_unit, *(curve["runs"] * scale))
                lines = LineCollection([np.column_stack([steps, each]) for each in values])
                thin = {"linewidth": 0.5, "capstyle": "projecting", "joinstyle": "round"}
                lines.set(color=variants[name].light, alpha=0.45, zorder=1, **thin)
                axes.add_collection(lines)
        for label, rows in bound[bound["setting"] == setting].groupby("label", sort=False):
            pale = {"color": variants[str(label)].light, "linewidth": 0.6, "alpha": 0.6}
            bounds = rows["x"] / per_unit, rows["median"] * scale
            axes.plot(*bounds, drawstyle="steps-post", **pale)
        if style.bound:
            axes.plot([], [], color="gray", linewidth=0.6, alpha=0.6, label=_BOUND)
        if hidden:
            y, va = (0.03, "bottom") if definition.higher_is_better else (0.97, "top")
            note = filled(f"not shown: {', '.join(hidden)}", room, 5.6)
            axes.text(0.98, y, note, transform=axes.transAxes, ha="right", va=va, size="x-small")
        title = alone[number] if alone else setting if metric == style.metrics[0] else ""
        axes.set_title(filled(title, room, 9.6))
        axes.set_xlabel(f"{cost} ({unit})" if unit else cost)
        axes.set_ylabel(f"{definition.label} (%)" if percent else definition.label)
        axes.set_xscale("log" if log_x else "linear")
        axes.set_yscale({"y": "log", "xy": "log", "logit": "logit"}.get(log, "linear"))
        if log == "logit":
            axes.yaxis.set_major_locator(FixedLocator(_SHARES))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v if percent else v:.4g}")
        if axes.get_xscale() == "linear":
            axes.set_xlim(left=0)
        axes.set_xlim(*(end if math.isfinite(end) else None for end in (left, right)))
    for axes, _ in panels:
        if scale == 100:
            axes.set_ylim(max(axes.get_ylim()[0], 0), min(axes.get_ylim()[1], 100))
        axes.set_ylim(*(end if math.isfinite(end) else None for end in (bottom, top)))
        label_plainly(axes, times=times)
        lowest, highest = axes.get_ylim()
        goals = [goal.value for goal in comparison.goals if goal.metric == metric]
        above, text = math.inf, axes.annotate("", (0, 0))
        for goal in sorted((g for g in goals if lowest <= scale * g <= highest), reverse=True):
            axes.axhline(scale * goal, color="0.4", linewidth=0.8, dashes=(6, 4), zorder=1)
            level, height = format_level(goal, definition.unit), _height(axes, scale * goal)
            if above - height < _line(axes):  # Names that would touch are one.
                text.set_text(f"{text.get_text()}, {level}")
            else:
                place: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
                text = axes.annotate(f"target {level}", (0, height), (3, 2), size="small", **place)
            above = height
        if has_names:
            _name_ends(axes, variants, [scale * goal for goal in goals])


def _height(axes: Any, value: float) -> float:
    """The height of a value as a share of the axes."""
    return float((axes.transScale + axes.transLimits).transform((1.0, value))[1])


def _line(axes: Any) -> float:
    """About the height of a line of text as a share of the axes, whose own follows from the layout."""
    return 0.15 / float(axes.figure.get_figheight()) * int(axes.get_gridspec().nrows)


def _name_ends(axes: Any, variants: Mapping[str, Look], goals: Sequence[float]) -> None:
    """Write the names of lines at their ends, or as near as they touch no other name and, if possible, no line; in
    the order of the ends."""
    grid, figure = axes.get_gridspec(), axes.figure
    # About the size in points, which follows from the layout.
    size = 54 * np.array([figure.get_figwidth() / grid.ncols, figure.get_figheight() / grid.nrows])
    to_points = (axes.transScale + axes.transLimits).transform
    lines = {str(line.get_label()): line.get_xydata() for line in axes.get_lines()}
    lines = {name: lines[name] for name in variants if len(lines.get(name, ()))}
    paths = {name: to_points(line) * size for name, line in lines.items()}
    levels = [_height(axes, goal) * size[1] for goal in goals]
    ordered = sorted(paths, key=lambda name: paths[name][-1, 1])
    spans = [(paths[name][-1, 0], paths[name][-1, 0] + 8 + 4 * len(name)) for name in ordered]
    at = [paths[name][-1, 1] for name in ordered]
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(at)), 2)
        if spans[i][0] <= spans[j][1] and spans[j][0] <= spans[i][1]
    ]
    for _ in range(99):  # Names that touch push each other apart.
        for i, j in pairs:
            push = max(0.0, 9.01 - at[j] + at[i]) / 2
            at[i], at[j] = max(0.0, at[i] - push), min(size[1], at[j] + push)
    for number, (name, (left, right)) in enumerate(zip(ordered, spans, strict=True)):
        others = [other.T for other in paths.values() if other[-1, 0] > left]
        ends = [np.searchsorted(x, [left, right]) - (1, 0) for x, _ in others]
        over = [levels, *(y[max(0, a) : b] for (_, y), (a, b) in zip(others, ends, strict=True))]
        low = max((at[i] + 9 for i, j in pairs if j == number), default=0.0)
        high = min((at[j] - 9 for i, j in pairs if i == number), default=size[1])
        near = [y for y in at[number] + 9 * np.array([0, 1, -1, 2, -2]) if low <= y <= high]
        clear = (y for y in near if min(np.abs(np.concatenate(over) - y), default=9) > 5)
        at[number] = next(clear, at[number])
        by, color = at[number] - paths[name][-1, 1], variants[name].light
        if abs(by) <= _NEAR:  # The legend has the others.
            place: Any = {"textcoords": "offset points", "annotation_clip": False, "va": "center"}
            axes.annotate(name, lines[name][-1], (4, by), size="small", color=color, **place)


def _bars(axes: Any, summary: pd.DataFrame, name: str, variants: Mapping[str, Look]) -> None:
    """Draw one bar per variant in each setting, with its deviation over seeds."""
    label, kind = FIGURES[name]
    settings, most = summary["setting"].unique(), float(summary[name].max())
    scale, unit = (0.01, "%") if kind == "share" else axis_unit(most, kind)
    each = 0.8 / len(variants)
    for number, (variant, look) in enumerate(variants.items()):
        rows = summary[summary["label"] == variant].set_index("setting").reindex(settings)
        places = np.arange(len(settings)) + (number - (len(variants) - 1) / 2) * each
        heights, deviations = rows[name] / scale, rows[f"{name}_sd"] / scale
        axes.bar(places, heights, 0.9 * each, yerr=deviations, label=variant, color=look.light)
    axes.set_title(f"{label} ({unit})" if unit else label)
    axes.set_ylim(bottom=0, top=None if most > 0 else 1)
    axes.grid(visible=False, axis="x")
    inches = axes.figure.get_figwidth() / axes.get_gridspec().ncols
    room = 64 * (inches - 0.5) / len(settings)
    turned = room < 36  # About eight letters, which is the narrowest text.
    names = [filled(setting, 72 if turned else room, 8) for setting in settings]
    axes.set_xticks(range(len(settings)), names, rotation=90 if turned else 0)


def save(figure: Figure, paths: Iterable[Path], style: FigureStyle) -> None:
    """Write a figure into files; the suffix of each gives its format."""
    with style.context():
        try:
            figure.draw_without_rendering()
        except ValueError as error:
            formula, _, problem = str(error).strip().partition("\n")
            if "Parse" not in problem:
                raise
            what = f"cannot be drawn as a formula, which text between dollar signs is: {formula}"
            raise UserError(
                what, where="labels", hint="correct the formula, or name the variant otherwise"
            ) from error
        figure.set_layout_engine(None)
        for path in paths:
            dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix)
            save_picture(figure, path, metadata=dates, dpi=300)
