"""Writes the tables of a run while it is in progress, so that a killed run leaves its rows on disk."""

from __future__ import annotations

import struct
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from fedsim.errors import UserError
from fedsim.runs.folder import RunFolder
from fedsim.runs.schema import (
    AGGREGATIONS,
    DISPATCHES,
    METRICS,
    OUTCOME_DICTIONARY,
    STREAMED,
    TABLES,
    Table,
)
from fedsim.runs.tables import null_if_negative, spread_metrics, write_parquet
from fedsim.timeline import Aggregate

BUFFER_ROWS = 65_536
FLUSH_INTERVAL_S = 2.0
_CLOCK_EVERY = 1024

_CODES = {pa.int64(): "q", pa.int32(): "i", pa.float64(): "d"}
_ROW = struct.Struct("=" + "".join(_CODES.get(field.type, "b") for field in DISPATCHES.schema))
_ROW_TYPE = np.dtype(
    [(field.name, "=" + _CODES.get(field.type, "b")) for field in DISPATCHES.schema]
)
_NULLABLE = ("staleness", "aggregated_version")


class _Stream:
    """One table on its way to disk."""

    def __init__(self, path: Path, table: Table) -> None:
        self.table = table
        self._batches: list[pa.RecordBatch] = []
        # Exclusive, so that a link that appears under this name is not followed.
        self._file = open(path, "xb")  # noqa: SIM115 - closed by close()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_stream(self._file, table.schema, options=options)
        self._file.flush()

    def write(self, columns: list[Any]) -> None:
        batch = pa.RecordBatch.from_arrays(columns, schema=self.table.schema)
        self._batches.append(batch)
        self._writer.write_batch(batch)
        self._file.flush()

    def take_rows(self) -> pa.Table:
        """All rows written; they are then forgotten."""
        batches, self._batches = self._batches, []
        rows = pa.Table.from_batches(batches, schema=self.table.schema)
        return spread_metrics(rows) if self.table is METRICS else rows

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

    Raises:
        UserError: the folder cannot be written to.
    """

    def __init__(self, folder: RunFolder, *, clients: int) -> None:
        self.folder = folder
        for table in TABLES:
            folder.parquet(table.name).unlink(missing_ok=True)
            folder.stream(table.name).unlink(missing_ok=True)
        self._buffer = bytearray(_ROW.size * BUFFER_ROWS)
        self._offset = 0
        self._clock_at = _ROW.size * _CLOCK_EVERY
        self._aggregations: list[tuple[Any, ...]] = []
        self._metrics: list[tuple[float, int, int, list[tuple[str, float]]]] = []
        self._last_version = np.zeros(clients, dtype=np.int64).data
        self._unseen = clients
        self._order: OrderedDict[int, int] | None = None
        try:
            self._streams = {
                table.name: _Stream(folder.stream(table.name), table) for table in STREAMED
            }
        except OSError as error:
            raise UserError(
                f"cannot write to the run folder: {error.strerror}", where=str(folder.path)
            ) from error
        self._closed = False
        self._flushed_at = time.monotonic()

    def append_dispatch(self, *values: Any) -> None:
        """Add one dispatch that has ended: the columns of ``DISPATCHES`` in their order.

        ``outcome`` is an :class:`~fedsim.outcomes.Outcome`; ``staleness`` and ``aggregated_version`` are -1
        and times NaN if there is none. Dispatches may come in any order.
        """
        offset = self._offset
        _ROW.pack_into(self._buffer, offset, *values)
        self._offset = offset = offset + _ROW.size
        if offset >= self._clock_at:
            self._clock_at = offset + _ROW.size * _CLOCK_EVERY
            if offset == len(self._buffer):
                self._flush_dispatches()
            else:
                self._flush_if_due()

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Add one server update; staleness and delay follow from its contributions."""
        version = aggregate.version
        columns = (
            zip(*aggregate.contributions, strict=True) if aggregate.contributions else [()] * 5
        )
        ids, clients, staleness, _, multiplicities = columns
        last, order = self._last_version, self._order
        if order is None:
            unseen = self._unseen
            for client in clients:
                if not last[client]:
                    unseen -= 1
                last[client] = version
            self._unseen = unseen
        else:
            for client in clients:
                order[client] = version
                order.move_to_end(client)
        if order is None and not self._unseen:
            # From here on the first client in the order of last contributions is the longest-absent one.
            versions = last.tolist()
            ordered = sorted(range(len(versions)), key=versions.__getitem__)
            self._order = order = OrderedDict((client, versions[client]) for client in ordered)
        oldest = order[next(iter(order))] if order else 0
        self._aggregations.append(
            (
                version,
                aggregate.time_s,
                aggregate.round,
                len(ids),
                sum(staleness) / len(staleness) if staleness else float("nan"),
                max(staleness, default=-1),
                version - oldest,
                ids,
                multiplicities if max(multiplicities, default=1) > 1 else None,
                [(name, float(value)) for name, value in aggregate.attributes.items()],
            )
        )
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
        self._flush_dispatches()
        self._flush_rows(AGGREGATIONS, self._aggregations)
        self._flush_rows(METRICS, self._metrics)
        self._flushed_at = time.monotonic()

    def _flush_dispatches(self) -> None:
        if self._offset:
            rows = np.frombuffer(self._buffer, _ROW_TYPE, self._offset // _ROW.size)
            columns: list[Any] = []
            for field in DISPATCHES.schema:
                # Copied, because Arrow keeps the columns and the buffer is reused.
                column = rows[field.name].copy()
                if field.name == "outcome":
                    columns.append(pa.DictionaryArray.from_arrays(column, OUTCOME_DICTIONARY))
                elif field.name in _NULLABLE:
                    columns.append(null_if_negative(column))
                else:
                    columns.append(pa.array(column))
            self._streams["dispatches"].write(columns)
        self._offset = 0
        self._clock_at = _ROW.size * _CLOCK_EVERY

    def _flush_rows(self, table: Table, rows: list[Any]) -> None:
        if rows:
            columns = [
                pa.array(column, field.type)
                for field, column in zip(table.schema, zip(*rows, strict=True), strict=True)
            ]
            if table is AGGREGATIONS:
                position = table.schema.get_field_index("staleness_max")
                columns[position] = null_if_negative(columns[position])
            self._streams[table.name].write(columns)
            rows.clear()

    def finish(self) -> dict[str, pa.Table]:
        """Write the Parquet files in place of the streams; returns these tables by name."""
        self.close()
        tables = {}
        for name, stream in self._streams.items():
            path = self.folder.parquet(name)
            tables[name] = write_parquet(path, stream.table, stream.take_rows())
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

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
