"""Writes the tables of a run while it is in progress, so that a killed run leaves its rows on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from fedsim.errors import refused
from fedsim.files.durable import in_room
from fedsim.runs.clients import absences
from fedsim.runs.folder import RunFolder
from fedsim.runs.schema import (
    AGGREGATIONS,
    DISPATCHES,
    EDGE_AGGREGATIONS,
    EDGE_DISPATCHES,
    LABELS,
    METRICS,
    STREAMED,
    STREAMED_OF_EDGES,
    TABLES,
    Table,
    with_columns,
)
from fedsim.runs.tables import null_if_negative, spread_metrics, write_parquet
from fedsim.vocabulary.arrays import Array
from fedsim.vocabulary.timeline import Aggregate, Contribution

BUFFER_ROWS = 65_536
FLUSH_INTERVAL_S = 2.0
# Dispatches are few enough to stay in the processor's cache until they are made into columns.
_ROWS_AT_ONCE = 1024

_TYPES = {pa.int64(): np.int64, pa.int32(): np.int32, pa.float64(): np.float64}
_NULLABLE = ("staleness", "aggregated_version")

Columns = Mapping[str, Array]


class _Stream:
    """A table on its way to a file; ``columns`` makes the columns of dispatches that have ``ended``."""

    def __init__(
        self, path: Path, table: Table, columns: Callable[[list[Any]], Columns] | None = None
    ) -> None:
        self.table = table
        self.batches: list[pa.RecordBatch] = []
        self.ended: list[Any] = []
        self._columns = columns
        self._parts: list[Columns] = []
        # Exclusive, so that a link that appears under this name is not followed.
        self._file = open(path, "xb")  # noqa: SIM115 - closed by close()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_stream(self._file, table.schema, options=options)
        self._file.flush()

    def write(self, columns: list[Any]) -> None:
        batch = pa.RecordBatch.from_arrays(columns, schema=self.table.schema)
        self.batches.append(batch)
        self._writer.write_batch(batch)
        self._file.flush()

    def convert(self) -> None:
        if self.ended and self._columns is not None:
            self._parts.append(self._columns(self.ended))
            self.ended.clear()
            if sum(len(part["dispatch_id"]) for part in self._parts) >= BUFFER_ROWS:
                self.flush()

    def flush(self) -> None:
        self.convert()
        if not self._parts:
            return
        columns: list[Any] = []
        for field in self.table.schema:
            # Codes of labels are bytes.
            name, dtype = field.name, _TYPES.get(field.type, np.int8)
            values = np.concatenate([part[name].astype(dtype, copy=False) for part in self._parts])
            # Arrow's memory returns to the system when the run ends; NumPy's would stay with the process.
            column = np.frombuffer(pa.allocate_buffer(values.nbytes), dtype)
            column[:] = values
            if name in LABELS:
                codes = null_if_negative(column)
                columns.append(pa.DictionaryArray.from_arrays(codes, pa.array(LABELS[name])))
            else:
                columns.append((null_if_negative if name in _NULLABLE else pa.array)(column))
        self.write(columns)
        self._parts = []

    def close(self) -> None:
        self._writer.close()
        self._file.close()


class RunWriter:
    """Collects rows, writes them to Arrow streams as they arrive, and to Parquet files at the end, from memory.

    Rows reach the disk every 65,536 dispatches, and with the first aggregation, evaluation or 1,024th
    dispatch after two seconds of wall time; :meth:`flush` forces it. Existing tables are replaced.

    Args:
        folder: the run folder, whose lock the caller holds.
        clients: number of clients in the population, for ``delay_max``.
        columns: makes the columns of ``DISPATCHES``, (n,) each, of dispatches given to :meth:`append_dispatch`.
        spent: the optional columns among these, of :data:`~fedsim.runs.schema.SPENT`.
        edge_columns: the same for :meth:`append_edge_dispatch`; None without edge servers. With them, ``clients`` is
            their number.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        clients: int,
        columns: Callable[[list[Any]], Columns],
        spent: Sequence[str] = (),
        edge_columns: Callable[[list[Any]], Columns] | None = None,
    ) -> None:
        self.folder = folder
        for table in TABLES:
            folder.parquet(table.name).unlink(missing_ok=True)
            folder.stream(table.name).unlink(missing_ok=True)
        self._aggregates: list[Aggregate] = []
        self._metrics: list[tuple[float, int, int, list[tuple[str, float]]]] = []
        self._last_version = np.zeros(clients, np.int64)
        with refused("cannot write to the run folder", folder.path), in_room(folder.path):
            of_edges = ("edge",) if edge_columns is not None else ()
            tables: dict[Table, Any] = {with_columns(DISPATCHES, (*of_edges, *spent)): columns}
            tables |= dict.fromkeys(STREAMED[1:])
            tables |= zip(STREAMED_OF_EDGES, (edge_columns, None), strict=True) if of_edges else ()
            self._streams = {
                table.name: _Stream(folder.stream(table.name), table, makes)
                for table, makes in tables.items()
            }
        self._dispatches = self._streams[DISPATCHES.name]
        self._closed = False
        self._flushed_at = time.monotonic()

    def append_dispatch(self, ended: Any) -> None:
        """Add one dispatch that has ended, in any order."""
        ended_so_far = self._dispatches.ended
        ended_so_far.append(ended)
        if len(ended_so_far) == _ROWS_AT_ONCE:
            self._dispatches.convert()
            self._flush_if_due()

    def append_edge_dispatch(self, ended: Any) -> None:
        """Add one dispatch to an edge server that has ended."""
        self._streams[EDGE_DISPATCHES.name].ended.append(ended)

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Add one server update; staleness and delay follow from its contributions."""
        self._aggregates.append(aggregate)
        self._flush_if_due()

    def append_metrics(
        self, time_s: float, version: int, round: int, values: Mapping[str, float]
    ) -> None:
        """Add one evaluation; the metrics may differ from row to row."""
        measured = [(name, float(value)) for name, value in values.items()]
        self._metrics.append((time_s, version, round, measured))
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        if time.monotonic() - self._flushed_at >= FLUSH_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Pass everything collected to the operating system, so that it survives the end of this process."""
        for stream in self._streams.values():
            stream.flush()
        aggregates, self._aggregates = self._aggregates, []
        for table, rows in (
            (AGGREGATIONS, [one for one in aggregates if one.edge < 0]),
            (EDGE_AGGREGATIONS, [one for one in aggregates if one.edge >= 0]),
        ):
            if rows:
                self._write_aggregations(table, rows)
        evaluations, self._metrics = self._metrics, []
        if evaluations:
            columns = zip(*evaluations, strict=True)
            self._write(METRICS, dict(zip(METRICS.schema.names, columns, strict=True)))
        self._flushed_at = time.monotonic()

    def _write_aggregations(self, table: Table, aggregates: list[Aggregate]) -> None:
        listed = [aggregate.contributions for aggregate in aggregates]
        numbers = np.fromiter(chain.from_iterable(chain.from_iterable(listed)), np.int64)
        ids, clients, staleness, _, drawn = numbers.reshape(-1, len(Contribution._fields)).T
        sizes = np.fromiter(map(len, listed), np.int64)
        starts = np.cumsum(sizes) - sizes
        versions = np.array([aggregate.version for aggregate in aggregates])
        mean, largest, most_drawn = np.full(len(sizes), np.nan), -np.ones_like(sizes), sizes * 0
        filled = np.flatnonzero(sizes)
        if len(filled):
            at = starts[filled]
            mean[filled] = np.add.reduceat(staleness, at) / sizes[filled]
            largest[filled] = np.maximum.reduceat(staleness, at)
            most_drawn[filled] = np.maximum.reduceat(drawn, at)
        columns: dict[str, Any] = {
            "version": versions,
            "time_s": [aggregate.time_s for aggregate in aggregates],
            "round": [aggregate.round for aggregate in aggregates],
            "contributors": sizes,
            "staleness_mean": mean,
            "staleness_max": null_if_negative(largest),
            "edge": [aggregate.edge for aggregate in aggregates],
            "contributor_ids": pa.ListArray.from_arrays(
                pa.array(np.append(starts, len(ids)), pa.int32()), pa.array(ids)
            ),
            "multiplicities": [
                drawn[start : start + size].tolist() if most > 1 else None
                for start, size, most in zip(starts, sizes, most_drawn, strict=True)
            ],
            "attributes": [
                [(name, float(value)) for name, value in aggregate.attributes.items()]
                for aggregate in aggregates
            ],
        }
        if table is AGGREGATIONS:
            columns["delay_max"] = absences(self._last_version, versions, sizes, clients)
        self._write(table, columns)

    def _write(self, table: Table, columns: Mapping[str, Any]) -> None:
        self._streams[table.name].write(
            [pa.array(columns[field.name], field.type) for field in table.schema]
        )

    def finish(self) -> dict[str, pa.Table]:
        """Write the Parquet files in place of the streams; returns these tables by name."""
        self.close()
        tables = {}
        for name, stream in self._streams.items():
            rows = pa.Table.from_batches(stream.batches, schema=stream.table.schema)
            stream.batches = []
            if stream.table is METRICS:
                rows = spread_metrics(rows)
            tables[name] = write_parquet(self.folder.parquet(name), stream.table, rows)
            del rows
            self.folder.stream(name).unlink()
        # Sorting leaves the pool with twice the memory of the largest table.
        pa.default_memory_pool().release_unused()
        return tables

    def close(self) -> None:
        """Flush and close the streams, which stay readable; nothing can be appended after that."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            for stream in self._streams.values():
                stream.close()
