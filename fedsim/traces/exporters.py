"""Writers of other trace formats, so that other simulators can read fedsim's bundles."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from fedsim.errors import UserError, refused
from fedsim.files.durable import replacing, require_new
from fedsim.parts.component import Parameters
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers.fta import COLUMNS
from fedsim.traces.importers.links import PACKET_BITS
from fedsim.traces.intervals import device_periods
from fedsim.units import US_PER_S
from fedsim.vocabulary.arrays import Floats, Ints

Files = Iterator[tuple[Path, str | bytes]]
"""Files and their content."""

# FedScale's code assumes that training on a sample takes this many times as long as inference.
TRAIN_FACTOR = 3.0


@dataclass(frozen=True)
class Exporter:
    """A format: its line in the list of formats, its writer, and the model of its parameters."""

    description: str
    files: Callable[[TraceBundle, Path, Any, dict[str, int]], Files]
    """From a sound bundle, the file (or the folder for one file per series), parameters and counts to files. The counts
    receive the numbers of items written, and of those that the format cannot express."""
    Params: type[Parameters] = Parameters

    def write(
        self, bundle: TraceBundle, path: Path, params: Any, *, overwrite: bool = False
    ) -> dict[str, int]:
        """Write a bundle in this format, replacing existing files only with ``overwrite``; returns the counts."""
        counts: dict[str, int] = {}
        for file, content in self.files(bundle, path, params, counts):
            if not (overwrite and file.is_file()):
                or_force = ", or use --force to replace this one" * (not overwrite)
                require_new(file, f"name another file{or_force}")
            data = content.encode() if isinstance(content, str) else content
            hint = "name a folder: there is one file per series" if path.is_file() else None
            with refused("cannot be written", file, hint):
                file.parent.mkdir(parents=True, exist_ok=True)
                with replacing(file) as temporary:
                    temporary.write_bytes(data)
        return counts


def available_rows(bundle: TraceBundle) -> pd.DataFrame:
    """The intervals in which devices are available: row of the device, start, end (us), by device and start."""
    columns = {name: bundle.numpy("availability", f"{name}_us") for name in ("start", "end")}
    rows = pd.DataFrame({"device": bundle.device_rows("availability"), **columns})
    if bundle.has("availability", "state"):
        rows = rows[bundle.numpy("availability", "state") == 1]
    return rows.sort_values(["device", "start"])


def whole_seconds(rows: pd.DataFrame, counts: dict[str, int]) -> pd.DataFrame:
    """Intervals rounded to whole seconds (s); ``counts`` receives how many were moved, and dropped as empty."""
    exact = rows[["start", "end"]]
    rounded = (exact + US_PER_S // 2) // US_PER_S
    kept = rounded["end"] > rounded["start"]
    counts["rounded"] = int((rounded * US_PER_S != exact).any(axis=1).sum())
    counts["vanished"] = int((~kept).sum())
    return rounded.assign(device=rows["device"])[kept]


class Link(NamedTuple):
    """One direction of one series: its name, also as that of a file, and its n pieces."""

    series_id: str
    direction: str
    file_name: str
    edges_us: Ints
    """Start of the first piece (0) and ends of all, shape (n + 1,)."""
    rate_bps: Floats


def links(bundle: TraceBundle) -> Iterator[Link]:
    """The series of a bundle, which must have a known rate in all pieces and different file names."""
    table = bundle.table("network_series").to_pandas()
    if (unknown := table["rate_bps"].isna()).any():
        row = int(unknown.to_numpy().argmax())
        raise bundle.error(f"network_series row {row} has no rate, which the format requires")
    by_link: Any = table.groupby(["series_id", "direction"], observed=True, sort=False)
    seen: dict[tuple[str, str], str] = {}
    for (name, way), pieces in by_link:
        file_name = name.replace("/", "_")
        other = seen.setdefault((file_name, way), name)
        if other != name:
            raise bundle.error(f"the series '{other}' and '{name}' would have the same file name")
        edges_us = np.append(0, np.cumsum(pieces["dur_us"]))
        yield Link(name, way, file_name, edges_us, pieces["rate_bps"].to_numpy())


def _avt(bundle: TraceBundle, path: Path, params: Any, counts: dict[str, int]) -> Files:
    """One line per valid device with its up intervals, in whole seconds; AVT has neither windows nor periods."""
    rows = whole_seconds(available_rows(bundle), counts)
    texts = rows["start"].astype(str) + " " + rows["end"].astype(str)
    spans = texts.groupby(rows["device"]).agg(list).to_dict()
    lines = []
    for row in np.flatnonzero(bundle.valid).tolist():
        name = bundle.device_ids[row].as_py()
        if len(name.split()) != 1 or name.startswith("#"):
            raise bundle.error(f"the device '{name}' has spaces, which separate fields in AVT")
        intervals = spans.get(row, [])
        lines.append(f"{name}\t{len(intervals)}\t {' '.join(intervals)}\n")
    counts |= {"nodes": len(lines), "invalid_devices": bundle.device_count - len(lines)}
    yield path, "".join(lines)


class FedScaleParams(Parameters):
    """Options of the FedScale exporter."""

    content: Literal["behaviour", "capacity"] = "behaviour"
    """Which of FedScale's two files to write."""
    align: Literal["clock", "device"] = "clock"
    """Time 0 of a client: the bundle's time 0, so that FedScale's replay agrees with fedsim's (a session across the
    end of the period is split in two), or the start of the device's window."""
    bits_per_kbit: Literal[1000, 1024] = 1000
    """Bits in a kilobit of ``communication``."""


