"""Putting a bundle together from columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._files import SourceFile, describe
from fedsim.traces.ordering import Intervals
from fedsim.traces.tables import constant_column, id_column, make_table

DAY_US = 86_400_000_000

# Profiles without a clock (capacities, benchmark scores, latencies) are given one day, which repeats.
STATIC_HORIZON_US = DAY_US

_US_LIMIT = 2**62


def microseconds(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Integer microseconds nearest to ``seconds``, which must be finite and within 146,000 years."""
    result: npt.NDArray[np.int64] = np.rint(seconds * 1e6).astype(np.int64)
    return result


def check_times(
    seconds: npt.NDArray[np.float64], record: Any, source: SourceFile, what: str
) -> None:
    """Refuse times that are not finite or beyond the clock's range.

    Args:
        seconds: the times.
        record: function from a row number to the name of its record.
        source: where they are from.
        what: what the times are.

    Raises:
        UserError: names the first offender.
    """
    bad = np.flatnonzero(~(np.abs(seconds) < _US_LIMIT / 1e6))
    if len(bad):
        value = seconds[bad[0]]
        # Converting null to a float makes it a NaN.
        said = "null or NaN" if np.isnan(value) else f"{value:g}"
        raise UserError(
            f"{what} is {said}, not a finite time in seconds",
            where=f"{source.where}, {record(int(bad[0]))}",
            hint="mend or remove the record",
        )


def nullable(values: npt.NDArray[Any]) -> Any:
    """An Arrow array in which NaN has become null (unknown)."""
    return pa.array(values, mask=np.isnan(values))


def devices_table(
    ids: Sequence[str],
    *,
    window_end_us: npt.NDArray[np.int64] | int,
    window_start_us: npt.NDArray[np.int64] | int = 0,
    kind: str | None = None,
    **columns: Any,
) -> Any:
    """A table of devices; ``source_id`` is the id and every device is valid unless ``columns`` say otherwise."""
    count = len(ids)
    values: dict[str, Any] = {
        "device_id": pa.array(ids, type=pa.string()),
        "source_id": pa.array(ids, type=pa.string()),
        "window_start_us": np.broadcast_to(np.asarray(window_start_us, np.int64), count),
        "window_end_us": np.broadcast_to(np.asarray(window_end_us, np.int64), count),
        "valid": np.ones(count, bool),
    }
    if kind is not None:
        values["kind"] = constant_column(kind, count)
    return make_table("devices", values | columns)


def availability_table(
    intervals: Intervals,
    ids: Any,
    *,
    window_start_us: npt.NDArray[np.int64] | None = None,
    window_end_us: npt.NDArray[np.int64] | None = None,
    **columns: Any,
) -> Any:
    """A table of availability, of state 1 unless ``columns`` say otherwise.

    With the windows of the devices given, an interval that reaches an edge of its window is marked as censored there.
    """
    count = len(intervals.device)
    censored = np.zeros(count, np.int8)
    if window_start_us is not None:
        censored |= (intervals.start <= window_start_us[intervals.device]).astype(np.int8)
    if window_end_us is not None:
        censored |= (intervals.end >= window_end_us[intervals.device]).astype(np.int8) << 1
    values = {
        "device_id": id_column(intervals.device, ids),
        "start_us": intervals.start,
        "end_us": intervals.end,
        "state": np.ones(count, np.int8),
        "censored": censored,
    }
    return make_table("availability", values | columns)


def bundle(
    importer: type[Importer],
    params: ImporterParams,
    paths: Sequence[Path],
    tables: Mapping[str, Any],
    counts: Mapping[str, int],
    *,
    caveats: Sequence[str] = (),
    **manifest: Any,
) -> TraceBundle:
    """The bundle of an import, its manifest filled in."""
    metadata = {"name", "source", "licence", "citation", "caveat"}
    name = paths[0].name if paths else importer.name
    for suffix in (".gz", ".zip", ".json", ".pkl", ".csv", ".tab", ".avt", ".txt"):
        name = name.removesuffix(suffix)
    return TraceBundle(
        Manifest(
            name=params.name or name,
            source=params.source or describe(paths),
            licence=params.licence,
            citation=params.citation,
            importer=importer.name,
            importer_version=importer.version,
            options=params.model_dump(mode="json", exclude=metadata),
            counts={key: int(value) for key, value in counts.items()},
            caveats=[*caveats, *([params.caveat] if params.caveat else [])],
            **manifest,
        ),
        dict(tables),
    )


def single_ids(ids: Sequence[str], where: str, what: str) -> None:
    """Refuse an id that comes twice.

    Raises:
        UserError: names the first one.
    """
    seen: set[str] = set()
    for number, item in enumerate(ids, start=1):
        if item in seen:
            raise UserError(
                f"{what} {item!r} comes twice",
                where=f"{where}, record {number}",
                hint="give every one a name of its own",
            )
        seen.add(item)
