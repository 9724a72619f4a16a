"""The ten tables of a trace bundle, declared once: columns, types, units, bounds, keys and order.

Times are ``int64`` microseconds from the bundle's epoch, rates ``float64`` SI bits per second, sizes bytes, durations
of profiles ``float64`` seconds. Intervals are half open, ``[start, end)``. A null means unknown, never 0. Columns that
are not required may be absent from a table. :mod:`fedsim.traces.validation` checks what is declared here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError, refused
from fedsim.files.cells import NOT_NEGATIVE, POSITIVE, Bounds
from fedsim.units import LONGEST_S
from fedsim.vocabulary.arrays import Array, Bools, Ints

STRING = pa.string()
ID = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"string": STRING, "id": ID, "bool": pa.bool_()} | {
    name: getattr(pa, name)() for name in ("int64", "int32", "int8", "float64", "float32")
}
FINITE = Bounds(words="finite")
MOST_US = 4_500_000_000_000_000
"""So that differences in nanoseconds are 64-bit numbers."""
CARBON_UNIT = "g/kWh"
_LIMITS = {">= 0": NOT_NEGATIVE, "> 0": POSITIVE, "finite": FINITE}
_MOST = {"s": LONGEST_S, "bit/s": 1e18}  # Larger values are damage.

DECLARED = """
devices: unique device_id
  device_id! string | | | name of the device, unique in the bundle
  source_id string | | | name of the device in the source
  model string | | | hardware model as the source names it
  kind id | | | phone, tablet, pc, vm, server or site
  group id | | | center, region or rtt_matrix node that the device belongs to
  tz_offset_s int32 | s | -50400 to 50400 | local time minus the bundle's clock
  window_start_us! int64 | us | | start of the observation of this device
  window_end_us! int64 | us | | end of the observation of this device
  period_us int64 | us | 1 to 4.5e15 | wrap period of this device from window_start_us on; null: that of its window
  valid! bool | | | false: this device has no usable trace according to the source
availability: order device_id start_us end_us
  device_id! id | | in devices | device; an id of the devices table
  start_us! int64 | us | | first instant of the interval
  end_us! int64 | us | | first instant after the interval
  state. int8 | | 0 to 1 | 1 available, 0 unavailable; absent: all 1
  end_reason id | | | why the interval ended, in the source's words
  censored. int8 | | 0 to 3 | bit 0: began before the window; bit 1: ended after it
device_events: order device_id time_us
  device_id! id | | in devices | device; an id of the devices table
  time_us! int64 | us | | instant of the change
  key! id | | charging, network, screen, lock, battery_pct, idle | charging, network, screen, lock, battery_pct or idle
  value! id | | | state from this instant on, in the source's words
compute: unique device_id task phase batch_size
  device_id! id | | in devices | device; an id of the devices table
  task! id | | | workload that was measured; '*' is any
  phase! id | | inference, training | inference or training
  batch_size int32 | samples | > 0 | batch size of the measurement
  step_fixed_s float64 | s | >= 0 | part of a step that does not depend on the batch
  step_fixed_error float64 | | >= 0 | relative standard error of step_fixed_s
  sample_s float64 | s | >= 0 | time per sample: a step takes step_fixed_s + sample_s x batch
  sample_s_std float64 | s | >= 0 | standard deviation of sample_s
  relative_speed float64 | | > 0 | speed relative to the reference device; 2 is twice as fast
  score float64 | | > 0 | benchmark score; higher is faster
  ram_bytes int64 | bytes | > 0 | memory of the device
compute_series: order device_id start_us dur_us
  device_id! id | | in devices | device; an id of the devices table
  start_us! int64 | us | | first instant of the piece
  dur_us! int64 | us | | length of the piece
  multiplier! float32 | | > 0 | factor on the time of a step; 2 is half as fast
network: unique device_id direction
  device_id! id | | in devices | device; an id of the devices table
  direction! id | | down, up, both | down (server to device), up, or both
  bandwidth_bps? float64 | bit/s | > 0 | mean rate
  bandwidth_error float64 | | >= 0 | relative standard error of bandwidth_bps
  bandwidth_cv float32 | | >= 0 | standard deviation of the rate over its mean
  rtt_s float64 | s | >= 0 | round-trip time to the server
  rtt_error_s float64 | s | >= 0 | standard error of rtt_s
  loss float32 | | 0 to 1 | share of packets lost
  radio id | | | wifi, 3g, lte, 5g, ...
