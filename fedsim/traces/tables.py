"""The nine tables of a trace bundle, declared once: columns, types, units, bounds, keys and order.

Times are ``int64`` microseconds from the bundle's epoch, rates ``float64`` SI bits per second, sizes bytes, durations
of profiles ``float64`` seconds. Intervals are half open, ``[start, end)``. A null means unknown, never 0. Columns that
are not required may be absent from a table. :mod:`fedsim.traces.validation` checks what is declared here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError
from fedsim.files.cells import NOT_NEGATIVE, POSITIVE, SHARE, Bounds
from fedsim.files.cells import Bools as Bools
from fedsim.files.cells import Floats as Floats
from fedsim.files.cells import Ints as Ints

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
        description: meaning of the values.
        unit: unit of the values; empty if there is none.
        required: whether the column must be present.
        nullable: whether values may be unknown.
        bounds: range of valid numbers.
        words: the valid values of a text; any if empty.
        refers: table whose column of the same name lists the valid values.
    """

    name: str
    type: Any
    description: str
    unit: str = ""
    required: bool = False
    nullable: bool = True
    bounds: Bounds | None = None
    words: tuple[str, ...] = ()
    refers: str | None = None

    @property
    def field(self) -> Any:
        """The Arrow field, with unit and description as metadata."""
        metadata = {"description": self.description}
        if self.unit:
            metadata["unit"] = self.unit
        return pa.field(self.name, self.type, nullable=True, metadata=metadata)


@dataclass(frozen=True)
class Order:
    """The order of a table's rows: grouped, and ascending in time within a group.

    Args:
        group: columns that identify the group.
        start: column of the instant, or of the start of the interval.
        end: column of the interval's end; None if there is none.
        length: column of the interval's length; None if there is none.
        gaps: whether there may be gaps between intervals; otherwise each starts where the previous one ends.
    """

    group: tuple[str, ...]
    start: str
    end: str | None = None
    length: str | None = None
    gaps: bool = True


@dataclass(frozen=True)
class Schema:
    """One table: its columns in their order on disk, the columns that identify a row, and the order of its rows."""

    columns: tuple[Column, ...]
    unique: tuple[str, ...] = ()
    order: Order | None = None


DIRECTIONS = ("down", "up", "both")
PHASES = ("inference", "training")
EVENT_KEYS = ("charging", "network", "screen", "lock", "battery_pct", "idle")
TZ_OFFSETS_S = Bounds(-14 * 3600, 14 * 3600)


def _key(name: str, type_: Any, description: str, unit: str = "", **rules: Any) -> Column:
    return Column(name, type_, description, unit, required=True, nullable=False, **rules)


def _number(name: str, type_: Any, description: str, unit: str, bounds: Bounds) -> Column:
    return Column(name, type_, description, unit, bounds=bounds)


_DEVICE = _key("device_id", ID, "device; an id of the devices table", refers="devices")
_START = _key("start_us", INT64, "first instant of the piece", "us")
_LENGTH = _key("dur_us", INT64, "length of the piece", "us")
_DIRECTION = _key("direction", ID, "down (server to device), up, or both", words=DIRECTIONS)
_RADIO = Column("radio", ID, "wifi, 3g, lte, 5g, ...")

