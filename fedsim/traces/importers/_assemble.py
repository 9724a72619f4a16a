"""The one assembler: tables of a bundle from the columns of an importer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError, cut, raise_all
from fedsim.files.cells import AMOUNT, NOT_NEGATIVE, TIME_S, Bounds
from fedsim.files.frames import Frame, file_names
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer
from fedsim.traces.intervals import Intervals, normalize
from fedsim.traces.tables import DIRECTIONS, id_column, run_starts
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.formatting import format_counted, format_duration, format_names


def microseconds(seconds: Floats) -> Ints:
    """``seconds`` rounded to integer microseconds; they must be finite and within 146,000 years."""
    return np.asarray(np.rint(seconds * 1e6).astype(np.int64))


def require_units(
    frame: Frame, params: Any, columns: Mapping[str, Sequence[str]], examples: Mapping[str, str]
) -> None:
    """Refuse columns, by option, whose units are not declared, all together; ``examples`` are units by option."""
    raise_all(
        frame.error(
            f"the unit of the column{'s' * (len(names) > 1)} {format_names(names)} is not declared",
            f"give it with -s {option}=..., one of {examples[option]}",
        )
        for option, names in columns.items()
        if names and getattr(params, option) is None
    )


# Availability -------------------------------------------------------------------------------------------------------


def observed_tables(
    ids: Sequence[str],
    device: Ints,
    start_us: Ints,
    end_us: Ints,
    window: tuple[Ints | int, Ints | int],
    counts: dict[str, int],
    **columns: Any,
) -> tuple[dict[str, Any], Intervals]:
    """Tables ``devices`` and ``availability`` from intervals in any order, and the intervals in order.

    Args:
        ids: names of the devices.
        device: device row of each interval.
        start_us: starts.
        end_us: ends, exclusive.
        window: start and end (us) of the observation, for all devices or per device. Intervals are clipped to it; one
            that reaches an edge is marked as censored there.
        counts: receives the counts of :func:`~fedsim.traces.intervals.normalize`.
        columns: other columns of ``devices``.
    """
    low, high = (np.broadcast_to(np.asarray(edge, np.int64), len(ids)) for edge in window)
    intervals = normalize(device, start_us, end_us, window_start=low, window_end=high)
    counts |= intervals.counts
    before = intervals.start <= low[intervals.device]
    after = intervals.end >= high[intervals.device]
    censored = before.astype(np.int8) | after.astype(np.int8) << 1
    devices = {"device_id": ids, "window_start_us": low, "window_end_us": high, **columns}
    return {"devices": devices, "availability": intervals.table(ids, censored=censored)}, intervals


def note_outside(
    intervals: Intervals,
    counts: Mapping[str, int],
    window_us: int,
    caveats: list[str],
    where: str,
    origin: str = "time 0",
) -> None:
    """Add a caveat if intervals were dropped because they lie outside the window; refuse an import with none left.

    ``origin`` is time 0, in words, and ``where`` the files, for messages.
    """
    window = f"outside the window, {format_duration(window_us / 1e6)} from {origin}"
    if not len(intervals.device) and any(
        counts[kind] for kind in ("outside_window", "zero_length", "reversed")
    ):
        raise UserError(
            f"every interval ends before it starts or is {window}",
            where=where,
            hint="correct the times, their unit, or the window with -s window=...",
        )
    if dropped := counts["outside_window"]:
        caveats.append(f"{format_counted(dropped, 'interval')} {window}, dropped")


# Rates over time ----------------------------------------------------------------------------------------------------


class Notes(NamedTuple):
    """What an importer notes about its files, by kind and in words."""

    counts: dict[str, int]
    caveats: list[str]


class LinkImporter(Importer):
    """Base of formats with rates over time, one device per link.

    A device is named after its link, its window and its period have the length of the longer direction. Two files must
    not give the same direction of the same link. An unknown rate is the last known one, at the beginning the first one.

    Attributes:
        kind: kind of the devices.
        kinds: the counts that :meth:`links` adds to, which are 0 at first.
    """

    kind: ClassVar[str | None] = None
    kinds: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> pd.DataFrame:
        """The pieces of the links of one file, whose name is ``name``, in their order.

        Columns: ``series_id``, ``direction``, ``dur_us``, ``rate_bps`` (NaN if unknown), and others of
        ``network_series``.
        """

    @classmethod
    def read(cls, sources: Iterable[SourceFile], params: Any) -> Imported:
        """One series per link and direction."""
        notes = Notes(dict.fromkeys(cls.kinds.split(), 0), [])
        files = list(sources)
        links = []
        for number, (name, source) in enumerate(zip(file_names(files), files, strict=True)):
            piece = cls.links(name, source, params, notes)
            if piece.empty:
                raise source.error("has no interval between two times")
            links.append(piece.assign(file=number))
        pieces = pd.concat(links, ignore_index=True)
        row, ids = pd.factorize(pieces.pop("series_id"), sort=True)
        way = pd.Categorical(pieces.pop("direction"), DIRECTIONS).codes.astype(np.int64)
        order = np.argsort(len(DIRECTIONS) * row + way, kind="stable")
        pieces, row, way = pieces.iloc[order].reset_index(drop=True), row[order], way[order]
        heads = run_starts(row, way)
        by_link: Any = pieces.groupby(np.cumsum(heads))
        facts = by_link.agg({"file": ["min", "max"], "rate_bps": "count"}).to_numpy()
        for head, (first, last, known) in zip(np.flatnonzero(heads), facts, strict=True):
            if first < last:
                message = f"has the same name '{ids[row[head]]}' as {files[first].where}"
                hint = "rename one of them, or import the folder that contains both"
                raise files[last].error(message, hint)
            if not known:
                message = f"has no rate of {DIRECTIONS[way[head]]}"
                raise files[first].error(message, "correct the column or the rates")
        ends = by_link["dur_us"].cumsum()
        if pieces["rate_bps"].isna().any():
            pieces["rate_bps"] = by_link["rate_bps"].ffill()
            pieces["rate_bps"] = by_link["rate_bps"].bfill()
        series = {"series_id": id_column(row, ids), "direction": id_column(way, DIRECTIONS)}
        series["start_us"] = (ends - pieces["dur_us"]).to_numpy()
        for column in pieces.columns.difference(["file"]):
            values = pieces[column].to_numpy()
            is_text = column == "radio"
            series[column] = pa.array(values, pa.string(), from_pandas=True) if is_text else values
        window_us = ends.groupby(row).max().to_numpy()
        devices = {"device_id": ids, "window_end_us": window_us, "period_us": window_us}
        assign = {"device_id": ids, "series_id": ids, "offset_us": 0, "scale": 1.0}
        tables = {
            "devices": devices | ({} if cls.kind is None else {"kind": cls.kind}),
            "network_series": series,
            "network_assign": assign,
        }
        return Imported(tables, *notes)


def link(
    series_id: str, direction: str, dur_us: Ints, rate_bps: Floats, **columns: Any
) -> pd.DataFrame:
    """The pieces of one direction of a link, as :meth:`LinkImporter.links` returns them."""
    pieces = {"dur_us": dur_us, "rate_bps": rate_bps, **columns}
    return pd.DataFrame(pieces).assign(series_id=series_id, direction=direction)


# Records ------------------------------------------------------------------------------------------------------------


def numbers_of(
    values: Sequence[Any],
    name: str,
    where: Callable[[int], str],
    bounds: Bounds = NOT_NEGATIVE,
    unit: str = "",
) -> Floats:
    """Values of JSON, a pickle or a line of text as numbers.

    ``where`` returns the location of the value with an index, for messages.
    """
    try:
        # NumPy reads the text 1_0 as 10, as Python does.
        if not {bool, str, list, tuple, dict}.isdisjoint(map(type, values)):
            raise TypeError
        numbers = np.asarray(values, np.float64).reshape(len(values))
    except (TypeError, ValueError, OverflowError):
        parsed = pd.to_numeric(pd.Series(list(values), dtype=object).astype(str), errors="coerce")
        numbers = parsed.to_numpy(np.float64)
    for row in np.flatnonzero(~bounds.contain(numbers)).tolist():
        shown = "null" if values[row] is None else repr(values[row])
        limits = f"{'' if bounds.words else 'of '}{bounds}"
        hint = f"it must be a number{f' (in {unit})' if unit else ''} {limits}"
        raise UserError(f"{name} is {cut(shown)}", where=where(row), hint=hint)
    return numbers


_KINDS: Mapping[type, str] = {bool: "true or false", str: "text"}


class Records:
    """A file of records by id.

    Attributes:
        source, by_id: the file and its content.
        ids: the records to import; all of them at first.

    Args:
        noun: what a record describes, for messages.
    """

    def __init__(self, source: SourceFile, noun: str) -> None:
        self.source = source
        self.by_id = source.objects()
        self.ids: Sequence[str] = list(self.by_id)
        self._noun = noun

    def where(self, row: int) -> str:
        """Location of a record, for messages."""
        return f"{self.source.where}, {self._noun} {self.ids[row]}"

    def field(self, name: str, kind: type = object) -> list[Any]:
        """A field of every record, of a ``kind``."""
        for row, key in enumerate(self.ids):
            if name not in self.by_id[key]:
                hint = f"it has: {', '.join(map(str, self.by_id[key]))}"
                raise UserError(f"has no '{name}'", where=self.where(row), hint=hint)
            if not isinstance(value := self.by_id[key][name], kind):
                message = f"'{name}' is {cut(repr(value))}, not {_KINDS[kind]}"
                raise UserError(message, where=self.where(row))
        return [self.by_id[key][name] for key in self.ids]

    def texts(self, name: str) -> list[str | None]:
        """A field of every record as text; None if a record does not have it."""
        values = (self.by_id[key].get(name) for key in self.ids)
        return [None if value is None else str(value) for value in values]

    def numbers(self, name: str, unit: str, bounds: Bounds = NOT_NEGATIVE) -> Floats:
        """A numeric field of every record."""
        return numbers_of(self.field(name), f"'{name}'", self.where, bounds, unit)

    def optional(self, name: str) -> Floats:
        """A numeric field that records need not have, NaN if unknown."""
        values = [self.by_id[key].get(name, np.nan) for key in self.ids]
        rows = [row for row, value in enumerate(values) if value is not None and value == value]
        result, known = np.full(len(values), np.nan), [values[row] for row in rows]
        result[rows] = numbers_of(known, f"'{name}'", lambda at: self.where(rows[at]), AMOUNT)
        return result

    def instants_us(self, lists: Sequence[Sequence[Any]], name: str) -> tuple[Ints, Ints]:
        """The record of each of some seconds, of which every record has a list, and the seconds as microseconds."""
        lists = [each if isinstance(each, list | tuple | np.ndarray) else [each] for each in lists]
        row = np.repeat(np.arange(len(lists)), [*map(len, lists)])
        values = [*chain.from_iterable(lists)]
        seconds = numbers_of(values, name, lambda at: self.where(int(row[at])), TIME_S, "s")
        return row, microseconds(seconds)


def records_by_field(
    sources: Sources, fields: Mapping[str, str], what: str, hint: str
) -> dict[str, Records]:
    """Files of records, each by the field of its first record that identifies the type of file.

    Args:
        sources: the files.
        fields: name of a type of file by its field.
        what: plural noun for the records, for messages.
        hint: which files to give.
    """
    files: dict[str, Records] = {}
    for source in sources:
        records = Records(source, what.removesuffix("s"))
        first = next(iter(records.by_id.values()))
        kind = next((field for field in fields if field in first), None)
        if kind is None:
            known, names = ", ".join(fields), ", ".join(map(str, first))
            raise source.error(f"has none of {known} in its first record, but: {names}", hint)
        if kind in files:
            raise source.error(f"is a second {fields[kind]} file", "give only one")
        files[kind] = records
    return files
