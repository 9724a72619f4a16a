"""The nine tables of a trace bundle as Arrow schemas, each column with its unit and its meaning.

Times are ``int64`` microseconds from the bundle's epoch, rates ``float64`` SI bits per second, sizes bytes, durations
of profiles ``float64`` seconds. Intervals are half open, ``[start, end)``. A null means unknown, never 0. Columns that
are not required may be absent from a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedsim.errors import UserError

STRING = pa.string()
ID = pa.dictionary(pa.int32(), pa.string())
INT64, INT32, INT8 = pa.int64(), pa.int32(), pa.int8()
FLOAT64, FLOAT32, BOOL = pa.float64(), pa.float32(), pa.bool_()


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        name: column name.
        type: Arrow type.
        description: what a value means.
        unit: unit of the values; empty where there is none.
        required: the column must be present.
        nullable: values may be unknown.
    """

    name: str
    type: Any
    description: str
    unit: str = ""
    required: bool = False
    nullable: bool = True

    @property
    def field(self) -> Any:
        """The Arrow field, with unit and description as metadata."""
        metadata = {"description": self.description}
        if self.unit:
            metadata["unit"] = self.unit
        return pa.field(self.name, self.type, nullable=True, metadata=metadata)


def _key(name: str, type_: Any, description: str, unit: str = "") -> Column:
    return Column(name, type_, description, unit, required=True, nullable=False)


def _device(description: str = "device concerned; an id of the devices table") -> Column:
    return _key("device_id", ID, description)


DIRECTIONS = ("down", "up", "both")
PHASES = ("inference", "training")
EVENT_KEYS = ("charging", "network", "screen", "lock", "battery_pct", "idle")

TABLES: Mapping[str, tuple[Column, ...]] = {
    "devices": (
        _key("device_id", STRING, "name of the device, unique in the bundle"),
        Column("source_id", STRING, "name of the device in the source"),
        Column("model", STRING, "hardware model as the source names it"),
        Column("kind", ID, "phone, tablet, pc, vm, server or site"),
        Column("group", ID, "centre, region or rtt_matrix node that the device belongs to"),
        Column("tz_offset_s", INT32, "local time minus the bundle's clock", "s"),
        _key("window_start_us", INT64, "start of the observation of this device", "us"),
        _key("window_end_us", INT64, "end of the observation of this device", "us"),
        Column(
            "period_us",
            INT64,
            "wrap period of this device, from window_start_us on; null: the length of its window",
            "us",
        ),
        _key("valid", BOOL, "false: the source says that this device has no usable trace"),
    ),
    "availability": (
        _device(),
        _key("start_us", INT64, "first instant of the interval", "us"),
        _key("end_us", INT64, "first instant after the interval", "us"),
        Column("state", INT8, "1 available, 0 unavailable; absent: all 1", nullable=False),
        Column("end_reason", ID, "why the interval ended, in the source's words"),
        Column(
            "censored",
            INT8,
            "bit 0: began before the window; bit 1: ended after it",
            nullable=False,
        ),
    ),
    "device_events": (
        _device(),
        _key("time_us", INT64, "instant of the change", "us"),
        _key("key", ID, "charging, network, screen, lock, battery_pct or idle"),
        _key("value", ID, "state from this instant on, in the source's words"),
    ),
    "compute": (
        _device(),
        Column("task", ID, "workload that was measured; '*' is any", required=True, nullable=False),
        _key("phase", ID, "inference or training"),
        Column("batch_size", INT32, "batch size of the measurement", "samples"),
        Column("step_fixed_s", FLOAT64, "part of a step that does not depend on the batch", "s"),
        Column(
            "sample_s", FLOAT64, "time a sample: a step takes step_fixed_s + sample_s x batch", "s"
        ),
        Column("sample_s_std", FLOAT64, "standard deviation of sample_s", "s"),
        Column(
            "relative_speed", FLOAT64, "speed relative to the reference device; 2 is twice as fast"
        ),
        Column("score", FLOAT64, "benchmark score; higher is faster"),
        Column("ram_bytes", INT64, "memory of the device", "bytes"),
    ),
    "compute_series": (
        _device(),
        _key("start_us", INT64, "first instant of the piece", "us"),
        _key("dur_us", INT64, "length of the piece", "us"),
        _key("multiplier", FLOAT32, "factor on the time of a step; 2 is half as fast"),
    ),
    "network": (
        _device(),
        _key("direction", ID, "down (server to device), up, or both"),
        Column("bandwidth_bps", FLOAT64, "mean rate", "bit/s", required=True),
        Column("bandwidth_cv", FLOAT32, "standard deviation of the rate over its mean"),
        Column("rtt_s", FLOAT64, "round-trip time to the server", "s"),
        Column("loss", FLOAT32, "share of packets lost"),
        Column("radio", ID, "wifi, 3g, lte, 5g, ..."),
    ),
    "network_series": (
        _key("series_id", ID, "name of the series"),
        _key("direction", ID, "down (server to device), up, or both"),
        _key("start_us", INT64, "first instant of the piece", "us"),
        _key("dur_us", INT64, "length of the piece", "us"),
        Column("rate_bps", FLOAT64, "rate during the piece", "bit/s", required=True),
        Column("rtt_s", FLOAT32, "round-trip time during the piece", "s"),
        Column("loss", FLOAT32, "share of packets lost during the piece"),
        Column("radio", ID, "wifi, 3g, lte, 5g, ..."),
    ),
    "network_assign": (
        _device(),
        _key("series_id", ID, "series that the device rides; a series_id of network_series"),
        _key("offset_us", INT64, "position in the series at the bundle's epoch", "us"),
        _key("scale", FLOAT32, "factor on the rates of the series"),
    ),
    "rtt_matrix": (
        _key("src", ID, "node"),
        _key("dst", ID, "node"),
        Column("slice_us", INT64, "instant of the measurement", "us"),
        Column("rtt_s", FLOAT32, "round-trip time", "s", required=True),
    ),
}