_DEVICES = (
    _key("device_id", STRING, "name of the device, unique in the bundle"),
    Column("source_id", STRING, "name of the device in the source"),
    Column("model", STRING, "hardware model as the source names it"),
    Column("kind", ID, "phone, tablet, pc, vm, server or site"),
    Column("group", ID, "center, region or rtt_matrix node that the device belongs to"),
    _number("tz_offset_s", INT32, "local time minus the bundle's clock", "s", TZ_OFFSETS_S),
    _key("window_start_us", INT64, "start of the observation of this device", "us"),
    _key("window_end_us", INT64, "end of the observation of this device", "us"),
    _number(
        "period_us",
        INT64,
        "wrap period of this device, from window_start_us on; null: the length of its window",
        "us",
        POSITIVE,
    ),
    _key("valid", BOOL, "false: this device has no usable trace according to the source"),
)
_STATE = "1 available, 0 unavailable; absent: all 1"
_CENSORED = "bit 0: began before the window; bit 1: ended after it"
_AVAILABILITY = (
    _DEVICE,
    _key("start_us", INT64, "first instant of the interval", "us"),
    _key("end_us", INT64, "first instant after the interval", "us"),
    Column("state", INT8, _STATE, nullable=False, bounds=SHARE),
    Column("end_reason", ID, "why the interval ended, in the source's words"),
    Column("censored", INT8, _CENSORED, nullable=False, bounds=Bounds(0, 3)),
)
_EVENTS = (
    _DEVICE,
    _key("time_us", INT64, "instant of the change", "us"),
    _key("key", ID, "charging, network, screen, lock, battery_pct or idle", words=EVENT_KEYS),
    _key("value", ID, "state from this instant on, in the source's words"),
)
_STEP_FIXED = "part of a step that does not depend on the batch"
_SAMPLE = "time per sample: a step takes step_fixed_s + sample_s x batch"
_SPEED = "speed relative to the reference device; 2 is twice as fast"
_COMPUTE = (
    _DEVICE,
    _key("task", ID, "workload that was measured; '*' is any"),
    _key("phase", ID, "inference or training", words=PHASES),
    _number("batch_size", INT32, "batch size of the measurement", "samples", POSITIVE),
    _number("step_fixed_s", FLOAT64, _STEP_FIXED, "s", NOT_NEGATIVE),
    _number(
        "step_fixed_error", FLOAT64, "relative standard error of step_fixed_s", "", NOT_NEGATIVE
    ),
    _number("sample_s", FLOAT64, _SAMPLE, "s", NOT_NEGATIVE),
    _number("sample_s_std", FLOAT64, "standard deviation of sample_s", "s", NOT_NEGATIVE),
    _number("relative_speed", FLOAT64, _SPEED, "", POSITIVE),
    _number("score", FLOAT64, "benchmark score; higher is faster", "", POSITIVE),
    _number("ram_bytes", INT64, "memory of the device", "bytes", POSITIVE),
)
_MULTIPLIER = "factor on the time of a step; 2 is half as fast"
_COMPUTE_SERIES = (
    _DEVICE,
    _START,
    _LENGTH,
    _key("multiplier", FLOAT32, _MULTIPLIER, bounds=POSITIVE),
)
_CV = "standard deviation of the rate over its mean"
_NETWORK = (
    _DEVICE,
    _DIRECTION,
    Column("bandwidth_bps", FLOAT64, "mean rate", "bit/s", required=True, bounds=POSITIVE),
    _number(
        "bandwidth_error", FLOAT64, "relative standard error of bandwidth_bps", "", NOT_NEGATIVE
    ),
    _number("bandwidth_cv", FLOAT32, _CV, "", NOT_NEGATIVE),
    _number("rtt_s", FLOAT64, "round-trip time to the server", "s", NOT_NEGATIVE),
    _number("rtt_error_s", FLOAT64, "standard error of rtt_s", "s", NOT_NEGATIVE),
    _number("loss", FLOAT32, "share of packets lost", "", SHARE),
    _RADIO,
)
_RATE = "rate during the piece"
_NETWORK_SERIES = (
    _key("series_id", ID, "name of the series"),
    _DIRECTION,
    _START,
    _LENGTH,
    Column("rate_bps", FLOAT64, _RATE, "bit/s", required=True, bounds=NOT_NEGATIVE),
    _number("rtt_s", FLOAT32, "round-trip time during the piece", "s", NOT_NEGATIVE),
    _number("loss", FLOAT32, "share of packets lost during the piece", "", SHARE),
    _RADIO,
)
_SERIES = "series that the device follows; a series_id of network_series"
_NETWORK_ASSIGN = (
    _DEVICE,
    _key("series_id", ID, _SERIES, refers="network_series"),
    _key("offset_us", INT64, "position in the series at the bundle's epoch", "us"),
    _key("scale", FLOAT32, "factor on the rates of the series", bounds=POSITIVE),
)
_RTT_MATRIX = (
    _key("src", ID, "node"),
    _key("dst", ID, "node"),
    Column("slice_us", INT64, "instant of the measurement", "us"),
    Column("rtt_s", FLOAT32, "round-trip time", "s", required=True, bounds=NOT_NEGATIVE),
)
_BY_DEVICE = Order(("device_id",), "start_us", length="dur_us", gaps=False)
_BY_SERIES = Order(("series_id", "direction"), "start_us", length="dur_us", gaps=False)

