"""The figures of trace bundles as text, as plain data, and as plots; several bundles side by side."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedsim.errors import UserError
from fedsim.traces.fitting import Fit
from fedsim.traces.statistics import BundleStatistics, Spread

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
BARS = " ▁▂▃▄▅▆▇█"
PLOT_SUFFIXES = (".png", ".svg", ".pdf", ".html")
# Distinct for all common forms of color blindness (Okabe and Ito 2008), dark enough on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")

Row = tuple[str, str]
Section = tuple[str, list[Row]]


def length_text(seconds: float) -> str:
    """A length of time in few characters: ``0.02 s``, ``181 s``, ``1.3 h``, ``4.2 d``."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if math.isfinite(seconds) else "-"


def _rate_text(bps: float) -> str:
    return f"{bps / 1e6:.3g} Mbit/s"


def _spread(spread: Spread, text: Any, percents: Sequence[float] = (10, 50, 90)) -> str:
    if not spread.count:
        return "-"
    parts = " / ".join(text(spread.percentile(percent)) for percent in percents)
    return f"{parts}  (mean {text(spread.mean)})"


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"


def _fit_text(fit: Fit) -> str:
    values = fit.parameters
    match fit.family:
        case "lognormal":
            inner = f"mu {values['mu']:.2f}, sigma {values['sigma']:.2f}"
        case "weibull":
            inner = f"k {values['k']:.3f}, scale {values['scale']:,.0f}"
        case "exponential":
            inner = f"mean {values['mean']:,.0f}"
        case _:
            inner = (
                f"w {values['w1']:.2f}/{1 - values['w1']:.2f}, mu {values['mu1']:.2f}/{values['mu2']:.2f},"
                f" sigma {values['sigma1']:.2f}/{values['sigma2']:.2f}"
            )
    return f"{inner}; KS {fit.ks:.3f}, AIC {fit.aic:.3f}"


def _bars(values: np.ndarray[Any, Any]) -> str:
    top = np.nanmax(values, initial=0.0)
    if not top:
        return ""
    levels = np.nan_to_num(values / top * (len(BARS) - 1)).round().astype(int)
    return "".join(BARS[level] for level in levels)


def sections(statistics: BundleStatistics) -> list[Section]:
    """Titles and rows of text; bundles with the same tables have the same labels."""
    result = [_overview(statistics)]
    if statistics.availability is not None:
        result += _availability(statistics)
    compute: list[Row] = []
    for name, spread in statistics.compute.items():
        if name == "ram_bytes":
            text: Any = lambda value: f"{value / 1e9:.3g} GB"  # noqa: E731
        elif name.endswith("_s"):
            text = lambda value: f"{1000 * value:.3g} ms"  # noqa: E731
        else:
            text = lambda value: f"{value:,.4g}"  # noqa: E731
        compute += _column(name, spread, text)
    if compute:
        result.append(("Compute (devices: 5 / 50 / 95 %)", compute))
    network: list[Row] = []
    for name, spread in statistics.network.items():
        network += _column(name, spread, length_text if name.startswith("rtt") else _rate_text)
    for way, spread in statistics.series.items():
        network.append((f"series {way}, in time", _spread(spread, _rate_text, (5, 50, 95))))
        outage = float((spread.samples < 1e5).mean())
        network.append((f"series {way}, below 0.1 Mbit/s", _share(outage)))
    if statistics.speed_bandwidth_rank_correlation is not None:
        correlation = statistics.speed_bandwidth_rank_correlation
        network.append(("rank correlation of speed and rate", f"{correlation:+.2f}"))
    if network:
        result.append(("Network (devices: 5 / 50 / 95 %)", network))
    return result


def _column(name: str, spread: Spread, text: Any) -> list[Row]:
    rows = [(name, _spread(spread, text, (5, 50, 95)))]
    low, high = spread.percentile(5), spread.percentile(95)
    if low > 0 and high > low:
        rows.append((f"{name}, p95 / p5", f"{high / low:.3g}"))
    rows += [(f"{name}, {fit.family}", _fit_text(fit)) for fit in spread.fits]
    return rows