def _fedscale(
    bundle: TraceBundle, path: Path, params: FedScaleParams, counts: dict[str, int]
) -> Files:
    """One dict of clients: JSON if the file name ends in ``.json``, a pickle of plain types if it ends in ``.pkl``.

    A capacity is an inference time per sample (a third of the training time if only that is known) and one rate for
    both directions (down if they differ): the fixed part of a step and the uplink are dropped and counted.

    Clients keep their names if all names are whole numbers; otherwise they are numbered from 1. FedScale has neither
    invalid devices nor devices that are never available: these are left out and counted.
    """
    if path.suffix not in (".json", ".pkl"):
        message = f"the ending '{path.suffix}' does not determine the format"
        raise UserError(message, where=path, hint="end the name in .json or .pkl")
    records_of = _behaviour if params.content == "behaviour" else _capacity
    records = records_of(bundle, params, counts)
    counts["clients"] = len(records)
    yield (
        path,
        json.dumps(records) if path.suffix == ".json" else pickle.dumps(records, protocol=4),
    )


def _client_ids(bundle: TraceBundle) -> list[int]:
    names = bundle.device_ids.to_pylist()
    are_numbers = all(re.fullmatch("0|[1-9][0-9]*", name) for name in names)
    return list(map(int, names)) if are_numbers else list(range(1, len(names) + 1))