TABLES: Mapping[str, Schema] = {
    "devices": Schema(_DEVICES, unique=("device_id",)),
    "availability": Schema(_AVAILABILITY, order=Order(("device_id",), "start_us", end="end_us")),
    "device_events": Schema(_EVENTS, order=Order(("device_id",), "time_us")),
    "compute": Schema(_COMPUTE, unique=("device_id", "task", "phase", "batch_size")),
    "compute_series": Schema(_COMPUTE_SERIES, order=_BY_DEVICE),
    "network": Schema(_NETWORK, unique=("device_id", "direction")),
    "network_series": Schema(_NETWORK_SERIES, order=_BY_SERIES),
    "network_assign": Schema(_NETWORK_ASSIGN, unique=("device_id", "series_id")),
    "rtt_matrix": Schema(_RTT_MATRIX, unique=("src", "dst", "slice_us")),
}


def columns(table_name: str) -> dict[str, Column]:
    """The columns of a table by name, in their order on disk."""
    return {column.name: column for column in TABLES[table_name].columns}


def make_table(name: str, values: Mapping[str, Any]) -> Any:
    """A table of the bundle from columns (lists, numpy or Arrow arrays), cast to its schema.

    Args:
        name: one of :data:`TABLES`.
        values: columns by name; those that are not required may be left out. ``None`` (not NaN) becomes null.
    """
    known = columns(name)
    unknown = [key for key in values if key not in known]
    missing = [key for key, column in known.items() if column.required and key not in values]
    if unknown or missing:
        raise UserError(
            f"table {name}: missing columns {missing}, unknown columns {unknown}",
            hint=f"its columns are: {', '.join(known)}",
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
    """The Arrow array of a chunked column; not a copy if it has one chunk."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type) and column.num_chunks:
        # The row groups of a file share a dictionary; unifying a million names would take ten seconds.
        chunks = column.chunks
        dictionary = chunks[0].dictionary
        if all(chunk.dictionary.equals(dictionary) for chunk in chunks[1:]):
            indices = pa.chunked_array([chunk.indices for chunk in chunks]).combine_chunks()
            return pa.DictionaryArray.from_arrays(indices, dictionary)
        column = column.unify_dictionaries()
    return column.combine_chunks()


def id_column(rows: npt.NDArray[np.integer[Any]], ids: Any) -> Any:
    """An id column from indices into ``ids`` (an Arrow array or another sequence of strings), without copying text."""
    dictionary = single_chunk(ids) if isinstance(ids, pa.ChunkedArray) else ids
    if not isinstance(dictionary, pa.Array):
        dictionary = pa.array(list(dictionary), type=STRING)
    return pa.DictionaryArray.from_arrays(pa.array(rows, type=pa.int32()), dictionary)


def constant_column(value: str, length: int) -> Any:
    """An id column with the same value in ``length`` rows, four bytes each."""
    return id_column(np.zeros(length, np.int32), [value])


def run_starts(*columns: npt.NDArray[Any]) -> Bools:
    """Whether each row begins a run of rows that are equal in all ``columns``, shape (rows,)."""
    starts = np.ones(len(columns[0]), np.bool_)
    starts[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return starts


def order_of(device: Ints, *times: Ints) -> Ints:
    """The rows sorted by device and then by the times; rows that are equal keep their order."""
    if len(times) == 1 and (times[0][1:] >= times[0][:-1]).all():
        # Sorting small numbers takes one pass.
        small = device.astype(np.uint16) if device.max(initial=0) < 1 << 16 else device
        return np.argsort(small, kind="stable")
    return np.lexsort((*times[::-1], device))


def to_numpy(values: Any) -> npt.NDArray[Any]:
    """An Arrow array as a NumPy array; nulls become NaN in numbers, which become float64, and false in Booleans.

    Numbers without nulls are not copied. Arrow's conversion and every function with a scalar would import pandas,
    which takes as long as the rest of a small command; they are used only for text.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return filled(values.cast(pa.int8()), 0).view(np.bool_)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array
    if values.null_count and pa.types.is_integer(kind):
        values = values.cast(pa.float64(), safe=False)
    return filled(values, np.nan)


def filled(values: Any, fill: float) -> npt.NDArray[Any]:
    """An Arrow array of numbers as a NumPy array, with ``fill`` in place of nulls."""
    if not values.null_count:
        return np.from_dlpack(values)
    data = pa.Array.from_buffers(
        values.type, len(values), [None, values.buffers()[1]], offset=values.offset
    )
    return np.where(to_numpy(pc.is_null(values)), fill, np.from_dlpack(data))
