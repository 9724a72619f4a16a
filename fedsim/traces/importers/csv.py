"""Plain CSV: a row an interval, or a row a device, with units declared in the options."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import Eligibility, OnEnd, TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    STATIC_HORIZON_US,
    availability_table,
    bundle,
    devices_table,
    nullable,
)
from fedsim.traces.importers._files import SourceFile, source_files
from fedsim.traces.ordering import normalise, polling_interval
from fedsim.traces.tables import constant_column, id_column, make_table
from fedsim.units import DURATION_UNITS, Duration

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RATES: Mapping[str, float] = {
    "bps": 1.0,
    "kbps": 1e3,
    "Mbps": 1e6,
    "Gbps": 1e9,
    "B/s": 8.0,
    "kB/s": 8e3,
    "MB/s": 8e6,
    "KiB/s": 8.0 * 2**10,
    "MiB/s": 8.0 * 2**20,
}
TEXTS = ("model", "kind", "group", "radio")
# Columns of numbers, and the option that says their unit.
NUMBERS: Mapping[str, str | None] = {
    "sample_time": "compute_unit",
    "step_time": "compute_unit",
    "relative_speed": None,
    "score": None,
    "ram_bytes": None,
    "down": "rate_unit",
    "up": "rate_unit",
    "bandwidth": "rate_unit",
    "rtt": "latency_unit",
    "loss": None,
}
COMPUTE = ("sample_time", "step_time", "relative_speed", "score", "ram_bytes")
NETWORK = ("down", "up", "bandwidth", "rtt", "loss", "radio")
COLUMNS = ("device", "start", "end", *NUMBERS, *TEXTS)
_LONGEST_US = 2.0**62


class CsvParams(ImporterParams):
    """Options of the CSV importer. A unit must be given where a column needs it; none is assumed."""

    time_unit: Literal["us", "ms", "s", "min", "h", "d"] | None = None
    """Unit of ``start`` and ``end``."""
    compute_unit: Literal["us", "ms", "s"] | None = None
    """Unit of ``sample_time`` and ``step_time``."""
    rate_unit: (
        Literal["bps", "kbps", "Mbps", "Gbps", "B/s", "kB/s", "MB/s", "KiB/s", "MiB/s"] | None
    ) = None
    """Unit of ``down``, ``up`` and ``bandwidth``: b is a bit, B is a byte."""
    latency_unit: Literal["us", "ms", "s"] | None = None
    """Unit of ``rtt``."""
    phase: Literal["inference", "training"] = "training"
    """What was timed."""
    window: Duration | None = None
    """Length of the observation from time 0; by default up to the last end in the files."""
    on_end: OnEnd = "wrap"
    """What a device does after the window."""
    epoch: str | None = None
    """ISO 8601 instant of time 0."""
    clock: Literal["local", "utc", "device-relative"] = "device-relative"
    """What time 0 means."""


class Csv(Importer):
    """Comma-separated files with a header; several files are joined by ``device``.

    Columns: ``device``; ``start``, ``end`` (available in ``[start, end)``); ``sample_time``, ``step_time`` (a step
    takes step_time + sample_time x batch), ``relative_speed``, ``score``, ``ram_bytes``; ``down`` and ``up`` or
    ``bandwidth`` (both ways), ``rtt``, ``loss``, ``radio``; ``model``, ``kind``, ``group``. An empty cell is unknown.
    What is said of a device in several rows must agree.
    """

    name: ClassVar[str] = "csv"
    description: ClassVar[str] = "plain CSV: device,start,end and/or compute and network columns"
    Params: ClassVar[type[Parameters]] = CsvParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: CsvParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        table = _Table(paths, params)
        counts: dict[str, int] = {}
        caveats: list[str] = []
        tables: dict[str, Any] = {}
        horizon_us = round(params.window * 1e6) if params.window else STATIC_HORIZON_US
        texts: dict[str, Any] = {
            name: table.text(name) for name in ("model", "kind", "group") if name in table
        }
        if "start" in table:
            horizon_us, tables["availability"] = _availability(table, params, counts, caveats)
        tables["devices"] = devices_table(table.ids, window_end_us=horizon_us, **texts)
        for name, columns, make in (
            ("compute", COMPUTE, _compute),
            ("network", NETWORK, _network),
        ):
            if any(column in table for column in columns):
                tables[name] = make(table, params)
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=horizon_us,
            on_end=params.on_end,
            epoch=params.epoch,
            clock=params.clock,
            eligibility=Eligibility(words="available") if "availability" in tables else None,
            caveats=caveats,
        )


class _Table:
    """The rows of all files, as text, with their places."""

    def __init__(self, paths: Sequence[Path], params: CsvParams) -> None:
        frames: list[Any] = []
        places: list[tuple[SourceFile, int]] = []
        for source in source_files(paths):
            frame = _frame(source)
            frames.append(frame)
            places.extend((source, int(line)) for line in frame.index)
        data = pd.concat(frames, ignore_index=True).fillna("")
        self.params = params
        self.places = places
        self.data = data
        self.where = ", ".join(map(str, paths))
        empty = np.flatnonzero((data["device"] == "").to_numpy())
        if len(empty):
            raise UserError("has no device", where=self.place(int(empty[0])))
        codes, ids = pd.factorize(data["device"])
        self.device: Ints = codes.astype(np.int64)
        self.ids: list[str] = [str(name) for name in ids]
        for name, option in NUMBERS.items():
            if name in data:
                self._need(name, option)
        if "start" in data:
            self._need("start", "time_unit")

    def __contains__(self, name: str) -> bool:
        return name in self.data

    def _need(self, column: str, option: str | None) -> None:
        if option is not None and getattr(self.params, option) is None:
            raise UserError(
                f"the unit of the column {column} is not declared",
                where=self.where,
                hint=f"give it with -s {option}=..., one of {', '.join(_units(option))}",
            )

    def place(self, row: int) -> str:
        """File and line of a row."""
        source, line = self.places[row]
        return source.line(line)

    def require_one_of(self, *names: str) -> None:
        """Refuse a table without any of the columns that the others are about."""
        if not any(name in self for name in names):
            raise UserError(
                f"has none of the columns {', '.join(names)}",
                where=self.where,
                hint="the memory belongs to a compute speed; latency, loss and radio to a rate",
            )

    def numbers(self, name: str) -> Floats:
        """A column as numbers, NaN where empty. Shape (rows,)."""
        text = self.data[name]
        values: Floats = pd.to_numeric(text, errors="coerce").to_numpy(np.float64)
        bad = np.flatnonzero((text != "").to_numpy() & ~np.isfinite(values))
        if len(bad):
            raise UserError(
                f"{name} is '{text.iloc[bad[0]]}'",
                where=self.place(int(bad[0])),
                hint="it must be a number, or empty where it is unknown",
            )
        return values

    def number(self, name: str, *, positive: bool = True, most: float = np.inf) -> Floats:
        """One number a device, NaN where unknown. Shape (devices,)."""
        values = self.numbers(name)
        bad = np.flatnonzero((values <= 0 if positive else values < 0) | (values > most))
        if len(bad):
            bound = "more than 0" if positive else "0 or more"
            raise UserError(
                f"{name} is {values[bad[0]]:g}",
                where=self.place(int(bad[0])),
                hint=f"it must be {bound}" + (f" and at most {most:g}" if most < np.inf else ""),
            )
        told = np.flatnonzero(~np.isnan(values))
        result = np.full(len(self.ids), np.nan)
        result[self.device[told[::-1]]] = values[told[::-1]]
        self._agree(name, told, values[told] != result[self.device[told]])
        return result

    def text(self, name: str) -> list[str | None]:
        """One text a device, None where unknown."""
        values = self.data[name].to_numpy(object)
        told = np.flatnonzero(values != "")
        result = np.full(len(self.ids), None, object)
        result[self.device[told[::-1]]] = values[told[::-1]]
        self._agree(name, told, values[told] != result[self.device[told]])
        return list(result)

    def _agree(self, name: str, rows: Any, differs: Any) -> None:
        bad = rows[np.flatnonzero(differs)]
        if len(bad):
            device = self.ids[int(self.device[bad[0]])]
            raise UserError(
                f"says another {name} of the device '{device}' than a row before",
                where=self.place(int(bad[0])),
                hint="a device has one value; leave the others empty",
            )


def _units(option: str) -> tuple[str, ...]:
    """What an option of a unit allows."""
    words, _ = get_args(CsvParams.model_fields[option].annotation)
    return get_args(words)


def _frame(source: SourceFile) -> Any:
    """Cells as text; the index is the line in the file."""
    reader = csv.reader(io.StringIO(source.text()), skipinitialspace=True)
    rows, lines = [], []
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise UserError(
                    f"has {len(row)} cells, the header {len(header)}",
                    where=source.line(reader.line_num),
                    hint="every row needs as many cells as the header",
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UserError(f"is not CSV: {error}", where=source.line(reader.line_num)) from error
    if not header:
        raise UserError("is empty", where=source.where)
    frame = pd.DataFrame(rows, columns=pd.Index(header), index=pd.Index(lines), dtype=str)
    for column in frame.columns:
        if column not in COLUMNS:
            near = difflib.get_close_matches(column, COLUMNS, 1)
            raise UserError(
                f"has the unknown column '{column}'" + (f"; {near[0]} is known" if near else ""),
                where=source.line(1),
                hint=f"known columns: {', '.join(COLUMNS)}",
            )
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise UserError(f"has the column '{repeated[0]}' twice", where=source.line(1))
    if "device" not in frame or len(frame.columns) < 2 or ("start" in frame) != ("end" in frame):
        raise UserError(
            f"has the columns {', '.join(frame.columns)}",
            where=source.line(1),
            hint="it needs device, and start with end, or compute or network columns",
        )
    if not rows:
        raise UserError("has no rows", where=source.where)
    return frame.apply(lambda cells: cells.str.strip())


def _availability(
    table: _Table, params: CsvParams, counts: dict[str, int], caveats: list[str]
) -> tuple[int, Any]:
    assert params.time_unit is not None
    factor = DURATION_UNITS[params.time_unit] * 1e6
    start, end = table.numbers("start") * factor, table.numbers("end") * factor
    half = np.flatnonzero(np.isnan(start) != np.isnan(end))
    far = np.flatnonzero(~(np.abs(np.nan_to_num(np.maximum(abs(start), abs(end)))) < _LONGEST_US))
    if len(half) or len(far):
        row = int(min([*half[:1], *far[:1]]))
        raise UserError(
            "has a start without an end, or an end without a start"
            if len(half) and half[0] == row
            else "has a time beyond 146,000 years",
            where=table.place(row),
        )
    rows = np.flatnonzero(~np.isnan(start))
    device = table.device[rows]
    start_us, end_us = (np.rint(t[rows]).astype(np.int64) for t in (start, end))
    if params.window is not None:
        horizon_us = round(params.window * 1e6)
    else:
        horizon_us = int(end_us.max(initial=0))
        caveats.append(
            "the window was not told (option window): it is taken to end with the last interval"
        )
    if horizon_us <= 0:
        raise UserError(
            "has no interval after time 0 and no window",
            where=table.where,
            hint="give the length of the observation with -s window=..., such as 7d",
        )
    low = np.zeros(len(table.ids), np.int64)
    high = np.full(len(table.ids), horizon_us)
    intervals = normalise(device, start_us, end_us, window_start=low, window_end=high)
    counts |= intervals.counts
    seen = np.zeros(len(table.ids), bool)
    seen[intervals.device] = True
    counts["never_available"] = int(np.count_nonzero(~seen))
    polled_us = polling_interval(intervals.end - intervals.start)
    if polled_us is not None:
        counts["polling_interval_s"] = round(polled_us / 1e6)
        caveats.append(
            f"lengths cluster at multiples of {polled_us / 1e6:.0f} s: the source was polled and shorter changes"
            " are unseen"
        )
    return horizon_us, availability_table(
        intervals, table.ids, window_start_us=low, window_end_us=high
    )


def _compute(table: _Table, params: CsvParams) -> Any:
    table.require_one_of("sample_time", "step_time", "relative_speed", "score")
    values: dict[str, Any] = {}
    known = np.zeros(len(table.ids), bool)
    unit = DURATION_UNITS[params.compute_unit or "s"]
    for column, target, factor, positive in (
        ("sample_time", "sample_s", unit, False),
        ("step_time", "step_fixed_s", unit, False),
        ("relative_speed", "relative_speed", 1.0, True),
        ("score", "score", 1.0, True),
    ):
        if column in table:
            values[target] = table.number(column, positive=positive) * factor
            known |= ~np.isnan(values[target])
    if "ram_bytes" in table:
        values["ram_bytes"] = np.rint(table.number("ram_bytes"))
    rows = np.flatnonzero(known)
    # A step without a fixed part has none; one without a part a sample likewise.
    for name, other in (("step_fixed_s", "sample_s"), ("sample_s", "step_fixed_s")):
        if other in values:
            told = values.setdefault(name, np.full(len(table.ids), np.nan))
            told[np.isnan(told) & ~np.isnan(values[other])] = 0.0
    return make_table(
        "compute",
        {
            "device_id": id_column(rows, table.ids),
            "task": constant_column("*", len(rows)),
            "phase": constant_column(params.phase, len(rows)),
            **{name: nullable(column[rows]) for name, column in values.items()},
        },
    )


def _network(table: _Table, params: CsvParams) -> Any:
    table.require_one_of("down", "up", "bandwidth")
    if "bandwidth" in table and ("down" in table or "up" in table):
        raise UserError(
            "has bandwidth as well as down or up",
            where=table.where,
            hint="bandwidth holds for both ways; give either that or down and up",
        )
    directions = {"both": "bandwidth", "down": "down", "up": "up"}
    names = [name for name, column in directions.items() if column in table]
    factor = RATES[params.rate_unit or "bps"]
    rates = np.column_stack([table.number(directions[name]) * factor for name in names])
    device, which = np.nonzero(~np.isnan(rates))
    values: dict[str, Any] = {
        "device_id": id_column(device, table.ids),
        "direction": id_column(which, names),
        "bandwidth_bps": rates[device, which],
    }
    if "rtt" in table:
        unit = DURATION_UNITS[params.latency_unit or "s"]
        values["rtt_s"] = nullable((table.number("rtt", positive=False) * unit)[device])
    if "loss" in table:
        values["loss"] = nullable(
            table.number("loss", positive=False, most=1.0)[device].astype(np.float32)
        )
    if "radio" in table:
        radio = pa.array(table.text("radio"), pa.string())
        values["radio"] = radio.take(pa.array(device))
    return make_table("network", values)