network_series: order series_id direction start_us dur_us
  series_id! id | | | name of the series
  direction! id | | down, up, both | down (server to device), up, or both
  start_us! int64 | us | | first instant of the piece
  dur_us! int64 | us | | length of the piece
  rate_bps? float64 | bit/s | >= 0 | rate during the piece
  rtt_s float32 | s | >= 0 | round-trip time during the piece
  loss float32 | | 0 to 1 | share of packets lost during the piece
  radio id | | | wifi, 3g, lte, 5g, ...
network_assign: unique device_id series_id
  device_id! id | | in devices | device; an id of the devices table
  series_id! id | | in network_series | series that the device follows; a series_id of network_series
  offset_us! int64 | us | | position in the series at the bundle's epoch
  scale! float32 | | > 0 | factor on the rates of the series
rtt_matrix: unique src dst
  src! id | | | node
  dst! id | | | node
  rtt_s? float32 | s | >= 0 | round-trip time
grid: order region unit start_us dur_us
  region! id | | | region of the grid
  unit! id | | | g/kWh for carbon intensity; for prices a currency, such as EUR/kWh
  start_us! int64 | us | | first instant of the piece
  dur_us! int64 | us | | length of the piece
  value? float64 | unit | finite | during the piece
"""
"""The tables: after the name, the columns that identify a row, or those of its group and of its instant or interval.

