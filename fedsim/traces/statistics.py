"""Statistics of a trace bundle: when devices are online, for how long, how fast they and their links are.

Shares of time are exact (integrals over the intervals, not samples) and refer to each device's own observation window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pandas as pd

from fedsim.files.cells import time_zone
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.fitting import Fit, fit_all, lognormal, thinned
from fedsim.traces.intervals import device_edges
from fedsim.traces.tables import DIRECTIONS
from fedsim.traces.validation import LAST_S
from fedsim.units import DAY_S, DAY_US
from fedsim.vocabulary.arrays import Array, Floats, Ints
from fedsim.vocabulary.numbers import varies

HOUR_US = DAY_US // 24
LEVELS = (60.0, 300.0, 600.0, 3600.0)


@dataclass
class Spread:
    """A distribution: its samples and their statistics.

    Args:
        samples: at most 100,000 samples, ascending, evenly spaced in rank.
        count: number of samples before thinning.
        mean: mean of all samples.
        fits: fitted distributions, best first.
    """

    samples: Floats
    count: int
    mean: float
    fits: list[Fit] = field(default_factory=list)

    def percentile(self, percent: float) -> float:
        """A percentile; NaN without samples."""
        return float(np.percentile(self.samples, percent)) if len(self.samples) else float("nan")

    @classmethod
    def of(cls, samples: Array, *, fitted: bool = False) -> Spread:
        """The spread of the finite samples."""
        finite = samples[np.isfinite(samples)]
        mean = float(finite.mean()) if len(finite) else float("nan")
        return cls(thinned(finite), len(finite), mean, fit_all(finite) if fitted else [])


@dataclass
class AvailabilityStatistics:
    """When the devices of a bundle are available.

    Args:
        online_share: time online over time observed, all devices together.
        share: share of each device.
        never_online: valid devices that are never online in their window.
        sessions_s: lengths of the sessions (s).
        gaps_s: lengths of the gaps between them (s).
        sessions_a_day: sessions per observed day of each device.
        remaining_s: remaining time online (s) of a device that is picked while it is online.
        at_least: for some lengths ``length_s``, the share of ``sessions``, and of ``devices_picked_online``, that stay
            online for at least that long.
        by_hour: share online by hour of the day, shape (24,); NaN if nothing was observed.
        by_weekday: share online by day of the week from Monday, shape (7,); None if the weekday is unknown.
        moments: share of the observed devices that are online, at each full hour.
        rhythm: ``mean`` m, ``amplitude`` A and ``peak_hour`` h0 of a cosine m (1 + A cos(2 pi (h - h0) / 24)) fitted
            to the hours of the day, and its ``r2``.
    """

    online_share: float
    share: Spread
    never_online: int
    sessions_s: Spread
    gaps_s: Spread
    sessions_a_day: Spread
    remaining_s: Spread
    at_least: list[dict[str, float]]
    by_hour: Floats
    by_weekday: Floats | None
    moments: Spread
    rhythm: dict[str, float] | None


@dataclass
class FirstLook:
    """When and where a trace was recorded, and how much of it is known.

    Args:
        begin: ISO 8601 timestamp of the first observation; None if times are relative.
        zone: time zone of local time; None if it is not known.
        window_s: start and end of the observation of all devices together, from time 0 on.
        unobserved_share: share of the valid devices' time from time 0 to the end at which they were not observed.
        by_hour: share online by hour of the day, shape (24,); NaN if nothing was observed; None without availability.
        sessions: number of sessions; None without availability.
    """

    begin: str | None
    zone: str | None
    window_s: tuple[float, float]
    unobserved_share: float
    by_hour: Floats | None = None
    sessions: int | None = None


@dataclass
class BundleStatistics:
    """All statistics of a bundle; None or empty for tables that the bundle does not have.

    Args:
        first_look: when and where it was recorded, and how much of it is known.
        origin: source, license and citation of the bundle, what "available" means, and its caveats, as far as known.
        devices, valid_devices: number of devices, and of those with a usable trace.
        device_days: days observed, all valid devices together.
        observed_days: days observed of each valid device.
        clock: the clock to which the hours of the day refer.
        availability: when devices are online.
        compute: spread over the devices, by column (relative_speed, sample_s, step_fixed_s, score).
        network: spread over the devices, by column and direction.
        network_series_bps: rates of the network series (bit/s), by direction, weighted by time.
        speed_bandwidth_rank_correlation: Spearman correlation between the devices' speeds and their downlinks.
        grid: carbon intensity and prices over time, by region and unit.
    """

    name: str
    first_look: FirstLook
    origin: dict[str, str]
    devices: int
    valid_devices: int
    device_days: float
    observed_days: Spread
    clock: str
    availability: AvailabilityStatistics | None
    compute: dict[str, Spread]
    network: dict[str, Spread]
    network_series_bps: dict[str, Spread]
    speed_bandwidth_rank_correlation: float | None
    grid: dict[str, Spread]


def describe(bundle: TraceBundle) -> BundleStatistics:
    """The statistics of a bundle."""
    low, high = bundle.windows
    days = (high - low)[bundle.valid] / DAY_US
    speed, bandwidth = device_speeds(bundle), device_bandwidths(bundle)
    correlation = None
    if speed is not None and bandwidth is not None:
        both = np.isfinite(speed) & np.isfinite(bandwidth)
        if both.sum() > 2 and np.ptp(speed[both]) > 0 and np.ptp(bandwidth[both]) > 0:
            from scipy.stats import spearmanr

            correlation = float(spearmanr(speed[both], bandwidth[both]).statistic)
    steps = ("relative_speed", "sample_s", "step_fixed_s", "score", "ram_bytes")
    compute = _spreads(bundle, "compute", *steps)
    manifest, rule = bundle.manifest, bundle.manifest.eligibility
    origin = {
        "source": manifest.source,
        "license": manifest.license,
        "cite": manifest.citation,
        "available": rule and rule.words,
        "caveats": "; ".join(manifest.caveats),
    }
    return BundleStatistics(
        name=manifest.name,
        first_look=first_look(bundle),
        origin={key: text for key, text in origin.items() if text},
        devices=bundle.device_count,
        valid_devices=len(days),
        device_days=float(days.sum()),
        observed_days=Spread.of(days),
        clock=manifest.clock,
        availability=_availability(bundle) if "availability" in bundle.tables else None,
        # Only the time of a step that a bundle gives: the other of its two parts is zero for all devices.
        compute={name: spread for name, spread in compute.items() if spread.samples.any()},
        network=_spreads(bundle, "network", "bandwidth_bps", "rtt_s"),
        network_series_bps=_series(bundle),
        speed_bandwidth_rank_correlation=correlation,
        grid=_grid(bundle),
    )


def first_look(bundle: TraceBundle) -> FirstLook:
    """When and where a trace was recorded, and how much of it is known."""
    manifest, (low, high), valid = bundle.manifest, bundle.windows, bundle.valid
    begin_us, end_us = (int(low[valid].min()), int(high[valid].max())) if valid.any() else (0, 0)
    total_us = valid.sum() * (end_us - min(begin_us, 0))
    look = FirstLook(
        None
        if bundle.epoch is None
        else (bundle.epoch + timedelta(microseconds=begin_us)).isoformat(),
        manifest.zone or ("UTC" if manifest.clock == "utc" else None),
        (begin_us / 1e6, end_us / 1e6),
        1 - float((high - low)[valid].sum() / total_us) if total_us else 0.0,
    )
    if "availability" in bundle.tables:
        device, edges, _, _ = device_edges(bundle)
        look.sessions = len(device)
        look.by_hour, _ = _rhythms(bundle, device, edges[::2], edges[1::2])
    return look


def device_speeds(bundle: TraceBundle) -> Floats | None:
    """Speed of each device for ranking (higher is faster; no unit); NaN if unknown, None without a table."""
    if "compute" not in bundle.tables:
        return None
    rows = bundle.device_rows("compute")
    speed = np.full(bundle.device_count, np.nan)
    for name, power in (("score", 1), ("relative_speed", 1), ("sample_s", -1)):
        if bundle.has("compute", name):
            values = bundle.numpy("compute", name).astype(np.float64)
            known = np.isfinite(values) & (values > 0)
            first = pd.Series(values[known] ** power).groupby(rows[known]).first()
            column = first.reindex(range(len(speed))).to_numpy()
            if np.isfinite(column).sum() >= np.isfinite(speed).sum():
                speed = column
    return speed


def device_bandwidths(bundle: TraceBundle) -> Floats | None:
    """Downlink of each device (bit/s); NaN if unknown, None without a table ``network``."""
    if "network" not in bundle.tables:
        return None
    rows = bundle.device_rows("network")
    direction = bundle.texts("network", "direction")
    result = np.full(bundle.device_count, np.nan)
    chosen = direction != "up"
    result[rows[chosen]] = bundle.numpy("network", "bandwidth_bps")[chosen]
    return result


def device_shares(bundle: TraceBundle) -> Floats:
    """Share of its window in which each device is online, shape (devices,); 0 for invalid devices."""
    device, edges, _, _ = device_edges(bundle)
    low, high = bundle.windows
    online = np.bincount(device, weights=edges[1::2] - edges[::2], minlength=len(low))
    return np.asarray(np.where(bundle.valid, online, 0.0) / np.maximum(high - low, 1))


def _availability(bundle: TraceBundle) -> AvailabilityStatistics:
    device, edges, first, last = device_edges(bundle)
    count = (last - first) // 2
    valid = bundle.valid
    start, end = edges[::2], edges[1::2]
    lengths = (end - start) / 1e6
    gaps = (start[1:] - end[:-1])[device[1:] == device[:-1]] / 1e6
    low, high = bundle.windows
    window = (high - low)[valid] / 1e6
    total = float(lengths.sum())
    by_hour, by_weekday = _rhythms(bundle, device, start, end)
    return AvailabilityStatistics(
        online_share=total / max(float(window.sum()), 1e-9),
        share=Spread.of(device_shares(bundle)[valid]),
        never_online=int((count[valid] == 0).sum()),
        sessions_s=Spread.of(lengths, fitted=True),
        gaps_s=Spread.of(gaps, fitted=True),
        sessions_a_day=Spread.of(count[valid] / np.maximum(window / DAY_S, 1e-9)),
        remaining_s=_remaining(lengths),
        at_least=[
            {
                "length_s": level,
                "sessions": float((lengths >= level).mean()) if len(lengths) else np.nan,
                "devices_picked_online": float(np.maximum(lengths - level, 0).sum() / total)
                if total
                else np.nan,
            }
            for level in LEVELS
        ],
        by_hour=by_hour,
        by_weekday=by_weekday,
        moments=_moments(start, end, low[valid], high[valid]),
        rhythm=_rhythm(by_hour),
    )


def _remaining(lengths: Floats) -> Spread:
    """Remaining time online of a device picked at a random instant while online: density P(length > x) / mean."""
    ordered = np.sort(lengths)
    if not len(ordered):
        return Spread.of(ordered)
    # The distribution function is piecewise linear; its slope is the number of longer sessions.
    mass = np.cumsum(np.diff(ordered, prepend=0.0) * np.arange(len(ordered), 0, -1))
    count = min(100_000, 20 * len(ordered))
    levels = (np.arange(count) + 0.5) / count * mass[-1]
    values = np.interp(levels, np.append(0.0, mass), np.append(0.0, ordered))
    return Spread(values, len(ordered), float((ordered**2).sum() / (2 * ordered.sum())))


def _rhythms(
    bundle: TraceBundle, device: Ints, start: Ints, end: Ints
) -> tuple[Floats, Floats | None]:
    """Share online by hour of the day and by day of the week; the latter is None if it is not known."""
    valid, (low, high) = bundle.valid, bundle.windows
    if not valid.any() or _is_too_long(low[valid], high[valid]):
        return np.full(24, np.nan), None
    # From the trace instants of a device to its clock, whose days begin at midnight.
    epoch, shift = bundle.epoch, np.zeros(bundle.device_count, np.int64)
    if epoch is not None:
        midnight = epoch.replace(hour=0, minute=0, second=0, microsecond=0)
        shift += (epoch - midnight) // timedelta(microseconds=1)
    if "tz_offset_s" in bundle.devices.column_names:
        offset = np.nan_to_num(bundle.numpy("devices", "tz_offset_s").astype(np.float64))
        shift += (offset * 1e6).astype(np.int64)
    earliest = int((low + shift)[valid].min()) // (7 * DAY_US) * (7 * DAY_US)
    shift -= earliest
    low, high = (low + shift)[valid], (high + shift)[valid]
    hours = -(-int(high.max()) // HOUR_US)
    numbers = np.arange(hours)
    hour, weekday = numbers % 24, None
    if bundle.manifest.epoch_weekday is not None:
        weekday = (numbers // 24 + bundle.manifest.epoch_weekday) % 7
    if bundle.manifest.zone is not None and epoch is not None:
        # After a change of the clocks, hours of the day are not those since the first midnight.
        first = midnight + timedelta(microseconds=earliest)
        zone = time_zone(bundle.manifest.zone)
        local = pd.date_range(first, periods=hours, freq="h").tz_convert(zone)
        hour = local.hour.to_numpy()
        weekday = None if weekday is None else local.day_of_week.to_numpy()
    online = _time_in_bins(start + shift[device], hours)
    online -= _time_in_bins(end + shift[device], hours)
    observed = _time_in_bins(low, hours) - _time_in_bins(high, hours)

    def share(of: Ints, bins: int) -> Floats:
        known = np.bincount(of, observed, minlength=bins)
        return np.bincount(of, online, minlength=bins) / np.where(known > 0, known, np.nan)

    return share(hour, 24), None if weekday is None else share(weekday, 7)


def _is_too_long(low: Ints, high: Ints) -> bool:
    """Whether windows together last so long, by times in a wrong unit, that hours are too many to count."""
    return int(high.max()) - int(low.min()) > LAST_S * 1e6


def _time_in_bins(instants: Ints, hours: int) -> Floats:
    """For each hour, the part of it (us) that lies after an instant, summed over the instants (in [0, hours])."""
    hour = instants // HOUR_US
    within = instants - hour * HOUR_US
    count = np.bincount(hour, minlength=hours + 1)[: hours + 1].astype(np.float64)
    late = np.bincount(hour, weights=within, minlength=hours + 1)[: hours + 1]
    earlier = np.cumsum(count) - count
    return np.asarray((earlier * HOUR_US + count * HOUR_US - late)[:hours])


def _moments(start: Ints, end: Ints, low: Ints, high: Ints) -> Spread:
    """Share of observed devices online at each full hour at which at least half of the maximum are observed."""
    if not len(low) or _is_too_long(low, high):
        return Spread.of(np.zeros(0))
    hours = np.arange(-(-int(low.min()) // HOUR_US), int(high.max()) // HOUR_US + 1) * HOUR_US
    if not len(hours):
        return Spread.of(np.zeros(0))

    def passed(instants: Ints) -> Ints:
        return np.searchsorted(np.sort(instants), hours, side="right").astype(np.int64)

    online = passed(start) - passed(end)
    observed = passed(low) - passed(high)
    enough = (observed > 0) & (observed >= observed.max() / 2)
    return Spread.of(online[enough] / observed[enough])


def _rhythm(by_hour: Floats) -> dict[str, float] | None:
    if not np.isfinite(by_hour).all() or by_hour.mean() == 0:
        return None
    # Each hour is represented by its middle.
    angle = 2 * np.pi * (np.arange(24) + 0.5) / 24
    wave = 2 * np.mean(by_hour * np.exp(1j * angle))
    mean = float(by_hour.mean())
    fitted = mean + np.real(wave * np.exp(-1j * angle))
    spread = float(((by_hour - mean) ** 2).sum())
    left = float(((by_hour - fitted) ** 2).sum())
    r2 = 1 - left / spread if varies(by_hour.std(), mean, len(by_hour)) else 0.0
    amplitude, peak_hour = float(abs(wave)) / mean, float(np.angle(wave) * 12 / np.pi % 24)
    return {"mean": mean, "amplitude": amplitude, "peak_hour": peak_hour, "r2": r2}


def _spreads(bundle: TraceBundle, table: str, *names: str) -> dict[str, Spread]:
    """The spreads of columns with known values, by direction if there is one, each with a fitted lognormal."""
    spreads: dict[str, Spread] = {}
    if table not in bundle.tables:
        return spreads
    direction = bundle.texts(table, "direction")
    for way in (*DIRECTIONS, None):
        rows = direction == way
        for name in names if rows.any() else ():
            if not bundle.has(table, name):
                continue
            spread = Spread.of(bundle.numpy(table, name).astype(np.float64)[rows])
            positive = spread.samples[spread.samples > 0]
            if len(np.unique(positive)) >= 3:
                spread.fits = [lognormal(positive)]
            if spread.count:
                spreads[name if way is None else f"{name} {way}"] = spread
    return spreads


def _series(bundle: TraceBundle) -> dict[str, Spread]:
    if "network_series" not in bundle.tables:
        return {}
    result = {}
    direction = bundle.texts("network_series", "direction")
    rate, duration = (bundle.numpy("network_series", name) for name in ("rate_bps", "dur_us"))
    for way in DIRECTIONS:
        rows = np.flatnonzero((direction == way) & np.isfinite(rate))
        if len(rows):
            rows = rows[np.argsort(rate[rows])]
            # Evenly spaced in time, not in rows.
            weight = np.cumsum(duration[rows].astype(np.float64))
            levels = (np.arange(10_000) + 0.5) / 10_000 * weight[-1]
            samples = rate[rows][np.searchsorted(weight, levels)]
            mean = float(np.average(rate[rows], weights=duration[rows].astype(np.float64)))
            result[way] = Spread(samples, len(rows), mean)
    return result


def _grid(bundle: TraceBundle) -> dict[str, Spread]:
    if "grid" not in bundle.tables:
        return {}
    groups = bundle.table("grid").to_pandas().groupby(["region", "unit"], observed=True)["value"]
    return {f"{region}, {unit}": Spread.of(values.to_numpy()) for (region, unit), values in groups}
