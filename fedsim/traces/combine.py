"""New populations from trace bundles: a sample of one, a larger one drawn from it, or the columns of several joined.

The draws are a function of the seed alone. Every device of the result replays a device of a source; only
:func:`redrawn` changes its speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.traces.bundle import Manifest, TraceBundle, package_version
from fedsim.traces.intervals import ranks
from fedsim.traces.statistics import device_bandwidths, device_shares, device_speeds
from fedsim.traces.synthesis.columns import pearson_of_spearman
from fedsim.traces.tables import id_column, make_table, single_chunk
from fedsim.units import DAY_US
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.formatting import format_count

# Tables whose rows belong to a device; devices refer to the others.
DEVICE_TABLES = (
    "availability",
    "device_events",
    "compute",
    "compute_series",
    "network",
    "network_assign",
)
SHARED_TABLES = ("network_series", "rtt_matrix", "grid")

# Fields of the manifest that a derived bundle takes from its first source.
_INHERITED = ("epoch", "clock", "zone", "epoch_weekday", "horizon_us", "on_end", "eligibility")

_PICK, _SHIFT, _COMPUTE, _NETWORK, _URN, _ERROR, _SIMILAR = range(7)
_VARIED = {
    "compute": ("step_fixed_s", "sample_s", "relative_speed", "score"),
    "network": ("bandwidth_bps",),
}
"""Columns in which other devices of the population differ from those that were observed."""
_ESTIMATES = {
    "compute": (("step_fixed_s", "step_fixed_error", True),),
    "network": (("bandwidth_bps", "bandwidth_error", True), ("rtt_s", "rtt_error_s", False)),
}
"""Columns that are estimates, with the column of their standard errors, and whether that is relative."""


def sample(bundle: TraceBundle, devices: int, seed: int = 0) -> TraceBundle:
    """A bundle of ``devices`` of the valid devices, drawn without replacement, in their original order."""
    valid = np.flatnonzero(bundle.valid)
    if devices > len(valid):
        raise bundle.error(
            f"the trace bundle has {format_count(len(valid))} usable devices, fewer than {format_count(devices)}",
            "`fedsim traces scale` draws devices more than once",
        )
    keys = Stream(seed, Purpose.TRACE, _PICK).uniforms(valid)
    rows = np.sort(valid[np.argsort(keys, kind="stable")[:devices]])
    devices_table = bundle.devices.take(pa.array(rows))
    ids = single_chunk(devices_table.column("device_id"))
    tables = {"devices": devices_table} | _copies(bundle, DEVICE_TABLES, rows, ids)
    manifest = _derived("sample", {"bundle": bundle}, {"devices": devices}, seed)
    return TraceBundle(manifest, tables | _shared(bundle))


def scale(bundle: TraceBundle, devices: int, seed: int = 0, *, shift: bool = True) -> TraceBundle:
    """A population of any size: ``devices`` draws, with replacement, from the valid devices of a bundle.

    With ``shift``, each copy is shifted by a random number of whole days, so that copies of one device are not
    synchronized but keep their daily rhythm. Traces are then cut to whole days, at whose end they wrap; a device that
    was observed for less than two days is not shifted. The bundle must wrap then.
    """
    valid = _usable(bundle)
    if shift and bundle.manifest.on_end != "wrap":
        raise bundle.error(
            f"the trace bundle does not wrap (on_end: {bundle.manifest.on_end}), so its days cannot be shifted",
            "use --no-shift",
        )
    uniform = Stream(seed, Purpose.TRACE, _PICK).uniforms(np.arange(devices))
    rows = valid[(uniform * len(valid)).astype(np.int64)]
    return _copied(bundle, rows, "scale", {"devices": devices, "shift": shift}, seed, shift)


def redrawn(bundle: TraceBundle, devices: int, seed: int = 0) -> TraceBundle:
    """Other devices of the population from which the valid devices of a bundle are a sample.

    They are drawn by :func:`urn`. A copy has speeds and rates :func:`similar` to those of its original, and is online
    as the original was some whole days earlier or later, if the trace wraps (:func:`scale`). Exact copies would never
    be slower than the slowest device of the bundle, and all copies of one device would come and go together.
    """
    valid = _usable(bundle)
    copies = np.arange(devices)
    picks = urn(len(valid), Stream(seed, Purpose.TRACE, _URN).uniforms(copies))
    options, shift = {"devices": devices}, bundle.manifest.on_end == "wrap"
    copied = _copied(bundle, valid[picks], "redraw", options, seed, shift)
    tables = dict(copied.tables)
    for number, (name, columns) in enumerate(_VARIED.items()):
        stream = Stream(seed, Purpose.TRACE, _SIMILAR, number)
        uniform, normal = stream.uniforms(copies, 1), stream.normals(copies, 2)
        for column in columns:
            if not bundle.has(name, column):
                continue
            device, values = bundle.device_rows(name), bundle.numpy(name, column)
            device, values = device[values > 0], values[values > 0]
            sums = np.bincount(device, np.log(values), bundle.device_count)
            counts = np.bincount(device, None, bundle.device_count)
            sample = (sums / np.where(counts, counts, np.nan))[valid]
            change = similar(picks, sample, uniform, normal) - sample[picks]
            factor = np.exp(np.nan_to_num(change))[copied.device_rows(name)]
            varied = {column: copied.numpy(name, column) * factor}
            tables[name] = _changed(name, tables[name], varied)
    return TraceBundle(copied.manifest, tables)


def urn(count: int, uniform: Floats) -> Ints:
    """Draws from ``count`` items by Pólya's urn: each puts an item back together with a copy of itself.

    That is the predictive distribution of the Bayesian bootstrap (Rubin 1981; Lo 1988): it varies by the sampling of
    the items as well as by that of the new ones. Drawing with replacement has half of this variance.

    Args:
        count: number of items.
        uniform: random numbers from 0 to 1, one per draw.
    """
    items = list(range(count))
    for pick in (uniform * (count + np.arange(len(uniform)))).astype(np.int64).tolist():
        items.append(items[pick])
    return np.array(items[count:], dtype=np.int64)


def similar(picks: Ints, sample: Floats, uniform: Floats, normal: Floats) -> Floats:
    """Values of devices that are similar to devices of a sample.

    A new value lies in each gap between the n ordered ones, or beyond an end, with probability 1 / (n + 1), whatever
    the distribution (Hill, Posterior distribution of percentiles, JASA 63, 1968); here in one of the two gaps beside
    its original. Beyond an end it is exponential, with the mean excess of the sqrt(n) outermost values (for logarithms,
    a Pareto tail; Hill, Annals of Statistics 3, 1975). A Gaussian kernel of Silverman's bandwidth is added, because
    only a part of the devices is online at a time, among which these gaps are wider.

    Args:
        picks: the originals, (m,).
        sample: the sample, (n,); NaN if unknown.
        uniform: numbers between 0 and 1, (m,).
        normal: standard normal numbers, (m,).
    """
    result: Floats = sample[picks]
    known = np.sort(sample[np.isfinite(sample)])
    count = len(known)
    if count < 2:
        return result
    varied = np.isfinite(result)
    originals, uniform, normal = result[varied], uniform[varied], normal[varied]
    # Of equal values, which interpolation would leave equal, some come before and some after.
    rank = np.searchsorted(known, originals, "left")
    ties = np.searchsorted(known, originals, "right") - rank
    place = (rank + ties * uniform) * (count + 1) / count
    values = np.interp(place, np.arange(1, count + 1), known)
    outer = min(math.ceil(math.sqrt(count)), count - 1)
    # Rounding can move the place onto the end of the last gap, at an infinite distance.
    beyond = np.clip(place - count, 0, np.nextafter(1, 0))
    above = (known[-outer:] - known[-outer - 1]).mean() * -np.log1p(-beyond)
    below = (known[outer] - known[:outer]).mean() * -np.log(np.clip(place, 0, 1))
    low, high = np.quantile(known, [0.25, 0.75])
    width = 0.9 * min(known.std(ddof=1), (high - low) / 1.34) * count**-0.2
    result[varied] = values + above - below + width * normal
    return result


def perturbed(bundle: TraceBundle, seed: int = 0) -> TraceBundle:
    """The bundle with its estimates drawn within their errors; the same bundle if none has errors."""
    tables = dict(bundle.tables)
    for number, (name, estimates) in enumerate(_ESTIMATES.items()):
        for place, (column, error, is_relative) in enumerate(estimates):
            if not bundle.has(name, error):
                continue
            rows = np.arange(tables[name].num_rows)
            normal = Stream(seed, Purpose.TRACE, _ERROR, number, place).normals(rows)
            draw = normal * bundle.numpy(name, error)
            value = bundle.numpy(name, column)
            drawn = value * np.exp(draw) if is_relative else np.maximum(value + draw, 0.0)
            tables[name] = _changed(name, tables[name], {column: drawn})
    return TraceBundle(bundle.manifest, tables)


def join(
    availability: TraceBundle,
    compute: TraceBundle | None = None,
    network: TraceBundle | None = None,
    seed: int = 0,
    *,
    compute_correlation: float = 0.0,
    network_correlation: float = 0.0,
) -> TraceBundle:
    """The devices of one bundle with the compute columns of another and the network columns of a third.

    Each device gets the columns of a device drawn with replacement: independently, or with a rank correlation.

    Args:
        availability: bundle of the devices and their availability, and of all columns that no other bundle provides.
        compute: bundle of the compute columns and series.
        network: bundle of the network columns and series.
        seed: seed of the draws.
        compute_correlation: Spearman correlation, -1 to 1, between a device's share of time online and its speed.
        network_correlation: Spearman correlation, -1 to 1, between a device's speed and its rate.
    """
    for name, value in (("compute", compute_correlation), ("network", network_correlation)):
        if not -1 <= value <= 1:
            raise UserError(f"the {name} correlation is {value:g}, outside -1 to 1")
    ids = availability.device_ids
    same = np.arange(len(ids))
    rows, link_rows = same, same
    if compute is not None:
        shares = device_shares(availability) if compute_correlation else None
        rows = _paired(compute, "compute", shares, compute_correlation, len(ids), seed, _COMPUTE)
    if network is not None:
        speeds = None
        if network_correlation:
            source = compute or availability
            speeds = device_speeds(source)
            if speeds is None:
                raise _lacking(source, "compute")
            speeds = speeds[rows]
        link_rows = _paired(
            network, "network", speeds, network_correlation, len(ids), seed, _NETWORK
        )
    links = network or availability
    own = ("devices", "availability", "device_events")
    tables = {name: table for name, table in availability.tables.items() if name in own}
    tables |= _copies(compute or availability, ("compute", "compute_series"), rows, ids)
    tables |= _copies(links, ("network", "network_assign"), link_rows, ids) | _shared(links)
    sources = {"availability": availability, "compute": compute, "network": network}
    options = {
        "compute_correlation": compute_correlation,
        "network_correlation": network_correlation,
    }
    used = {role: bundle for role, bundle in sources.items() if bundle is not None}
    return TraceBundle(_derived("join", used, options, seed), tables)


def _usable(bundle: TraceBundle) -> Ints:
    """The rows of the valid devices, of which there must be one."""
    if not bundle.valid.any():
        raise bundle.error("the trace bundle has no usable device")
    return np.flatnonzero(bundle.valid)


def _copied(
    bundle: TraceBundle, rows: Ints, tool: str, options: dict[str, Any], seed: int, shift: bool
) -> TraceBundle:
    """The devices in these rows, each under a separate name; with ``shift``, as :func:`scale` shifts them."""
    copies = np.arange(len(rows))
    drawn = bundle.devices.take(pa.array(rows))
    number = pa.array(pd.Series(rows).groupby(rows).cumcount()).cast(pa.string())
    names = single_chunk(drawn.column("device_id"))
    ids = pc.binary_join_element_wise(names, number, "~")
    columns = {name: drawn.column(name) for name in drawn.column_names} | {"device_id": ids}
    counts = {"sources": len(np.unique(rows)), "shifted": 0}
    names = [name for name in DEVICE_TABLES if not (shift and name == "device_events")]
    tables = _copies(bundle, names, rows, ids)
    if shift:
        low, high = (edge[rows] for edge in bundle.windows)
        span = high - low
        days = span // DAY_US
        turn = np.floor(Stream(seed, Purpose.TRACE, _SHIFT).uniforms(copies) * days)
        shift_us = turn.astype(np.int64) * DAY_US
        whole = np.where(days >= 1, days * DAY_US, span)
        columns["window_end_us"] = pa.array(low + whole)
        columns.pop("period_us", None)
        if "availability" in tables:
            tables["availability"] = _shifted(tables["availability"], ids, low, whole, shift_us)
        counts |= {
            "shifted": int((shift_us > 0).sum()),
            "device_seconds_cut_to_whole_days": int((span - whole).sum() // 1_000_000),
            "device_events_dropped": len(bundle.tables.get("device_events", ())),
        }
    tables["devices"] = make_table("devices", columns)
    manifest = _derived(tool, {"bundle": bundle}, options, seed, counts)
    if shift:
        # A Monday of one copy may now coincide with a Thursday of another.
        manifest.epoch_weekday = None
    return TraceBundle(manifest, tables | _shared(bundle))


def _copies(bundle: TraceBundle, names: Sequence[str], rows: Ints, ids: Any) -> dict[str, Any]:
    """The rows of some tables that belong to the drawn devices, once per draw, under the new ids."""
    tables = {}
    for name in names:
        if name not in bundle.tables:
            continue
        table, device = bundle.tables[name], bundle.device_rows(name)
        order = np.argsort(device, kind="stable")
        first, last = (np.searchsorted(device[order], rows, side) for side in ("left", "right"))
        counts = last - first
        drawn = table.take(pa.array(order[np.repeat(first, counts) + ranks(counts)]))
        renamed = {"device_id": id_column(np.repeat(np.arange(len(rows)), counts), ids)}
        tables[name] = _changed(name, drawn, renamed)
    return tables


def _shared(bundle: TraceBundle) -> dict[str, Any]:
    return {name: table for name, table in bundle.tables.items() if name in SHARED_TABLES}


def _changed(name: str, table: Any, columns: dict[str, Any]) -> Any:
    """A table with other values in some columns."""
    return make_table(name, {key: table.column(key) for key in table.column_names} | columns)


def _shifted(table: Any, ids: Any, low: Ints, whole: Ints, shift_us: Ints) -> Any:
    """Availability moved earlier by each device's shift, modulo its whole days; intervals across the seam are cut."""
    device = single_chunk(table.column("device_id")).indices.to_numpy()
    span, origin, shift = whole[device], low[device], shift_us[device]
    start = table.column("start_us").to_numpy() - origin
    end = np.minimum(table.column("end_us").to_numpy() - origin, span)
    # The first piece of an interval lies after the shift, the second before it, one lap later.
    row = np.tile(np.arange(len(start)), 2)
    begin = np.concatenate([np.maximum(start, shift), start])
    finish = np.concatenate([end, np.minimum(end, shift)])
    move = np.concatenate([origin - shift, origin + span - shift])
    nonempty = finish > begin
    begin, finish, row = ((begin + move)[nonempty], (finish + move)[nonempty], row[nonempty])
    order = np.lexsort((begin, device[row]))
    row, begin, finish = row[order], begin[order], finish[order]
    # The cuts are made here, so the source's marks of censoring no longer apply.
    kept = table.select([key for key in table.column_names if key != "censored"])
    moved = {"device_id": id_column(device[row], ids), "start_us": begin, "end_us": finish}
    return _changed("availability", kept.take(pa.array(row)), moved)


