"""New populations from trace bundles: a part of one, a larger one drawn from it, or the columns of several joined.

What is drawn is a function of the seed alone. Nothing is invented: every device of the result replays a device of a
source.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.traces.bundle import Manifest, TraceBundle, package_version
from fedsim.traces.statistics import device_bandwidths, device_shares, device_speeds
from fedsim.traces.synthesis.columns import pearson_of_spearman
from fedsim.traces.tables import id_column, make_table, single_chunk

DAY_US = 86_400_000_000

# Tables whose rows belong to a device; the others describe things that devices refer to.
DEVICE_TABLES = (
    "availability",
    "device_events",
    "compute",
    "compute_series",
    "network",
    "network_assign",
)
SHARED_TABLES = ("network_series", "rtt_matrix")

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_PICK, _SHIFT, _COMPUTE, _NETWORK = range(4)


def sample(bundle: TraceBundle, devices: int, seed: int = 0) -> TraceBundle:
    """A part of a bundle: ``devices`` of its valid devices, drawn without replacement, in their order.

    Raises:
        UserError: the bundle has fewer valid devices.
    """
    valid = _valid_rows(bundle)
    if devices > len(valid):
        raise UserError(
            f"the trace bundle has {len(valid):,} usable devices, fewer than {devices:,}",
            where=bundle.where,
            hint="`fedsim traces scale` draws devices more than once",
        )
    keys = Stream(seed, Purpose.TRACE, _PICK).uniforms(valid)
    rows = np.sort(valid[np.argsort(keys, kind="stable")[:devices]])
    tables: dict[str, Any] = {"devices": bundle.devices.take(pa.array(rows))}
    copies = np.arange(devices)
    ids = single_chunk(tables["devices"].column("device_id"))
    for name in DEVICE_TABLES:
        if name in bundle.tables:
            tables[name] = _copied(bundle, name, rows, copies, ids)
    tables |= {name: bundle.tables[name] for name in SHARED_TABLES if name in bundle.tables}
    options = {"devices": devices}
    manifest = _derived("sample", {"bundle": bundle}, options, seed, bundle.manifest, {})
    return TraceBundle(manifest, tables)


def scale(bundle: TraceBundle, devices: int, seed: int = 0, *, shift: bool = True) -> TraceBundle:
    """A population of any size: ``devices`` draws, with replacement, from the valid devices of a bundle.

    So that copies of one device do not move in step, each is shifted by a random number of whole days, which keeps its
    habits at their hour of the day. For that, traces are cut to whole days and wrap around them; a device that was
    observed for less than two days is not shifted.

    Args:
        bundle: where devices are drawn from.
        devices: number of devices of the result.
        seed: seed of the draws.
        shift: shift the copies; otherwise they are exact copies.

    Raises:
        UserError: the bundle has no usable device; or it is to be shifted and does not wrap.
    """
    valid = _valid_rows(bundle)
    if not len(valid):
        raise UserError("the trace bundle has no usable device", where=bundle.where)
    if shift and bundle.manifest.on_end != "wrap":
        raise UserError(
            f"the trace bundle does not wrap (on_end: {bundle.manifest.on_end}), so its days cannot be shifted",
            where=bundle.where,
            hint="use --no-shift",
        )
    copies = np.arange(devices)
    uniform = Stream(seed, Purpose.TRACE, _PICK).uniforms(copies)
    rows = valid[(uniform * len(valid)).astype(np.int64)]
    number = _occurrence(rows)
    names = bundle.device_ids.take(pa.array(rows))
    suffix = pc.cast(pa.array(number), pa.string())
    ids = pc.binary_join_element_wise(names, suffix, "~")
    columns = bundle.devices.take(pa.array(rows))
    columns = {name: columns.column(name) for name in columns.column_names} | {"device_id": ids}
    counts = {"sources": len(np.unique(rows)), "shifted": 0}
    tables: dict[str, Any] = {}
    for name in DEVICE_TABLES:
        if name in bundle.tables and not (shift and name == "device_events"):
            tables[name] = _copied(bundle, name, rows, copies, ids)
    if shift:
        low = bundle.numpy("devices", "window_start_us")[rows]
        span = bundle.numpy("devices", "window_end_us")[rows] - low
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
            "device_events_dropped": bundle.tables["device_events"].num_rows
            if "device_events" in bundle.tables
            else 0,
        }
    tables["devices"] = make_table("devices", columns)
    tables |= {name: bundle.tables[name] for name in SHARED_TABLES if name in bundle.tables}
    options = {"devices": devices, "shift": shift}
    manifest = _derived("scale", {"bundle": bundle}, options, seed, bundle.manifest, counts)
    if shift:
        # Mondays of one copy now fall on Thursdays of another.
        manifest.epoch_weekday = None
    return TraceBundle(manifest, tables)


def join(
    availability: TraceBundle,
    compute: TraceBundle | None = None,
    network: TraceBundle | None = None,
    seed: int = 0,
    *,
    compute_correlation: float = 0.0,
    network_correlation: float = 0.0,
) -> TraceBundle:
    """The devices of one bundle with the compute of another and the network of a third.

    Each device is given the columns of a device drawn with replacement: independently, or with a rank correlation.

    Args:
        availability: bundle whose devices and times online are kept, and its other columns where no other is given.
        compute: bundle of the compute columns and series.
        network: bundle of the network columns and series.
        seed: seed of the draws.
        compute_correlation: Spearman's correlation, -1 to 1, of a device's share of time online and its speed.
        network_correlation: Spearman's correlation, -1 to 1, of a device's speed and its rate.

    Raises:
        UserError: a bundle lacks what is to be drawn from it or what a correlation is to be with.
    """
    for name, value in (("compute", compute_correlation), ("network", network_correlation)):
        if not -1 <= value <= 1:
            raise UserError(f"the {name} correlation is {value:g}, not from -1 to 1")
    ids = availability.device_ids
    tables: dict[str, Any] = {
        name: availability.tables[name]
        for name in ("devices", "availability", "device_events")
        if name in availability.tables
    }
    source = compute or availability
    if compute is not None:
        shares = device_shares(availability) if compute_correlation else None
        rows = _paired(compute, "compute", shares, compute_correlation, len(ids), seed, _COMPUTE)
        tables |= _given(compute, ("compute", "compute_series"), rows, ids)
    else:
        rows = np.arange(len(ids))
        tables |= _given(availability, ("compute", "compute_series"), rows, ids)
    if network is not None:
        speeds = None
        if network_correlation:
            speeds = device_speeds(source)
            if speeds is None:
                raise UserError("a network correlation needs a table compute", where=source.where)
            speeds = speeds[rows]
        rows = _paired(network, "network", speeds, network_correlation, len(ids), seed, _NETWORK)
        tables |= _given(network, ("network", "network_assign"), rows, ids)
        links = network
    else:
        tables |= _given(availability, ("network", "network_assign"), np.arange(len(ids)), ids)
        links = availability
    tables |= {name: links.tables[name] for name in SHARED_TABLES if name in links.tables}
    sources = {"availability": availability, "compute": compute, "network": network}
    options = {
        "compute_correlation": compute_correlation,
        "network_correlation": network_correlation,
    }
    given = {part: bundle for part, bundle in sources.items() if bundle is not None}
    manifest = _derived("join", given, options, seed, availability.manifest, {})
    return TraceBundle(manifest, tables)


def _valid_rows(bundle: TraceBundle) -> Int64Array:
    return np.flatnonzero(bundle.numpy("devices", "valid").astype(np.bool_))


def _occurrence(rows: Int64Array) -> Int64Array:
    """How often each value has occurred before, in order."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    start = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    result = np.empty(len(rows), np.int64)
    result[order] = np.arange(len(rows)) - start
    return result