def _overview(statistics: BundleStatistics) -> Section:
    return (
        "Devices",
        [
            ("devices", f"{statistics.devices:,}"),
            ("with a usable trace", f"{statistics.valid_devices:,}"),
            ("device-days observed", f"{statistics.device_days:,.1f}"),
            (
                "days observed of a device, 10 / 50 / 90 %",
                _spread(statistics.observed_days, lambda value: f"{value:.3g}"),
            ),
        ],
    )


def _availability(statistics: BundleStatistics) -> list[Section]:
    found = statistics.availability
    assert found is not None
    hours = found.by_hour
    when: list[Row] = [
        ("online, share of the time", _share(found.online_share)),
        ("share of a device, 10 / 50 / 90 %", _spread(found.share, _share)),
        ("devices never online", f"{found.never_online:,}"),
        (
            "share online at a moment, 0 / 50 / 100 %",
            _spread(found.moments, _share, (0, 50, 100)),
        ),
        (f"by hour, 0 to 23 ({statistics.clock} clock)", _bars(hours)),
    ]
    if np.isfinite(hours).all() and hours.max() > 0:
        lowest = hours.min()
        ratio = f", ratio {hours.max() / lowest:.2f}" if lowest > 0 else ""
        when.append(
            (
                "most and fewest online",
                f"{_share(hours.max())} at {int(hours.argmax()):02d} h, {_share(lowest)} at"
                f" {int(hours.argmin()):02d} h{ratio}",
            )
        )
    if found.rhythm is not None:
        rhythm = found.rhythm
        when.append(
            (
                "cosine m (1 + A cos(2 pi (h - h0) / 24))",
                f"m {rhythm.mean:.3f}, A {rhythm.amplitude:.2f}, h0 {rhythm.peak_hour:.1f}; R2 {rhythm.r2:.2f}",
            )
        )
    if found.by_weekday is not None:
        days = zip(WEEKDAYS, found.by_weekday, strict=True)
        text = "  ".join(f"{name} {100 * share:.1f}" for name, share in days if np.isfinite(share))
        when.append(("by weekday (%)", text))
    lengths: list[Row] = [
        ("sessions", f"{found.sessions.count:,}"),
        (
            "sessions a device and day, 10 / 50 / 90 %",
            _spread(found.sessions_a_day, lambda value: f"{value:.3g}"),
        ),
        ("session, 10 / 50 / 90 %", _spread(found.sessions, length_text)),
        ("gap, 10 / 50 / 90 %", _spread(found.gaps, length_text)),
        ("remaining of a device picked online", _spread(found.remaining, length_text)),
    ]
    for level, (of_sessions, of_devices) in found.at_least.items():
        lengths.append(
            (
                f"at least {length_text(level)}: sessions; devices picked online",
                f"{_share(of_sessions)}; {_share(of_devices)}",
            )
        )
    fits: list[Row] = []
    for what, spread in (("session", found.sessions), ("gap", found.gaps)):
        # One order for all bundles, so that they can stand side by side.
        for fit in sorted(spread.fits, key=lambda fit: fit.family):
            best = "  (best)" if fit is spread.fits[0] else ""
            fits.append((f"{what}: {fit.family}", _fit_text(fit) + best))
    result = [("When online", when), ("How long", lengths)]
    return [*result, ("Fitted distributions (s)", fits)] if fits else result


def write_text(all_statistics: Sequence[BundleStatistics], console: Console) -> None:
    """Print the tables of one bundle, or of several side by side."""
    titles: dict[str, dict[str, None]] = {}
    texts: list[dict[tuple[str, str], str]] = []
    for statistics in all_statistics:
        texts.append({})
        for title, rows in sections(statistics):
            labels = titles.setdefault(title, {})
            for label, text in rows:
                labels[label] = None
                texts[-1][title, label] = text
    for title, labels in titles.items():
        table = Table(title=title, title_justify="left", title_style="bold", show_edge=False)
        table.add_column("")
        for statistics in all_statistics:
            table.add_column(statistics.name, overflow="fold")
        for label in labels:
            table.add_row(label, *(text.get((title, label), "-") for text in texts))
        console.print(table)
        console.print()