def _paired(
    bundle: TraceBundle,
    table: str,
    base: Floats | None,
    spearman: float,
    count: int,
    seed: int,
    key: int,
) -> Ints:
    """For each of ``count`` devices, a device of ``bundle`` that has rows in ``table``, or else a series of rates."""
    if table == "network" and table not in bundle.tables and base is None:
        table = "network_assign"
    candidates = (
        np.unique(bundle.device_rows(table)) if table in bundle.tables else np.zeros(0, int)
    )
    candidates = candidates[candidates >= 0]
    if not len(candidates):
        raise _lacking(bundle, table.removesuffix("_assign"))
    stream = Stream(seed, Purpose.TRACE, key)
    if base is None:
        uniform = stream.uniforms(np.arange(count))
        return candidates[(uniform * len(candidates)).astype(np.int64)]
    values = device_speeds(bundle) if table == "compute" else device_bandwidths(bundle)
    assert values is not None
    if not (np.isfinite(values[candidates]).all() and np.isfinite(base).all()):
        raise bundle.error(f"a correlation needs a value for every device; {table} lacks some")
    ordered = candidates[np.argsort(values[candidates], kind="stable")]
    from scipy.special import ndtr, ndtri  # which takes longer than an import of a small file

    # A Gaussian copula with this correlation has the Spearman correlation that was given.
    pearson = pearson_of_spearman(spearman)
    # Ties are broken at random; otherwise devices that are never online would all be paired alike.
    tie_break = stream.uniforms(np.arange(count), 1)
    rank = np.lexsort((tie_break, base)).argsort()
    score = ndtri((rank + 0.5) / count)
    drawn = pearson * score + np.sqrt(1 - pearson**2) * stream.normals(np.arange(count), 2)
    positions = (ndtr(drawn) * len(ordered)).astype(np.int64)
    chosen: Ints = ordered[np.minimum(positions, len(ordered) - 1)]
    return chosen