def columns(table_name: str) -> dict[str, Column]:
    """The columns of a table by name, in their order on disk."""
    return {column.name: column for column in TABLES[table_name]}


def make_table(name: str, values: Mapping[str, Any]) -> Any:
    """A table of the bundle from columns (lists, numpy or Arrow arrays), cast to its schema.

    Args:
        name: one of :data:`TABLES`.
        values: columns by name. Columns that are not required may be left out. A ``None`` (not a NaN) is a null.

    Raises:
        UserError: a column is unknown, missing, of another length, or cannot be cast.
    """
    known = columns(name)
    unknown = [key for key in values if key not in known]
    missing = [key for key, column in known.items() if column.required and key not in values]
    if unknown or missing:
        parts = []
        if missing:
            parts.append(f"lacks the column {', '.join(missing)}")
        if unknown:
            parts.append(f"has the unknown column {', '.join(unknown)}")
        raise UserError(
            f"table {name} {' and '.join(parts)}", hint=f"its columns are: {', '.join(known)}"
        )
    fields, arrays = [], []
    for key, column in known.items():
        if key not in values:
            continue
        try:
            arrays.append(_cast(values[key], column.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise UserError(
                f"column {key} of table {name} cannot be read as {column.type}: {error}"
            ) from error
        fields.append(column.field)
    lengths = {column.name: len(array) for column, array in zip(fields, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise UserError(f"the columns of table {name} differ in length: {lengths}")
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _cast(values: Any, type_: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        values = single_chunk(values)
    if not isinstance(values, pa.Array):
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        if isinstance(values, Iterable) and not isinstance(values, np.ndarray):
            values = list(values)
        values = pa.array(values, type=plain, from_pandas=False)
    if values.type == type_:
        return values
    if pa.types.is_dictionary(type_) and not pa.types.is_dictionary(values.type):
        return values.cast(type_.value_type).dictionary_encode()
    return values.cast(type_)


def single_chunk(column: Any) -> Any:
    """The Arrow array of a chunked column; no copy where it is one chunk already."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type) and column.num_chunks:
        # Row groups of one file repeat one dictionary; unifying a million names anew takes ten seconds.
        chunks = column.chunks
        dictionary = chunks[0].dictionary
        if all(chunk.dictionary.equals(dictionary) for chunk in chunks[1:]):
            indices = pa.chunked_array([chunk.indices for chunk in chunks]).combine_chunks()
            return pa.DictionaryArray.from_arrays(indices, dictionary)
        column = column.unify_dictionaries()
    return column.combine_chunks()


def id_column(rows: npt.NDArray[np.integer[Any]], ids: Any) -> Any:
    """An id column from row numbers into ``ids`` (an Arrow or any other sequence of strings), without copying text."""
    dictionary = single_chunk(ids) if isinstance(ids, pa.ChunkedArray) else ids
    if not isinstance(dictionary, pa.Array):
        dictionary = pa.array(list(dictionary), type=STRING)
    return pa.DictionaryArray.from_arrays(pa.array(rows, type=pa.int32()), dictionary)


def constant_column(value: str, length: int) -> Any:
    """An id column that holds one value ``length`` times, in four bytes a row."""
    return id_column(np.zeros(length, np.int32), [value])