def _copied(bundle: TraceBundle, name: str, rows: Int64Array, copies: Int64Array, ids: Any) -> Any:
    """The rows of a table that belong to the drawn devices, once for each draw, under the new ids."""
    table = bundle.tables[name]
    device = bundle.device_rows(name)
    order = np.argsort(device, kind="stable")
    first = np.searchsorted(device[order], np.arange(bundle.device_count))
    last = np.searchsorted(device[order], np.arange(bundle.device_count), side="right")
    counts = last[rows] - first[rows]
    start = np.repeat(first[rows] - np.cumsum(counts) + counts, counts)
    taken = table.take(pa.array(order[start + np.arange(counts.sum())]))
    columns = {key: taken.column(key) for key in table.column_names}
    columns["device_id"] = id_column(np.repeat(copies, counts), ids)
    return make_table(name, columns)


def _shifted(table: Any, ids: Any, low: Int64Array, whole: Int64Array, shift_us: Int64Array) -> Any:
    """Availability moved earlier by each device's shift within its whole days, cut where it leaves them."""
    device = single_chunk(table.column("device_id")).indices.to_numpy()
    span, origin, shift = whole[device], low[device], shift_us[device]
    start = table.column("start_us").to_numpy() - origin
    end = np.minimum(table.column("end_us").to_numpy() - origin, span)
    # In the first piece the interval lies after the shift, in the second before it, a lap later.
    pieces = []
    for begins, ends, move in (
        (np.maximum(start, shift), end, -shift),
        (start, np.minimum(end, shift), span - shift),
    ):
        kept = np.flatnonzero(ends > begins)
        pieces.append((kept, (begins + move + origin)[kept], (ends + move + origin)[kept]))
    row, begin, finish = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    order = np.lexsort((begin, device[row]))
    row, begin, finish = row[order], begin[order], finish[order]
    columns = {key: table.column(key).take(pa.array(row)) for key in table.column_names}
    columns |= {
        "device_id": id_column(device[row], ids),
        "start_us": begin,
        "end_us": finish,
    }
    # Cuts at midnight are this function's doing, not the source's: what it said of them no longer holds.
    columns.pop("censored", None)
    return make_table("availability", columns)