def _lacking(bundle: TraceBundle, table: str) -> UserError:
    """The error for a bundle without rows of a table."""
    hint = f"give --{table} (in Python: {table}) a trace bundle with that table, such as builtin:phones_week"
    return bundle.error(f"the trace bundle has no rows in a table {table}", hint)


def _derived(
    tool: str,
    sources: dict[str, TraceBundle],
    options: dict[str, Any],
    seed: int,
    counts: dict[str, int] | None = None,
) -> Manifest:
    """A manifest that records the sources and the tool; clock and window are those of the first source."""
    manifests = {role: bundle.manifest for role, bundle in sources.items()}
    origin = next(iter(manifests.values()))
    prefixes = {role: f"{role}: " if len(manifests) > 1 else "" for role in manifests}
    licenses = sorted({item.license or "unknown" for item in manifests.values()})
    citations = sorted({item.citation for item in manifests.values() if item.citation})
    return Manifest(
        name=f"{origin.name}-{tool}",
        source="; ".join(f"{role}: {item.source or item.name}" for role, item in manifests.items()),
        license="; ".join(licenses),
        citation="; ".join(citations) or None,
        **{field: getattr(origin, field) for field in _INHERITED},
        importer=tool,
        importer_version=package_version(),
        options={
            **options,
            "sources": {
                role: {"name": item.name, "sha256": item.sha256, "command": item.command}
                for role, item in manifests.items()
            },
        },
        seed=seed,
        counts=counts or {},
        caveats=[
            f"{prefixes[role]}{caveat}"
            for role, item in manifests.items()
            for caveat in item.caveats
        ],
    )