A column has a name, a type, a unit, the valid values, and a description. After the name, ``!`` means that it must be
present and known, ``?`` that it must be present, and ``.`` that it must be known if it is present.
"""


class Column(NamedTuple):
    """One column of a table, as a line of :data:`DECLARED` declares it."""

    name: str
    type: Any
    unit: str
    description: str
    required: bool
    nullable: bool
    bounds: Bounds | None = None
    words: tuple[str, ...] = ()
    refers: str | None = None
    """Table whose column of the same name lists the valid values."""

    @classmethod
    def parse(cls, line: str) -> Column:
        """The column of a line."""
        named, unit, rule, description = (cell.strip() for cell in line.split("|"))
        name, type_ = named.split()
        rules: dict[str, Any] = {}
        if rule in _LIMITS:
            rules["bounds"] = replace(_LIMITS[rule], high=_MOST.get(unit, np.inf))
        elif " to " in rule:
            low, high = map(float, rule.split(" to "))
            rules["bounds"] = Bounds(low, high)
        elif rule.startswith("in "):
            rules["refers"] = rule.removeprefix("in ")
        elif unit == "us":
            rules["bounds"] = Bounds(-MOST_US, MOST_US, words="within 142 years of time 0")
        elif rule:
            rules["words"] = tuple(rule.split(", "))
        required, nullable = name[-1] in "!?", name[-1] not in "!."
        name = name.rstrip("!?.")
        return cls(name, _TYPES[type_], unit, description, required, nullable, **rules)

    @property
    def field(self) -> Any:
        """The Arrow field, with unit and description as metadata."""
        metadata = {"description": self.description} | ({"unit": self.unit} if self.unit else {})
        return pa.field(self.name, self.type, nullable=True, metadata=metadata)


class Schema(NamedTuple):
    """One table: its columns in their order on disk, and those that identify a row or give the order of the rows."""

    columns: Mapping[str, Column]
    unique: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


TABLES: Mapping[str, Schema] = {
    name: Schema(
        {column.name: column for column in map(Column.parse, lines.splitlines())},
        **{kind: tuple(keys.split())},
    )
    for name, kind, keys, lines in re.findall(
        r"^(\w+): (\w+) (.*)\n((?:  .*\n)+)", DECLARED, re.MULTILINE
    )
}
DIRECTIONS = ("down", "up", "both")


def make_table(name: str, values: Mapping[str, Any]) -> Any:
    """A table of the bundle from columns (lists, numpy or Arrow arrays), cast to its schema.

    Args:
        name: one of :data:`TABLES`.
        values: columns by name; those that are not required may be left out. ``None``, and NaN in an array, become
            null. A single text or number fills its column.
    """
    known = TABLES[name].columns
    unknown = [key for key in values if key not in known]
    missing = [key for key, column in known.items() if column.required and key not in values]
    if unknown or missing:
        message = f"table {name}: missing columns {missing}, unknown columns {unknown}"
        raise UserError(message, hint=f"its columns are: {', '.join(known)}")
    fields, arrays = [], []
    rows = next((len(column) for column in values.values() if not np.isscalar(column)), 1)
    for key, column in known.items():
        if key not in values:
            continue
        given = values[key]
        what = f"column {key} of table {name} cannot be read as {column.type}"
        with refused(what, kinds=pa.ArrowException):
            if isinstance(given, str):
                given = id_column(np.zeros(rows, np.int32), [given])
            arrays.append(_cast(np.full(rows, given) if np.isscalar(given) else given, column.type))
        fields.append(column.field)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _cast(values: Any, type_: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        values = single_chunk(values)
    if not isinstance(values, pa.Array):
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        is_array = isinstance(values, np.ndarray)
        values = pa.array(values if is_array else list(values), type=plain, from_pandas=is_array)
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
        dictionary = column.chunk(0).dictionary
        if all(chunk.dictionary.equals(dictionary) for chunk in column.chunks[1:]):
            indices = pa.chunked_array([chunk.indices for chunk in column.chunks]).combine_chunks()
            return pa.DictionaryArray.from_arrays(indices, dictionary)
        column = column.unify_dictionaries()
    return column.combine_chunks()


def id_column(rows: npt.NDArray[np.integer[Any]], ids: Any) -> Any:
    """An id column from indices into ``ids`` (an Arrow array or another sequence of strings), without copying text.

    An index of -1 is null.
    """
    dictionary = single_chunk(ids) if isinstance(ids, pa.ChunkedArray) else ids
    if not isinstance(dictionary, pa.Array):
        dictionary = pa.array(list(dictionary), type=STRING)
    unknown = rows < 0 if rows.min(initial=0) < 0 else None
    return pa.DictionaryArray.from_arrays(pa.array(rows, pa.int32(), mask=unknown), dictionary)


def run_starts(*columns: Array) -> Bools:
    """Whether each row begins a run of rows that are equal in all ``columns``, shape (rows,)."""
    starts = np.ones(len(columns[0]), np.bool_)
    np.not_equal(columns[0][1:], columns[0][:-1], out=starts[1:])
    for column in columns[1:]:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def order_of(device: Ints, *times: Ints) -> Ints:
    """The rows sorted by device and then by the times; rows that are equal keep their order."""
    first, top = times[0], int(device.max(initial=0))
    span = int(first.max(initial=0)) - int(first.min(initial=0)) + 1
    if (first[1:] >= first[:-1]).all() or (top + 1) * span >= 1 << 62:
        # Sorting small numbers takes one pass.
        order = np.lexsort((first, device.astype(np.uint16) if top < 1 << 16 else device))
    else:
        order = np.argsort(device.astype(np.int64) * span + (first - first.min()), kind="stable")
    if len(times) > 1:
        repeats = ~run_starts(device[order], first[order])
        tied = np.flatnonzero(repeats | np.append(repeats[1:], False))
        rows = order[tied]
        order[tied] = rows[np.lexsort([column[rows] for column in (*times[::-1], device)])]
    return order


def to_numpy(values: Any) -> Array:
    """An Arrow array as a NumPy array; nulls become NaN in numbers, which become float64, and false in Booleans.

    Numbers without nulls are not copied. Arrow's conversion and every function with a scalar would import pandas,
    which takes as long as the rest of a small command; they are used only for text.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return filled(values.cast(pa.int8()), 0).view(np.bool_)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        array: Array = values.to_numpy(zero_copy_only=False)
        return array
    if values.null_count and pa.types.is_integer(kind):
        values = values.cast(pa.float64(), safe=False)
    return filled(values, np.nan)


def filled(values: Any, fill: float) -> Array:
    """An Arrow array of numbers as a NumPy array, with ``fill`` in place of nulls."""
    if not values.null_count:
        return np.from_dlpack(values)
    data = pa.Array.from_buffers(
        values.type, len(values), [None, values.buffers()[1]], offset=values.offset
    )
    return np.where(to_numpy(pc.is_null(values)), fill, np.from_dlpack(data))
