"""The plots of trace bundles: one or several side by side, as an HTML page or an image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.analysis.figures.base import Column, Figure, sentence
from fedsim.analysis.figures.lines import (
    Line,
    cumulative,
    drawing,
    label_plainly,
    legend_names,
    line_figure,
    places,
    save_picture,
)
from fedsim.analysis.headline import Tile
from fedsim.analysis.pages import refuse_folder, rendered, write_page
from fedsim.analysis.palette import LOOKS
from fedsim.errors import UserError, refused
from fedsim.traces.inspection import WEEKDAYS, sections
from fedsim.traces.statistics import BundleStatistics, Spread
from fedsim.vocabulary.formatting import (
    Kind,
    format_count,
    format_counted,
    format_names,
    format_number,
    format_share,
    format_value,
)

SUFFIXES = (".html", ".png", ".svg", ".pdf")


def require_drawable(path: Path) -> None:
    """Check that :func:`write_plot` can draw a file of this name."""
    refuse_folder(path, "traces.html")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(
            f"cannot draw a '{path.suffix}' file" if path.suffix else "the name has no suffix",
            where=path,
            hint=f"use {', '.join(SUFFIXES)}",
        )


def write_plot(all_statistics: Sequence[BundleStatistics], path: Path) -> None:
    """Draw the distributions of one or several bundles into a file: .html (a self-contained page), .png, .svg or .pdf.

    Plots for which no bundle has data are left out.
    """
    require_drawable(path)
    panels = list(_panels(all_statistics))
    if path.suffix.lower() == ".html":
        write_page(path, _page(all_statistics, panels))
        return
    with refused("cannot be written", path), drawing():
        save_picture(_picture(all_statistics, panels), path, dpi=130)


# -- panels ----------------------------------------------------------------------------------------------------------


def _panels(every: Sequence[BundleStatistics]) -> Iterator[Figure]:
    online = [(number, each.availability) for number, each in enumerate(every) if each.availability]
    names = [each.name for each in every]
    if online:
        most = [
            (n, f"most online at {int(a.by_hour.argmax()):02d}:00 ({format_share(a.by_hour.max())}), "
                f"fewest at {int(a.by_hour.argmin()):02d}:00 ({format_share(a.by_hour.min())})")
            for n, a in online
            if np.isfinite(a.by_hour).all()
        ]  # fmt: skip
        hours = [Line(n, names[n], np.append(a.by_hour, a.by_hour[-1:])) for n, a in online]
        finding = _each_says(names, most) if most else "Not every hour was observed."
        x = Column("x", "hour", "count", np.arange(25.0))
        words = "hour", "Online by hour of the day", finding
        yield line_figure(*words, x, hours, unit="devices online", ticks=list(range(0, 25, 6)))
    days = [(n, a.by_weekday) for n, a in online if a.by_weekday is not None]
    if days:
        shares = [
            (n, f"from {format_share(np.nanmin(d))} to {format_share(np.nanmax(d))} online")
            for n, d in days
        ]
        x = Column("x", "day", "count", np.arange(7.0))
        lines = [Line(n, names[n], d) for n, d in days]
        words = "weekday", "Online by weekday", _each_says(names, shares)
        yield line_figure(*words, x, lines, unit="devices online", names=WEEKDAYS)
    for id, title, label, unit in _OF_AVAILABILITY:
        spreads = [(n, id, getattr(a, id)) for n, a in online]
        yield from _distribution(names, id, title, label, unit, spreads)
    column = _common_column(every)
    compute = [
        (n, name, s.compute[name])
        for n, s in enumerate(every)
        for name in [column or next(iter(s.compute), "")]
        if name in s.compute
    ]
    label = _SPEEDS.get(column, column or "compute figure")
    kind: Kind = "time" if column.endswith("_s") else "number"
    yield from _distribution(names, "compute", "Speed of devices", label, kind, compute)
    links = [(n, name, spread) for n, s in enumerate(every) for name, spread in s.network.items()]
    rates = [
        (n, name.replace("bandwidth_bps", "rate"), spread)
        for n, name, spread in links
        if name.startswith("bandwidth")
    ]
    yield from _distribution(names, "rate", "Bandwidth", "Mbit/s", "number", rates, 1e-6)
    rtt = [
        (n, "rtt", spread)
        for n, name, spread in links
        if name.startswith("rtt") and not name.endswith("up")
    ]
    yield from _distribution(names, "rtt", "Round-trip time", "round-trip time", "time", rtt)


def _each_says(names: Sequence[str], texts: Sequence[tuple[int, str]]) -> str:
    if len(names) == 1:
        return f"{sentence('; '.join(text for _, text in texts))}."
    return "; ".join(f"{names[number]}: {text}" for number, text in texts) + "."


def _distribution(
    names: Sequence[str],
    id: str,
    title: str,
    label: str,
    kind: Kind,
    every: Sequence[tuple[int, str, Spread]],
    factor: float = 1.0,
) -> Iterator[Figure]:
    """The panel of a quantity of devices, if there are samples of it: ``every`` has the numbers of the bundles with a
    name and a spread of values each, and ``factor`` is that of the values shown."""
    spreads = [one for one in every if len(one[2].samples)]
    if not spreads:
        return
    samples = [spread.samples * factor for _, _, spread in spreads]
    x = places(samples, log=kind != "share", times=kind == "time")
    lines, texts = [], dict[int, list[str]]()
    for (n, name, spread), values in zip(spreads, samples, strict=True):
        several = len({other for m, other, _ in spreads if m == n}) > 1
        shown = f"{names[n]}, {name}" if several else names[n]
        lines.append(Line(n, shown, cumulative(values, x), thin=name.endswith("up")))
        if spread.fits and id in ("sessions_s", "gaps_s"):
            fit = spread.fits[0]
            lines.append(Line(n, f"{shown}: {fit.family}", fit.cdf(x / factor), fit=True))
        way = name.rpartition(" ")[2] if name.endswith((" up", " down")) else ""
        unit = f" {label}" if factor != 1 else ""
        middle = format_value(spread.percentile(50) * factor, kind)
        texts.setdefault(n, []).append(f"{middle}{unit} {way}".strip())
    finding = _each_says(names, [(n, f"median {format_names(m)}") for n, m in texts.items()])
    axis = Column("x", label, kind, x)
    yield line_figure(id, title, finding, axis, lines, log=kind != "share")


_OF_AVAILABILITY: tuple[tuple[str, str, str, Kind], ...] = (
    ("share", "Time online per device", "share of its time", "share"),
    ("sessions_s", "Length of sessions", "length", "time"),
    ("gaps_s", "Length of gaps", "length", "time"),
    ("remaining_s", "Remaining time online", "from a moment online", "time"),
)
"""Attributes of the statistics of availability, each with the title, label and kind of its panel."""
_SPEEDS = {
    "relative_speed": "speed relative to the reference",
    "sample_s": "time per sample",
    "step_fixed_s": "time per step",
}
"""Columns of speeds and the labels of their axes."""


def _common_column(every: Sequence[BundleStatistics]) -> str:
    """A column of speeds that all bundles with speeds have, for comparison; empty if there is none."""
    computes = [each.compute for each in every if each.compute]
    known = ("relative_speed", "sample_s", "step_fixed_s", "score")
    return next((name for name in known if computes and all(name in c for c in computes)), "")


# -- page ------------------------------------------------------------------------------------------------------------


def _page(every: Sequence[BundleStatistics], panels: list[Figure]) -> str:
    figures = {panel.id: panel for panel in panels}
    columns = [sections(each, bars=False) for each in every]
    titles = dict.fromkeys(title for column in columns for title in column)
    tables = {
        f"table-{number}": _table(f"table-{number}", title, columns, every)
        for number, title in enumerate(titles)
    }
    names = [each.name for each in every]
    online = [
        f"{each.name}: {format_share(each.availability.online_share)} online"
        for each in every
        if each.availability
    ]
    tiles = [
        Tile(
            each.name,
            format_counted(each.devices, "device"),
            f"{format_count(each.valid_devices)} with a usable trace"
            + (
                f", {format_number(days)} device-days"
                if math.isfinite(days := each.device_days)
                else ""
            ),
        )
        for each in every
    ]
    return rendered(
        "traces.html.j2",
        {**figures, **tables},
        title=f"Traces: {format_names(names)}",
        headline=", ".join(online or names),
        tiles=tiles,
        plots=list(figures.values()),
        tables=list(tables.values()),
    )


def _table(
    id: str, title: str, columns: Sequence[Any], every: Sequence[BundleStatistics]
) -> Figure:
    cells = [column.get(title, {}) for column in columns]
    labels = list(dict.fromkeys(label for rows in cells for label in rows))
    shown = [Column("label", "", "text", labels)]
    for each, rows in zip(every, cells, strict=True):
        shown.append(
            Column(each.name, each.name, "text", [rows.get(label, "–") for label in labels])
        )
    return Figure(id, title, tuple(shown))


# -- picture ---------------------------------------------------------------------------------------------------------


def _picture(every: Sequence[BundleStatistics], panels: list[Figure]) -> Any:
    # The object interface: no window system and no global state.
    from matplotlib.figure import Figure as Picture

    columns = min(3, max(1, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    picture = Picture(figsize=(4.4 * columns, 3.2 * rows + 0.5), layout="constrained")
    for number, panel in enumerate(panels, 1):
        (x, *values), extra = panel.columns, panel.extra
        axes = picture.add_subplot(rows, columns, number, title=extra["title"], xlabel=x.label)
        axes.set_ylabel(f"{extra['unit']} (%)")
        axes.title.set_fontsize(10)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if extra["log"]:
            axes.set_xscale("log")
        if "names" in extra:
            axes.set_xticks(range(len(extra["names"])), extra["names"])
        if "ticks" in extra:
            axes.set_xticks(extra["ticks"])
        for line, column in zip(extra["series"], values, strict=True):
            fits, is_thin, look = line["fit"], line["plain"], line["look"]
            axes.plot(
                x.values,
                100 * np.asarray(column.values),
                ":" if fits else "--" if is_thin else "-",
                color="black" if fits else LOOKS[look % len(LOOKS)].light,
                linewidth=1 if fits else 1.5,
                label="best fit" if fits else "uplink" if is_thin else every[look].name,
            )
        axes.set_ylim(bottom=0)
        label_plainly(axes, times=x.kind == "time")
    drawn = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in picture.axes]
    handles = {label: handle for axes in drawn for handle, label in axes}
    names, beside = legend_names(list(handles), 72 * picture.get_figwidth())
    place: Any = {"loc": "outside upper center", "ncols": beside, "frameon": False}
    picture.legend(handles.values(), names, **place)
    return picture