def as_data(statistics: BundleStatistics) -> dict[str, Any]:
    """The figures as plain data for scripts: percentiles instead of samples; seconds, bit/s and shares from 0 to 1."""
    found = statistics.availability
    return {
        "name": statistics.name,
        "devices": statistics.devices,
        "valid_devices": statistics.valid_devices,
        "device_days": statistics.device_days,
        "clock": statistics.clock,
        "availability": None
        if found is None
        else {
            "online_share": found.online_share,
            "never_online": found.never_online,
            "share": _figures(found.share),
            "sessions_s": _figures(found.sessions),
            "gaps_s": _figures(found.gaps),
            "sessions_a_day": _figures(found.sessions_a_day),
            "remaining_s": _figures(found.remaining),
            "at_least": [
                {"length_s": level, "sessions": sessions, "devices_picked_online": picked}
                for level, (sessions, picked) in found.at_least.items()
            ],
            "by_hour": _numbers(found.by_hour),
            "by_weekday": None if found.by_weekday is None else _numbers(found.by_weekday),
            "moments": _figures(found.moments),
            "rhythm": None if found.rhythm is None else vars(found.rhythm),
        },
        "compute": {name: _figures(spread) for name, spread in statistics.compute.items()},
        "network": {name: _figures(spread) for name, spread in statistics.network.items()},
        "network_series_bps": {
            name: _figures(spread) for name, spread in statistics.series.items()
        },
        "speed_bandwidth_rank_correlation": statistics.speed_bandwidth_rank_correlation,
    }


def _numbers(values: np.ndarray[Any, Any]) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]


def _figures(spread: Spread) -> dict[str, Any]:
    if not spread.count:
        return {"count": 0}
    percents = (0, 5, 10, 25, 50, 75, 90, 95, 100)
    return {
        "count": spread.count,
        "mean": spread.mean,
        "percentiles": {str(percent): spread.percentile(percent) for percent in percents},
        "fits": [
            {"family": fit.family, **fit.parameters, "ks": fit.ks, "aic": fit.aic}
            for fit in spread.fits
        ],
    }