def _behaviour(
    bundle: TraceBundle, params: FedScaleParams, counts: dict[str, int]
) -> dict[int, dict[str, Any]]:
    rows, (low, high) = available_rows(bundle), bundle.windows
    period = device_periods(bundle, high - low)
    if params.align == "device":
        shift = low[rows["device"]]
        rows = rows.assign(start=rows["start"] - shift, end=rows["end"] - shift)
    else:
        # Modulo the period; what crosses its end is split in two.
        lap = period[rows["device"]]
        start = rows["start"] % lap
        end = start + rows["end"] - rows["start"]
        over = end > lap
        rest = rows.assign(start=0, end=end - lap)[over]
        rows = pd.concat([rows.assign(start=start, end=np.minimum(end, lap)), rest])
        rows = rows.sort_values(["device", "start"])
        counts["split_at_seam"] = int(over.sum())
    rows = whole_seconds(rows, counts)
    period_s = np.maximum((period + US_PER_S // 2) // US_PER_S, 1).tolist()
    lists: Any = rows.groupby("device")[["start", "end"]].agg(list)
    usable = int(np.count_nonzero(bundle.valid))
    counts["invalid_devices"] = bundle.device_count - usable
    counts["never_available"] = usable - len(lists)
    ids, models = _client_ids(bundle), bundle.texts("devices", "model")
    return {
        ids[row]: {
            "duration": sum(inactive) - sum(active),
            "inactive": inactive,
            "finish_time": period_s[row],
            "active": active,
            "model": models[row] or "unknown",
        }
        for row, active, inactive in lists.itertuples()
    }


def _capacity(
    bundle: TraceBundle, params: FedScaleParams, counts: dict[str, int]
) -> dict[int, dict[str, float]]:
    sample_s = _by_device(bundle, "compute", "sample_s", phase="inference")
    if not sample_s:
        training_s = _by_device(bundle, "compute", "sample_s", phase="training")
        sample_s = {row: time_s / TRAIN_FACTOR for row, time_s in training_s.items()}
    if "step_fixed_s" in bundle.table("compute").column_names:
        fixed_s = bundle.numpy("compute", "step_fixed_s")
        counts["fixed_parts_lost"] = int(np.count_nonzero(fixed_s > 0))
    rate_bps = _by_device(bundle, "network", "bandwidth_bps", direction="both")
    if not rate_bps:
        # FedScale has one rate for both directions; most other traces measure the downlink.
        rate_bps = _by_device(bundle, "network", "bandwidth_bps", direction="down")
        counts["up_rates_lost"] = len(
            _by_device(bundle, "network", "bandwidth_bps", direction="up")
        )
    records = {
        client: {
            "computation": sample_s[row] * 1000.0,
            "communication": rate_bps[row] / params.bits_per_kbit,
        }
        for row, client in enumerate(_client_ids(bundle))
        if row in sample_s and row in rate_bps
    }
    if not records:
        raise bundle.error(
            "no device has both an inference time per sample and a bandwidth",
            "pair the bundle with compute and network columns: `fedsim traces join`",
        )
    return records


def _by_device(bundle: TraceBundle, table: str, value: str, **condition: str) -> dict[int, float]:
    """Known values of a column by device row, from the table's rows that meet the condition ``column=text``."""
    if value not in bundle.table(table).column_names:
        return {}
    ((column, text),) = condition.items()
    values = bundle.numpy(table, value)
    keep = (bundle.texts(table, column) == text) & ~np.isnan(values)
    rows = bundle.device_rows(table)[keep].tolist()
    return dict(zip(rows, values[keep].tolist(), strict=True))


class FtaParams(Parameters):
    """Options of the FTA exporter."""

    available_type: Literal[0, 1] = 1
    """The ``event_type`` that means available; the other means unavailable."""


def _fta(bundle: TraceBundle, path: Path, params: FtaParams, counts: dict[str, int]) -> Files:
    """All rows of both states in epoch seconds, to the microsecond; component ids equal the node ids.

    If a bundle has available intervals only, the gaps inside each device's window become unavailable rows. Time 0 is
    the bundle's epoch, read as UTC, or 1970 if it has none. Invalid devices are left out.
    """
    valid, (low, high) = bundle.valid, bundle.windows
    columns = {name: bundle.numpy("availability", f"{name}_us") for name in ("start", "end")}
    rows = pd.DataFrame({"device": bundle.device_rows("availability"), **columns, "state": 1})
    rows["reason"] = bundle.texts("availability", "end_reason")
    if bundle.has("availability", "state"):
        rows["state"] = bundle.numpy("availability", "state")
    counts["gaps_written"] = 0
    if rows["state"].all():
        # With the window's edges as empty intervals, every gap lies between two neighbors.
        devices = np.flatnonzero(valid)
        edges = [
            pd.DataFrame({"device": devices, "start": e, "end": e})
            for e in (low[valid], high[valid])
        ]
        every = pd.concat([rows, *edges]).sort_values(["device", "start", "end"], kind="stable")
        before = every.groupby("device")["end"].shift(fill_value=np.iinfo(np.int64).max)
        gaps = every.assign(start=before, end=every["start"], state=0, reason=None)
        gaps = gaps[before < every["start"]]
        counts["gaps_written"] = len(gaps)
        rows = pd.concat([rows, gaps])
    rows = rows[valid[rows["device"]]].sort_values(["device", "start"], kind="stable")
    counts |= {"events": len(rows), "invalid_devices": int(np.count_nonzero(~valid))}

    epoch = bundle.epoch or datetime(1970, 1, 1)
    epoch = epoch if epoch.tzinfo else epoch.replace(tzinfo=UTC)
    epoch_us = round(epoch.timestamp()) * US_PER_S
    names = bundle.device_ids.to_pylist()
    bare = [name.rpartition("/")[2] for name in names]
    nodes = bare if all(name.isdecimal() for name in bare) else list(map(str, range(len(names))))
    source_ids, groups = (bundle.texts("devices", name) for name in ("source_id", "group"))
    labels = [label or name for label, name in zip(source_ids, names, strict=True)]
    platforms = [platform or "1" for platform in groups]
    owners = np.array([nodes, nodes, platforms, labels], object)[:, rows["device"]]
    types = np.array([1 - params.available_type, params.available_type]).astype(str)
    times = ([_seconds(us + epoch_us) for us in rows[name].tolist()] for name in ("start", "end"))
    reasons = [reason or "NULL" for reason in rows["reason"]]
    numbers = map(str, range(len(rows)))
    lines = zip(numbers, *owners, types[rows["state"]], *times, reasons, strict=True)
    yield path, "\n".join(["# " + "\t".join(COLUMNS), *map("\t".join, lines)]) + "\n"


def _seconds(time_us: int) -> str:
    whole, rest_us = divmod(time_us, US_PER_S)
    return f"{whole}.{rest_us // 1000:03d}" if rest_us % 1000 == 0 else f"{whole}.{rest_us:06d}"


_MOST_PACKETS = 50_000_000
"""Lines of a file of half a gigabyte."""


def _mahimahi(bundle: TraceBundle, path: Path, params: Any, counts: dict[str, int]) -> Files:
    """A folder with ``NAME.down`` and ``NAME.up``; a series for both directions is written twice.

    A packet is delivered in the millisecond in which the bits sent since the start reach the next multiple of 12,000.
    A trace must end with a packet: an idle end and an incomplete packet are cut off.
    """
    counts |= {"files": 0, "opportunities": 0, "idle_end_ms": 0}
    for link in links(bundle):
        sent = np.append(0.0, np.cumsum(link.rate_bps * np.diff(link.edges_us) / 1e6))
        length_ms = -(-int(link.edges_us[-1]) // 1000)
        # Sums of many rates have rounding errors: a packet that lacks no more than these is complete.
        packets = int(sent[-1] / PACKET_BITS * (1 + 1e-12) + 1e-6)
        if packets > _MOST_PACKETS:
            raise bundle.error(
                f"the series '{link.series_id}' carries {packets:.3g} packets",
                f"Mahimahi has a line for each; at most {_MOST_PACKETS:,} are written",
            )
        wanted = (np.arange(1, packets + 1) - 1e-6) / (1 + 1e-12) * PACKET_BITS
        ends_us = np.interp(wanted, sent, link.edges_us)
        packets_ms = (np.ceil(ends_us / 1000).astype(np.int64) - 1).tolist()
        if not packets_ms:
            raise bundle.error(
                f"the series '{link.series_id}' carries less than one packet",
                "Mahimahi needs at least one packet of 1,500 bytes",
            )
        text = "\n".join(map(str, packets_ms)) + "\n"
        for direction in ("down", "up") if link.direction == "both" else (link.direction,):
            yield path / f"{link.file_name}.{direction}", text
            counts["files"] += 1
            counts["opportunities"] += len(packets_ms)
            counts["idle_end_ms"] += length_ms - 1 - packets_ms[-1]
    if not counts["files"]:
        raise bundle.error("has no series")


class PensieveParams(Parameters):
    """Options of the Pensieve exporter."""

    direction: Literal["down", "up"] = "down"
    """Direction to write; series for both directions are always written."""


def _pensieve(
    bundle: TraceBundle, path: Path, params: PensieveParams, counts: dict[str, int]
) -> Files:
    """A folder with one file per series: ``time_s TAB Mbit/s``, the rate of the interval that ends at that time.

    The first line gives the start of the first interval and repeats its rate. Scales and offsets of devices are not
    applied, because series are written, not devices.
    """
    counts |= {"series": 0, "other_direction": 0}
    for link in links(bundle):
        if link.direction not in (params.direction, "both"):
            counts["other_direction"] += 1
            continue
        time_s = link.edges_us / 1e6
        rate = np.append(link.rate_bps[:1], link.rate_bps) / 1e6
        lines = [f"{t!r}\t{r!r}\n" for t, r in zip(time_s.tolist(), rate.tolist(), strict=True)]
        yield path / link.file_name, "".join(lines)
        counts["series"] += 1
    if not counts["series"]:
        raise bundle.error(f"has no series for {params.direction}")


FORMATS = {
    "avt": Exporter("AVT availability traces, one line per node", _avt),
    "fedscale": Exporter(
        "FedScale client behavior or device capacity (.json or .pkl)", _fedscale, FedScaleParams
    ),
    "fta": Exporter("Failure Trace Archive event_trace table", _fta, FtaParams),
    "mahimahi": Exporter(
        "Mahimahi packet-delivery traces, a folder with .down and .up files", _mahimahi
    ),
    "pensieve": Exporter(
        "Pensieve cooked throughput traces, a folder with one file per series",
        _pensieve,
        PensieveParams,
    ),
}
"""The formats by name: AVT (Godfrey, Repository of Availability Traces), FedScale (as REFL and Oort read it, too), FTA
(Kondo et al., CCGrid 2010), Mahimahi (Netravali et al., ATC 2015), and Pensieve (Mao et al., SIGCOMM 2017)."""
