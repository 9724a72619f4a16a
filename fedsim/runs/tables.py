"""Reading and writing the tables of a run folder as Arrow streams and Parquet files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from fedsim.errors import printable, reason
from fedsim.files.durable import replacing
from fedsim.files.locks import is_owned
from fedsim.files.records import Record
from fedsim.files.room import open_parquet, require_arrow_room
from fedsim.runs.records import RUN, SWEEP
from fedsim.runs.schema import METRICS, METRICS_FIXED, Table

INDEX = "index"
ROW_GROUP = 65_536
_FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that spreadsheets interpret as formulas (OWASP, "CSV injection")."""


def read_stream(path: Path, table: Table) -> pa.Table:
    """The rows of an Arrow stream up to the last whole batch.

    A stream that was cut off, by a crash or because it is still being written, yields the rows before the cut.
    """
    batches: list[pa.RecordBatch] = []
    schema = table.schema
    with RUN.reading(path), pa.OSFile(os.fsencode(path)) as source:
        size = path.stat().st_size
        require_arrow_room(source, size, path)
    with pa.OSFile(os.fsencode(path)) as source:
        try:
            with pa.ipc.open_stream(source) as reader:
                schema = reader.schema
                while True:
                    batches.append(reader.read_next_batch())
        except (StopIteration, pa.ArrowInvalid, OSError) as error:
            # StopIteration is the regular end; a cut-off tail raises the others.
            if source.tell() < size and not isinstance(error, StopIteration):
                raise RUN.damaged(path, f"cannot be read: {reason(error)}") from error
    return pa.Table.from_batches(batches, schema=schema)


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, record: Record = RUN
) -> pa.Table:
    """A finished table that a ``record`` lists, or some of its columns."""
    with record.reading(path), open_parquet(path, path) as file:
        table = file.read(columns=columns)
        table.validate(full=True)
        return table


def read_index(folder: Path, record: Mapping[str, Any]) -> pd.DataFrame:
    """The index of a sweep with this record, whose runs, statuses and errors are text."""
    path = folder / f"{INDEX}.parquet"
    if not is_owned(folder):  # The checksum of a sweep in progress may follow later.
        SWEEP.require_intact(folder, record, path.name)
    frame: pd.DataFrame = read_parquet(path, record=SWEEP).to_pandas(ignore_metadata=True)
    for name in ("run", "status", "error"):
        if name not in frame or not all(isinstance(text, str) for text in frame[name]):
            raise SWEEP.damaged(path, f"the column {name} is missing, or is not text")
    return frame


def write_parquet(path: Path, table: Table, data: pa.Table) -> pa.Table:
    """Write a finished table, sorted; the file appears whole or not at all. Returns the sorted rows.

    The same rows give the same bytes, so that files of two runs can be compared by hash.
    """
    if table.sort_by:
        if (np.diff(data.column(table.sort_by[0]).to_numpy()) > 0).all():
            data = (
                data.combine_chunks()
            )  # As sorting would, but without a copy if there is one chunk.
        else:
            data = data.sort_by([(name, "ascending") for name in table.sort_by])
    dictionaries = [f.name for f in data.schema if pa.types.is_dictionary(f.type)]
    encodings = {f.name: "DELTA_BINARY_PACKED" for f in data.schema if pa.types.is_integer(f.type)}
    for name in ("contributor_ids", "multiplicities"):
        if name in data.schema.names:
            encodings[f"{name}.list.element"] = "DELTA_BINARY_PACKED"
    with replacing(path) as temporary:
        pq.write_table(
            data,
            temporary,
            compression="zstd",
            row_group_size=ROW_GROUP,
            use_dictionary=dictionaries,
            column_encoding=encodings,
        )
    return data


def from_columns(table: Table, columns: Mapping[str, Any]) -> pa.Table:
    """A table from one array per column, in the types of its schema."""
    arrays = [
        pa.array(columns[field.name], field.type, from_pandas=False) for field in table.schema
    ]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def spread_metrics(data: pa.Table) -> pa.Table:
    """One float64 column per metric in place of the streamed ``values``; NaN if a row lacks it.

    Columns are in the order in which the metrics first appeared.
    """
    rows = (dict(each or ()) for each in data.column("values").to_pylist())
    frame = pd.DataFrame(rows, dtype=np.float64)
    names = list(frame)
    # A damaged stream may lack some.
    present = [field for field in METRICS_FIXED if field.name in data.column_names]
    fixed = [data.column(field.name) for field in present]
    measured = [pa.array(frame[name].to_numpy(), from_pandas=False) for name in names]
    fields = present + [
        pa.field(name, pa.float64(), metadata={"unit": "", "description": f"measured {name}"})
        for name in names
    ]
    return pa.Table.from_arrays(fixed + measured, schema=pa.schema(fields, METRICS.schema.metadata))


def null_if_negative(values: Any) -> pa.Array:
    """Whole numbers with null in place of negative ones, which stand for "none" while rows are collected."""
    array = pa.array(values)
    return pc.if_else(pc.less(array, 0), pa.scalar(None, array.type), array)


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV that spreadsheets and terminals show unchanged.

    Text that they would run as a formula begins with a quote, and characters that do not show are escaped.
    """
    frame = table.rename(columns=_harmless)
    for name in frame.select_dtypes(["object", "category", "string"]):
        frame[name] = frame[name].astype(object).map(_harmless)
    return str(frame.to_csv(index=False))


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return printable(f"'{value}" if value.startswith(_FORMULA_MARKS) else value)
