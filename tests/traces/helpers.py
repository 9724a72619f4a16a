"""Imports and exports of the tests, and plain, slow readings of a bundle that share no code with fedsim's own index."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import FORMATS
from fedsim.traces.importers import import_bundle
from fedsim.traces.validation import validate_bundle


def import_(format_: str, *paths: Path, **options: Any) -> TraceBundle:
    """Import files and check that the bundle is sound."""
    importer = CATALOG.parts("importer")[format_]
    bundle = import_bundle(importer, list(paths), importer.Params(**options))
    assert validate_bundle(bundle) == []
    return bundle


def refused(format_: str, *paths: Path, **options: Any) -> str:
    """Message of the import of files that must be refused; it must name the file and say how to fix it."""
    importer = CATALOG.parts("importer")[format_]
    with pytest.raises(UserError) as caught:
        import_bundle(importer, list(paths), importer.Params(**options))
    message = str(caught.value)
    assert any(path.name in message for path in paths), message
    return message


def intervals(bundle: TraceBundle, *, state: int = 1) -> dict[str, list[tuple[int, int]]]:
    """Intervals (us) by device, in the order of the table."""
    result: dict[str, list[tuple[int, int]]] = {
        str(row["device_id"]): [] for row in bundle.devices.to_pylist()
    }
    for row in bundle.tables["availability"].to_pylist():
        if row.get("state", 1) == state:
            result[row["device_id"]].append((row["start_us"], row["end_us"]))
    return result


def online(bundle: TraceBundle, time_us: float) -> set[str]:
    """Devices that are available at a time, each wrapped with its own period from its window's start."""
    devices = bundle.devices.to_pandas().set_index("device_id")
    length = devices["window_end_us"] - devices["window_start_us"]
    if "period_us" in devices:
        length = devices["period_us"].fillna(length)
    start = devices["window_start_us"]
    at = ((time_us - start) % length + start)[devices["valid"]].rename("at")
    spans = bundle.tables["availability"].to_pandas().join(at, on="device_id", how="inner")
    inside = (spans["start_us"] <= spans["at"]) & (spans["at"] < spans["end_us"])
    if "state" in spans:
        inside &= spans["state"] == 1
    return set(spans.loc[inside, "device_id"])


def series_rows(
    bundle: TraceBundle, series: str, direction: str
) -> Sequence[tuple[int, int, float | None]]:
    """(start_us, dur_us, rate_bps) of a series."""
    chosen = bundle.texts("network_series", "series_id") == series
    chosen &= bundle.texts("network_series", "direction") == direction
    rows = bundle.tables["network_series"].filter(pa.array(chosen)).to_pylist()
    return [(row["start_us"], row["dur_us"], row["rate_bps"]) for row in rows]


def export(format_: str, bundle: Any, path: Path, **options: Any) -> dict[str, int]:
    """Export a bundle; returns the counts."""
    exporter = FORMATS[format_]
    counts: dict[str, int] = exporter.write(bundle, path, exporter.Params(**options))
    return counts


def rate_at(bundle: Any, series: str, direction: str, time_us: int) -> float | None:
    """The rate of a series at a time."""
    rates = [
        rate
        for start, dur, rate in series_rows(bundle, series, direction)
        if start <= time_us < start + dur
    ]
    assert len(rates) == 1
    return rates[0]


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


FTA_MIDNIGHT = 1136073600  # 2006-01-01, a Sunday


def fta_row(
    node: int,
    type_: int | str,
    start: float | str,
    stop: float | str,
    reason: str = "NULL",
    *,
    component: int = 1,
    platform: int = 1,
) -> str:
    times = [
        f"{FTA_MIDNIGHT + time:.3f}" if isinstance(time, float | int) else time
        for time in (start, stop)
    ]
    return "\t".join(
        map(str, ["0", component, node, platform, f"host{node}", type_, *times, reason])
    )


FTA_HEADER = (
    "event_id\tcomponent_id\tnode_id\tplatform_id\tnode_name\tevent_type\t"
    "event_start_time\tevent_stop_time\tevent_end_reason"
)


def export_fta(bundle: Any, path: Path, **options: Any) -> tuple[list[list[str]], dict[str, int]]:
    exporter = FORMATS["fta"]
    counts = exporter.write(bundle, path, exporter.Params(**options))
    lines = path.read_text().splitlines()
    assert lines[0] == "# " + FTA_HEADER
    return [line.split("\t") for line in lines[1:]], counts


def client(
    active: list[int], inactive: list[int], finish: int = 86400, **more: Any
) -> dict[str, Any]:
    return {"active": active, "inactive": inactive, "finish_time": finish, "model": "M", **more}


def behaviour(path: Path, clients: dict[Any, Any]) -> Path:
    path.write_text(json.dumps(clients))
    return path


def online_counts(
    index: AvailabilityIndex, times_ns: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Number of clients online at each of some instants (ns, ascending)."""
    clients = np.arange(index.clients)
    return np.array([index.state_many(clients, t_ns)[0].sum() for t_ns in times_ns])
