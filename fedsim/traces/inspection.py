"""Statistics of trace bundles as text, side by side, and as plain data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedsim.errors import cut
from fedsim.traces.fitting import Fit
from fedsim.traces.statistics import AvailabilityStatistics, BundleStatistics, FirstLook, Spread
from fedsim.vocabulary.formatting import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_rate,
    format_ratio,
    format_share,
)

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
BARS = " ▁▂▃▄▅▆▇█"

_FIT_TEXTS = {
    "lognormal": "mu {mu:.2f}, sigma {sigma:.2f}",
    "weibull": "k {k:.3f}, scale {scale:,.0f}",
    "exponential": "mean {mean:,.0f}",
    "two lognormals": "w {w1:.2f}/{w2:.2f}, mu {mu1:.2f}/{mu2:.2f}, sigma {sigma1:.2f}/{sigma2:.2f}",
}

Rows = dict[str, str]
Text = Callable[[float], str]


def _spread(
    spread: Spread, text: Text, percents: Sequence[float] = (10, 50, 90), *, mean: bool = True
) -> str:
    if not spread.count:
        return "-"
    percentiles = " / ".join(text(spread.percentile(percent)) for percent in percents)
    return f"{percentiles}  (mean {text(spread.mean)})" if mean else percentiles


def _fit_text(fit: Fit) -> str:
    parameters = {"w2": 1 - fit.parameters.get("w1", 0.0), **fit.parameters}
    return f"{_FIT_TEXTS[fit.family].format(**parameters)}; KS {fit.ks:.3f}, AIC per sample {fit.aic:.3f}"


def _bars(values: np.ndarray[Any, Any]) -> str:
    top = np.nanmax(values, initial=0.0)
    if not top:
        return ""
    levels = np.nan_to_num(values / top * (len(BARS) - 1)).round().astype(int)
    return "".join(BARS[level] for level in levels)


def sections(statistics: BundleStatistics, *, bars: bool = True) -> dict[str, Rows]:
    """Rows of text by section; bundles with the same tables have the same labels.

    Args:
        statistics: the statistics of one bundle.
        bars: whether the hours of the day are drawn with characters; a page has a chart of them.
    """
    result: dict[str, Rows] = {
        "First look": first_rows(statistics.first_look, bars=bars),
        "Origin": {key: cut(text, 2000) for key, text in statistics.origin.items()},
        "Devices": {
            "devices": format_count(statistics.devices),
            "with a usable trace": format_count(statistics.valid_devices),
            "device-days observed": format_number(statistics.device_days),
            "days observed per device, percentiles 10 / 50 / 90": _spread(
                statistics.observed_days, format_number
            ),
        },
    }
    if statistics.availability is not None:
        result |= _availability(statistics.availability)
    compute: Rows = {}
    for name, spread in statistics.compute.items():
        text: Text = format_number
        if name == "ram_bytes":
            text = format_bytes
        elif name.endswith("_s"):
            text = format_duration
        compute |= _column(name, spread, text)
    network: Rows = {}
    for name, spread in statistics.network.items():
        network |= _column(name, spread, format_duration if name.startswith("rtt") else format_rate)
    for way, spread in statistics.network_series_bps.items():
        network[f"series {way}, over time"] = _spread(spread, format_rate, (5, 50, 95))
        network[f"series {way}, below 0.1 Mbit/s"] = format_share(
            float((spread.samples < 1e5).mean())
        )
    if statistics.speed_bandwidth_rank_correlation is not None:
        correlation = f"{statistics.speed_bandwidth_rank_correlation:+.2f}"
        network["rank correlation of speed and rate"] = correlation
    result["Compute (devices: percentiles 5 / 50 / 95)"] = compute
    result["Network (devices: percentiles 5 / 50 / 95)"] = network
    result["Grid (intervals: percentiles 5 / 50 / 95)"] = {
        name: _spread(spread, format_number, (5, 50, 95))
        for name, spread in statistics.grid.items()
    }
    return {title: rows for title, rows in result.items() if rows}


def _column(name: str, spread: Spread, text: Text) -> Rows:
    rows = {name: _spread(spread, text, (5, 50, 95))}
    low, high = spread.percentile(5), spread.percentile(95)
    if low > 0 and high > low:
        rows[f"{name}, p95 / p5"] = format_ratio(high / low)
    return rows | {f"{name}, {fit.family}": _fit_text(fit) for fit in spread.fits}


def first_rows(look: FirstLook, *, bars: bool = True) -> Rows:
    """The first look at a trace, as rows of text."""
    begin_s, end_s = look.window_s
    rows = {
        "begins": look.begin or "at a relative time",
        "zone": look.zone or "not known",
        "window": f"{format_duration(end_s - begin_s)}, from {format_duration(begin_s)} after time 0",
        "not observed, share of the devices' time": format_share(look.unobserved_share),
    }
    if look.by_hour is not None:
        rows["sessions"] = format_count(look.sessions or 0)
        if bars:
            known = look.by_hour[np.isfinite(look.by_hour)]
            most = format_share(float(known.max())) if len(known) else "-"
            rows["online by hour, 0 to 23"] = f"{_bars(look.by_hour)} (at most {most})"
    return rows


def _availability(online: AvailabilityStatistics) -> dict[str, Rows]:
    hours, rhythm = online.by_hour, online.rhythm
    when = {
        "online, share of the time": format_share(online.online_share),
        "share per device, percentiles 10 / 50 / 90": _spread(online.share, format_share),
        "devices never online": format_count(online.never_online),
        "share at full hours, min / median / max": _spread(
            online.moments, format_share, (0, 50, 100), mean=False
        ),
    }
    if np.isfinite(hours).all() and hours.max() > 0:
        low, high = hours.min(), hours.max()
        ratio = f", ratio {format_ratio(high / low)}" if low > 0 else ""
        when["most and fewest online"] = (
            f"{format_share(high)} at {int(hours.argmax()):02d}:00,"
            f" {format_share(low)} at {int(hours.argmin()):02d}:00{ratio}"
        )
    if rhythm is not None:
        when["cosine m (1 + A cos(2 pi (h - h0) / 24))"] = (
            "m {mean:.3f}, A {amplitude:.2f}, h0 {peak_hour:.1f}; R2 {r2:.2f}".format(**rhythm)
        )
    if online.by_weekday is not None:
        days = zip(WEEKDAYS, online.by_weekday, strict=True)
        known = [f"{name} {100 * share:.1f}" for name, share in days if np.isfinite(share)]
        when["by weekday (%)"] = "  ".join(known)
    lengths = {
        "sessions": format_count(online.sessions_s.count),
        "sessions per device and day, percentiles 10 / 50 / 90": _spread(
            online.sessions_a_day, lambda number: f"{number:,.1f}"
        ),
        "session, percentiles 10 / 50 / 90": _spread(online.sessions_s, format_duration),
        "gap, percentiles 10 / 50 / 90": _spread(online.gaps_s, format_duration),
        "remaining time if picked online, percentiles 10 / 50 / 90": _spread(
            online.remaining_s, format_duration
        ),
    }
    for level in online.at_least:
        length = format_duration(level["length_s"])
        lengths[f"sessions of at least {length}"] = format_share(level["sessions"])
        lengths[f"online for {length} more, if picked online"] = format_share(
            level["devices_picked_online"]
        )
    # The same order for all bundles, for comparison side by side.
    fits = {
        f"{what}: {fit.family}": _fit_text(fit) + ("  (best)" if fit is spread.fits[0] else "")
        for what, spread in (("session", online.sessions_s), ("gap", online.gaps_s))
        for fit in sorted(spread.fits, key=lambda fit: fit.family)
    }
    return {"When online": when, "How long": lengths, "Fitted distributions (s)": fits}


def write_text(all_statistics: Sequence[BundleStatistics], console: Console) -> None:
    """Print the tables of one bundle, or of several side by side."""
    columns = [sections(statistics) for statistics in all_statistics]
    for title in dict.fromkeys(title for column in columns for title in column):
        table = Table(title=title, title_justify="left", title_style="bold", show_edge=False)
        table.add_column("")
        for statistics in all_statistics:
            table.add_column(statistics.name, overflow="fold")
        cells = [column.get(title, {}) for column in columns]
        for label in dict.fromkeys(label for rows in cells for label in rows):
            table.add_row(label, *(rows.get(label, "-") for rows in cells))
        console.print(table)
        console.print()


def as_data(value: Any) -> Any:
    """Statistics as plain data for scripts: percentiles instead of samples; seconds, bit/s and shares from 0 to 1."""
    if isinstance(value, Spread) and not value.count:
        return {"count": 0}
    if isinstance(value, Spread):
        percents = (0, 5, 10, 25, 50, 75, 90, 95, 100)
        return {
            "count": value.count,
            "mean": value.mean,
            "percentiles": {str(percent): value.percentile(percent) for percent in percents},
            "fits": [
                {"family": fit.family, **fit.parameters, "ks": fit.ks, "aic": fit.aic}
                for fit in value.fits
            ],
        }
    if dataclasses.is_dataclass(value):
        return {
            field.name: as_data(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [float(item) if math.isfinite(item) else None for item in value]
    return [as_data(item) for item in value] if isinstance(value, list) else value