def _paired(
    bundle: TraceBundle,
    table: str,
    base: Float64Array | None,
    spearman: float,
    count: int,
    seed: int,
    key: int,
) -> Int64Array:
    """For each of ``count`` devices a device of ``bundle`` that has rows in ``table``."""
    if table not in bundle.tables:
        raise UserError(f"the trace bundle has no table {table}", where=bundle.where)
    candidates = np.unique(bundle.device_rows(table))
    candidates = candidates[candidates >= 0]
    if not len(candidates):
        raise UserError(f"the table {table} is empty", where=bundle.where)
    stream = Stream(seed, Purpose.TRACE, key)
    if base is None:
        uniform = stream.uniforms(np.arange(count))
        return candidates[(uniform * len(candidates)).astype(np.int64)]
    values = device_speeds(bundle) if table == "compute" else device_bandwidths(bundle)
    assert values is not None
    if not (np.isfinite(values[candidates]).all() and np.isfinite(base).all()):
        raise UserError(
            f"a correlation needs a figure for every device, and some have none in {table}",
            where=bundle.where,
        )
    ordered = candidates[np.argsort(values[candidates], kind="stable")]
    # A Gaussian copula with this correlation has Spearman's correlation as asked for.
    pearson = pearson_of_spearman(spearman)
    # Ties are broken by chance, or devices that are never online would all get like ones.
    tie_break = stream.uniforms(np.arange(count), 1)
    rank = rankdata(np.lexsort((tie_break, base)).argsort())
    score = ndtri((rank - 0.5) / count)
    drawn = pearson * score + np.sqrt(1 - pearson**2) * stream.normals(np.arange(count), 2)
    place = (ndtr(drawn) * len(ordered)).astype(np.int64)
    chosen: Int64Array = ordered[np.minimum(place, len(ordered) - 1)]
    return chosen


def _given(
    bundle: TraceBundle, names: tuple[str, ...], rows: Int64Array, ids: Any
) -> dict[str, Any]:
    return {
        name: _copied(bundle, name, rows, np.arange(len(rows)), ids)
        for name in names
        if name in bundle.tables
    }


def _derived(
    tool: str,
    sources: dict[str, TraceBundle],
    options: dict[str, Any],
    seed: int,
    origin: Manifest,
    counts: dict[str, int],
) -> Manifest:
    """A manifest that says what the bundle was made of and how."""
    manifests = {part: bundle.manifest for part, bundle in sources.items()}
    licenses = sorted({item.license or "unknown" for item in manifests.values()})
    citations = sorted({item.citation for item in manifests.values() if item.citation})
    return Manifest(
        name=f"{origin.name}-{tool}",
        source="; ".join(f"{part}: {item.source or item.name}" for part, item in manifests.items()),
        license="; ".join(licenses),
        citation="; ".join(citations) or None,
        epoch=origin.epoch,
        clock=origin.clock,
        epoch_weekday=origin.epoch_weekday,
        horizon_us=origin.horizon_us,
        on_end=origin.on_end,
        eligibility=origin.eligibility,
        importer=tool,
        importer_version=package_version(),
        options={
            **options,
            "sources": {
                part: {"name": item.name, "sha256": item.sha256, "command": item.command}
                for part, item in manifests.items()
            },
        },
        seed=seed,
        counts=dict(counts),
    )