def write_plot(all_statistics: Sequence[BundleStatistics], path: Path) -> None:
    """Draw the distributions of one or several bundles into a file: .png, .svg, .pdf, or a self-contained .html page.

    Raises:
        UserError: the file's suffix is another one, or it cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in PLOT_SUFFIXES:
        raise UserError(
            f"cannot draw a '{suffix}' file",
            where=str(path),
            hint=f"use {', '.join(PLOT_SUFFIXES)}",
        )
    figure = _draw(all_statistics)
    try:
        if suffix != ".html":
            figure.savefig(path, dpi=130)
        else:
            path.write_text(_page(all_statistics, figure), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _draw(all_statistics: Sequence[BundleStatistics]) -> Any:
    # The object interface: no window system and no global state.
    from matplotlib.figure import Figure

    # Fixed margins: laying out by measuring the texts takes longer than drawing.
    margins = {
        "left": 0.06,
        "right": 0.98,
        "bottom": 0.06,
        "top": 0.91,
        "hspace": 0.42,
        "wspace": 0.24,
    }
    figure = Figure(figsize=(13, 10))
    axes = figure.subplots(3, 3, gridspec_kw=margins)
    # A column that all have, if there is one, so that bundles can be compared.
    have = [statistics.compute.keys() for statistics in all_statistics if statistics.compute]
    common = (
        name
        for name in ("relative_speed", "sample_s", "score")
        if all(name in names for names in have)
    )
    shared = next(common, None)
    for statistics, color in zip(all_statistics, _colors(len(all_statistics)), strict=True):
        found = statistics.availability
        if found is not None:
            hours = np.append(found.by_hour, found.by_hour[-1:])
            axes[0, 0].step(np.arange(25), 100 * hours, where="post", color=color)
            if found.by_weekday is not None:
                axes[0, 1].plot(range(7), 100 * found.by_weekday, "o-", color=color)
            _cumulative(axes[0, 2], 100 * found.share.samples, color)
            _cumulative(axes[1, 0], found.sessions.samples, color, found.sessions.fits)
            _cumulative(axes[1, 1], found.gaps.samples, color, found.gaps.fits)
            _cumulative(axes[1, 2], found.remaining.samples, color)
        name = shared if shared in statistics.compute else next(iter(statistics.compute), None)
        if name is not None:
            _cumulative(axes[2, 0], statistics.compute[name].samples, color, label=name)
        for name, spread in statistics.network.items():
            style = "--" if name.endswith("up") else "-"
            if name.startswith("bandwidth"):
                _cumulative(axes[2, 1], spread.samples / 1e6, color, style=style, label=name[-4:])
            elif not name.endswith("up"):
                _cumulative(axes[2, 2], 1000 * spread.samples, color)
    for place, title, x_label, logarithmic in (
        (axes[0, 0], "online by hour of day", "hour", False),
        (axes[0, 1], "online by weekday", "", False),
        (axes[0, 2], "time online of a device", "% of its time", False),
        (axes[1, 0], "session lengths (dotted: best fit)", "s", True),
        (axes[1, 1], "gap lengths (dotted: best fit)", "s", True),
        (axes[1, 2], "remaining time online", "s", True),
        (axes[2, 0], "compute", "", True),
        (axes[2, 1], "bandwidth (dashed: up)", "Mbit/s", True),
        (axes[2, 2], "round-trip time", "ms", True),
    ):
        place.set_title(title, fontsize=10)
        place.set_xlabel(x_label)
        place.grid(alpha=0.3)
        if not place.lines:
            place.text(0.5, 0.5, "not in the bundle", ha="center", transform=place.transAxes)
        elif logarithmic:
            _logarithmic(place)
    for place in axes.flat:
        place.set_ylabel("share of them")
    for place in (axes[0, 0], axes[0, 1]):
        place.set_ylabel("% of devices")
        place.set_ylim(0, 1.08 * place.get_ylim()[1])
    axes[0, 0].set_xticks(range(0, 25, 4))
    axes[0, 1].set_xticks(range(7), WEEKDAYS)
    if axes[2, 0].lines:
        axes[2, 0].legend(fontsize=8)
    handles = [
        axes[0, 0].plot([], [], color=color, label=statistics.name)[0]
        for statistics, color in zip(all_statistics, _colors(len(all_statistics)), strict=True)
    ]
    figure.legend(handles=handles, loc="upper center", ncols=len(handles))
    return figure


def _logarithmic(axes: Any) -> None:
    """A logarithmic axis whose labels stay apart, over few decades as over many; times under a second are cut off."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if axes.get_xlabel() == "s" and low < 0.5 < high:
        axes.set_xlim(left=0.5)
    few = high < 500 * low
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    if few:
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _colors(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]


def _cumulative(
    axes: Any,
    samples: np.ndarray[Any, Any],
    color: str,
    fits: Sequence[Fit] = (),
    style: str = "-",
    label: str | None = None,
) -> None:
    """Distribution function of samples; with fits, the best one dotted over it."""
    if not len(samples):
        return
    places = np.unique(
        np.linspace(0, len(samples) - 1, min(len(samples), 2000)).round().astype(int)
    )
    levels = (places + 1) / len(samples)
    axes.plot(samples[places], levels, style, color=color, label=label, drawstyle="steps-post")
    if fits:
        positive = samples[samples > 0]
        x = np.geomspace(positive[0], positive[-1], 200)
        axes.plot(x, fits[0].cdf(x), ":", color=color, linewidth=2)


def _page(all_statistics: Sequence[BundleStatistics], figure: Any) -> str:
    names = ", ".join(statistics.name for statistics in all_statistics)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=130)
    encoded = base64.b64encode(picture.getvalue()).decode("ascii")
    console = Console(file=io.StringIO(), width=110 + 60 * (len(all_statistics) - 1), record=False)
    write_text(all_statistics, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    title = html.escape(f"Traces: {names}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        "<style>body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem;"
        "color:#1a1a1a;background:#fff}img{max-width:100%}pre{overflow:auto;font-size:13px}</style></head>\n"
        f"<body><h1>{title}</h1>\n"
        f'<img alt="Distributions of availability, compute and network; the figures are in the tables below" '
        f'src="data:image/png;base64,{encoded}">\n'
        f'<pre tabindex="0">{html.escape(file.getvalue())}</pre></body></html>\n'
    )
