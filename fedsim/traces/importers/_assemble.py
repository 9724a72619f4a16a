"""The one assembler: tables of a bundle from the columns of an importer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.files.cells import FAR_US, NOT_NEGATIVE, TIME_S, Bounds, Floats, Ints
from fedsim.files.frames import file_names
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.eligibility import Rule, held
from fedsim.traces.importers import Imported, Importer
from fedsim.traces.intervals import Intervals, join_touching, normalize, polling_interval
from fedsim.traces.tables import DIRECTIONS, id_column, order_of, run_starts
from fedsim.vocabulary.formatting import format_counted, format_duration


def microseconds(seconds: Floats) -> Ints:
    """``seconds`` rounded to integer microseconds; they must be finite and within 146,000 years."""
    return np.asarray(np.rint(seconds * 1e6).astype(np.int64))


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


def observed_changes(
    ids: Sequence[str],
    owner: Ints,
    source: Ints,
    time_us: Ints,
    codes: Mapping[str, Ints],
    rule: Rule,
    initial: Mapping[str, int],
    window_us: int | None,
    hold_us: int | None,
    counts: dict[str, int],
    **columns: Any,
) -> tuple[dict[str, Any], Intervals]:
    """Tables ``devices`` and ``availability`` of a log of changes, and the intervals.

    A source of reports, such as an access point that a device uses, has its own states; a device is available while the
    rule holds at one of its sources. A state lasts until the source's next row that changes it, but for ``hold_us``
    after its last row at most; of rows at the same time, the later one counts. All devices share the log's window, from
    its first row to its last one: a device is observed from the first instant after which the states of one of its
    sources always decide the rule to the end of that window. If it repeats, all repeat together. A device is invalid if
    no time lies between.

    Args:
        ids: names of the devices.
        owner: device row of each source.
        source: source of each change, in the order of the log.
        time_us: its time.
        codes: the state of each key after it, -1 if it does not change; for every key of the rule.
        rule: when a device is available.
        initial: states at time 0; keys that are absent are unknown.
        window_us: end of the observation, from time 0; None: the last row of the log.
        hold_us: longest time for which a state is believed; None: forever.
        counts: receives ``out_of_order``, ``repeated_states`` (rows that change nothing), ``contradictory`` (rows that
            give another state at the same time), ``after_window``, ``states_expired``, ``not_observed`` (devices),
            ``open_at_end`` (devices that become available with their last row) and those of :func:`observed_tables`.
        columns: other columns of ``devices``.
    """
    back = np.flatnonzero(time_us[1:] < time_us[:-1])
    disorder = int(np.count_nonzero(source[back + 1] == source[back]))
    first_us = 0
    if window_us is None and not initial:
        first_us = max(int(time_us.min(initial=FAR_US if len(time_us) else 0)), 0)
    end_us = int(time_us.max(initial=0)) + (hold_us or 0) if window_us is None else window_us
    inside = time_us < end_us + (window_us is None)
    counts["after_window"] = int(np.count_nonzero(~inside))
    codes = {key: codes[key] for key in rule.keys}
    if counts["after_window"]:
        source, time_us = source[inside], time_us[inside]
        codes = {key: code[inside] for key, code in codes.items()}
    if initial:
        # Every source has a row at time 0 that changes nothing: it has the initial states.
        present = np.flatnonzero(np.bincount(source, minlength=len(owner))).astype(source.dtype)
        source = np.append(present, source)
        time_us = np.append(np.zeros(len(present), np.int64), time_us)
        unchanged = np.full(len(present), -1)
        codes = {key: np.append(unchanged, code) for key, code in codes.items()}
    order = order_of(source, time_us)
    source, time_us = source[order], time_us[order]
    # A run of rows that no long silence interrupts; only a source's first one knows its initial states.
    run, is_first = source, np.ones(1, np.bool_)
    if hold_us is not None:
        head, following = _following(source, time_us, end_us)
        silent = following - time_us > hold_us
        counts["states_expired"] = int(np.count_nonzero(silent))
        run = np.cumsum(head | np.append(False, silent[:-1]), dtype=source.dtype)
        is_first = run == np.maximum.accumulate(np.where(head, run, 0))
    again = np.flatnonzero(~run_starts(source, time_us))
    clash = np.zeros(len(again), np.bool_)
    states = {}
    for key in rule.keys:
        code = codes.pop(key)[order]
        now, before = code[again], code[again - 1]
        clash |= (now >= 0) & (before >= 0) & (now != before)
        states[key] = held(run, code)
        if key in initial:
            states[key] = np.where((states[key] < 0) & is_first, initial[key], states[key])
    counts["contradictory"] = int(np.count_nonzero(clash))
    counts["repeated_states"] = int(np.count_nonzero(~run_starts(run, *states.values())))
    value = rule.holds(states)
    if hold_us is not None:
        # A source whose states expire is not online; it is unknown only before its first state.
        row = np.arange(len(value))
        known = np.maximum.accumulate(np.where(value != 0, row, -1))
        value[(value == 0) & (known >= np.maximum.accumulate(np.where(head, row, 0)))] = -1
    else:
        changes = np.flatnonzero(run_starts(source, value))
        source, time_us, value = source[changes], time_us[changes], value[changes]
        head, following = _following(source, time_us, end_us)

    heads = np.flatnonzero(head)
    begin, stop = np.zeros((2, len(owner)), np.int64)
    begin[source[heads]], stop[source[heads]] = heads, np.append(heads[1:], len(source))
    undecided = np.flatnonzero(value == 0)
    begin[source[undecided]] = undecided + 1
    window = np.full((2, len(ids)), end_us)
    decided = np.flatnonzero(begin < stop)
    since_us = np.maximum(time_us[begin[decided]], first_us)
    np.minimum.at(window[0], owner[decided], since_us)
    valid = window[1] > window[0]
    window[:, ~valid] = 0
    counts["not_observed"] = int(np.count_nonzero(~valid))
    period_us = np.where(valid, max(end_us - first_us, 1), 1)
    if (window[1] - window[0] != period_us)[valid].any():
        columns["period_us"] = period_us

    on = np.flatnonzero((value == 1) & valid[owner[source]])
    ends = following[on] if hold_us is None else np.minimum(following[on], time_us[on] + hold_us)
    source, start_us, ends = join_touching(source[on], time_us[on], ends)
    device, lasting = owner[source], ends > start_us
    counts["open_at_end"] = len(np.unique(device[~lasting & (ends == end_us)]))
    spans = device[lasting], start_us[lasting], ends[lasting]
    if len(owner) > len(ids):
        joined = normalize(*spans, merge_touching=True)
        spans = joined.device, joined.start, joined.end
    edges = window[0], window[1]
    tables, intervals = observed_tables(ids, *spans, edges, counts, valid=valid, **columns)
    counts["out_of_order"] = disorder
    return tables, intervals


def _following(source: Ints, time_us: Ints, end_us: int) -> tuple[Any, Ints]:
    """Whether each row is the first one of its source, and the time of the next one of that source."""
    head, following = run_starts(source), np.append(time_us[1:], end_us)
    following[np.append(head[1:], True)[: len(head)]] = end_us
    return head, following[: len(head)]


def note_polling(intervals: Intervals, counts: dict[str, int], caveats: list[str]) -> None:
    """Add a count and a caveat if the source was polled and therefore misses shorter changes."""
    if (polled_us := polling_interval(intervals.end - intervals.start)) is not None:
        counts["polling_interval_s"] = round(polled_us / 1e6)
        caveats.append(
            f"lengths cluster at multiples of {polled_us / 1e6:.0f} s: the source was polled and misses shorter"
            " changes"
        )


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


Links = Iterator[pd.DataFrame]


class Notes(NamedTuple):
    """What an importer notes about its files, by kind and in words."""

    counts: dict[str, int]
    caveats: list[str]


class LinkImporter(Importer):
    """Base of formats with rates over time, one device per link.

    A device is named after its link, its window and its period have the length of the longer direction. Two files must
    not give the same direction of the same link.

    Attributes:
        kind: kind of the devices.
        kinds: the counts that :meth:`links` adds to, which are 0 at first.
    """

    kind: ClassVar[str | None] = None
    kinds: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> Links:
        """The links of one file, as :func:`link` returns them; ``name`` is that of the file."""

    @classmethod
    def read(cls, sources: Iterable[SourceFile], params: Any) -> Imported:
        """One series per link and direction."""
        notes = Notes(dict.fromkeys(cls.kinds.split(), 0), [])
        files = list(sources)
        links = [
            piece
            for name, source in zip(file_names(files), files, strict=True)
            for piece in cls.links(name, source, params, notes)
        ]
        return Imported(link_tables(links, cls.kind), *notes)


def link(
    series_id: str,
    direction: str,
    length_us: Ints,
    rate_bps: Floats,
    source: SourceFile,
    **columns: Any,
) -> pd.DataFrame:
    """The pieces of one direction of a link, from time 0 on.

    Args:
        series_id: name of the link.
        direction: down, up or both.
        length_us: length of each piece, shape (n,).
        rate_bps: rate of each piece, NaN if unknown, which repeats the last known rate (or else the first), shape (n,).
        source: the file, for messages.
        columns: other columns of ``network_series``, shape (n,) each or one value.
    """
    if not len(length_us):
        raise source.error("has no interval between two times")
    if np.isnan(rate_bps).all():
        raise source.error(f"has no rate of {direction}", "correct the column or the rates")
    start_us = np.cumsum(length_us) - length_us
    rates = pd.Series(rate_bps).ffill().bfill()
    pieces = {"start_us": start_us, "dur_us": length_us, "rate_bps": rates, **columns}
    return pd.DataFrame(pieces).assign(series_id=series_id, direction=direction, where=source.where)


def link_tables(links: Sequence[pd.DataFrame], kind: str | None) -> dict[str, Any]:
    """Tables ``devices``, ``network_series`` and ``network_assign`` of links, one device per link."""
    pieces = pd.concat(links, ignore_index=True)
    of_link = pieces.groupby(["series_id", "direction"])["where"].unique()
    for name, files in zip(of_link.index.get_level_values(0), of_link, strict=True):
        if len(files) > 1:
            raise UserError(
                f"has the same name '{name}' as {files[0]}",
                where=files[1],
                hint="rename one of them, or import the folder that contains both",
            )
    pieces = pieces.sort_values(["series_id", "direction"], kind="stable")
    row, ids = pd.factorize(pieces["series_id"])
    ends = (pieces["start_us"] + pieces["dur_us"]).groupby(row).max().to_numpy(np.int64)
    way = pieces["direction"].map(DIRECTIONS.index).to_numpy()
    series = {"series_id": id_column(row, ids), "direction": id_column(way, DIRECTIONS)}
    for name in pieces.columns.difference(["series_id", "direction", "where"]):
        column = pieces[name].to_numpy()
        series[name] = (
            pa.array(column, pa.string(), from_pandas=True) if name == "radio" else column
        )
    devices = {"device_id": ids, "window_end_us": ends, "period_us": ends}
    return {
        "devices": devices | ({} if kind is None else {"kind": kind}),
        "network_series": series,
        "network_assign": {"device_id": ids, "series_id": ids, "offset_us": 0, "scale": 1.0},
    }


# Records ------------------------------------------------------------------------------------------------------------


def numbers_of(
    values: Sequence[Any],
    name: str,
    where: Callable[[int], str],
    bounds: Bounds = NOT_NEGATIVE,
    unit: str = "",
    *,
    missing: bool = False,
) -> Floats:
    """Values of JSON or a pickle as numbers, NaN if null, which only ``missing`` allows.

    ``where`` returns the location of the value with an index, for messages.
    """
    try:
        numbers = np.asarray(values, np.float64).reshape(len(values))
    except (TypeError, ValueError, OverflowError):
        parsed = pd.to_numeric(pd.Series(list(values), dtype=object).astype(str), errors="coerce")
        numbers = parsed.to_numpy(np.float64)
    for row in np.flatnonzero(~bounds.contain(numbers)).tolist():
        if not (missing and values[row] is None):
            shown = "null" if values[row] is None else repr(values[row])
            limits = f"{'' if bounds.words else 'of '}{bounds}"
            hint = f"it must be a number{f' (in {unit})' if unit else ''} {limits}"
            raise UserError(f"{name} is {shown[:60]}", where=where(row), hint=hint)
    return numbers


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

    def field(self, name: str) -> list[Any]:
        """A field of every record."""
        for row, key in enumerate(self.ids):
            if name not in self.by_id[key]:
                hint = f"it has: {', '.join(map(str, self.by_id[key]))}"
                raise UserError(f"has no '{name}'", where=self.where(row), hint=hint)
        return [self.by_id[key][name] for key in self.ids]

    def texts(self, name: str) -> list[str | None]:
        """A field of every record as text; None if a record does not have it."""
        values = (self.by_id[key].get(name) for key in self.ids)
        return [None if value is None else str(value) for value in values]

    def numbers(self, name: str, unit: str, bounds: Bounds = NOT_NEGATIVE) -> Floats:
        """A numeric field of every record."""
        return numbers_of(self.field(name), f"'{name}'", self.where, bounds, unit)

    def instants_us(self, lists: Sequence[Sequence[Any]], name: str) -> tuple[Ints, Ints]:
        """The record of each of some seconds, of which every record has a list, and the seconds as microseconds."""
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
