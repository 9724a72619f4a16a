"""The one assembler: tables of a bundle from the columns of an importer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.files.cells import NOT_NEGATIVE, Bounds, Floats, Ints
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.eligibility import Rule, held
from fedsim.traces.intervals import Intervals, normalize, polling_interval
from fedsim.traces.tables import (
    DIRECTIONS,
    constant_column,
    id_column,
    make_table,
    order_of,
    run_starts,
)
from fedsim.units import DAY_US, US_PER_S
from fedsim.vocabulary.formatting import format_counted, format_duration

# Profiles without a clock (capacities, benchmark scores, latencies) cover one day, which repeats.
STATIC_HORIZON_US = DAY_US
HOW_TO_WRITE = (
    "write 2024-05-01T08:00:00+02:00, or name the zone or the form: -s time_zone=Europe/Berlin, "
    "-s time_format='%d.%m.%Y %H:%M'"
)
_EXPIRED = 1 << 30
"""The code of a state that is believed no longer."""


def microseconds(seconds: Floats) -> Ints:
    """``seconds`` rounded to integer microseconds; they must be finite and within 146,000 years."""
    return np.asarray(np.rint(seconds * 1e6).astype(np.int64))


def devices_table(
    ids: Sequence[str],
    *,
    window_end_us: Ints | int = STATIC_HORIZON_US,
    window_start_us: Ints | int = 0,
    kind: str | Sequence[str | None] | None = None,
    **columns: Any,
) -> Any:
    """The table ``devices``; unless given as ``columns``, source ids equal the ids and every device is valid.

    ``kind`` is that of all devices, or one per device.
    """
    count = len(ids)
    values: dict[str, Any] = {
        "device_id": pa.array(ids, type=pa.string()),
        "source_id": pa.array(ids, type=pa.string()),
        "window_start_us": np.broadcast_to(np.asarray(window_start_us, np.int64), count),
        "window_end_us": np.broadcast_to(np.asarray(window_end_us, np.int64), count),
        "valid": np.ones(count, bool),
    }
    if kind is not None:
        values["kind"] = constant_column(kind, count) if isinstance(kind, str) else kind
    return make_table("devices", values | columns)


def per_device(ids: Sequence[str], table: str, rows: Any = None, **columns: Any) -> Any:
    """A table whose rows belong to the devices ``rows``; by default one row per device.

    A string fills a whole column; NaN in a column of floats becomes null.
    """
    devices = np.arange(len(ids)) if rows is None else rows
    values: dict[str, Any] = {"device_id": id_column(devices, ids)}
    for name, column in columns.items():
        if isinstance(column, str):
            column = constant_column(column, len(devices))
        elif isinstance(column, np.ndarray) and column.dtype.kind == "f":
            column = pa.array(column, mask=np.isnan(column))
        values[name] = column
    return make_table(table, values)


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
    tables = {
        "devices": devices_table(ids, window_start_us=low, window_end_us=high, **columns),
        "availability": intervals.table(ids, censored=censored),
    }
    return tables, intervals


def observed_changes(
    ids: Sequence[str],
    device: Ints,
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

    A state lasts until the device's next row that changes it, but for ``hold_us`` after the device's last row at most;
    of rows at the same time, the later one counts. All devices share the log's window, from its first row to its last
    one: a device is observed from the first instant after which its states always decide the rule to the end of that
    window. If it repeats, all repeat together. A device is invalid if no time lies between.

    Args:
        ids: names of the devices.
        device: device row of each change, in the order of the source.
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
    late = np.zeros(len(device), np.bool_) if window_us is None else time_us >= window_us
    counts["after_window"] = int(np.count_nonzero(late))
    back = np.flatnonzero(time_us[1:] < time_us[:-1])
    disorder = int(np.count_nonzero(device[back + 1] == device[back]))
    first_us = (
        0
        if window_us is not None or initial
        else max(int(time_us.min(initial=0 if not len(time_us) else 2**62)), 0)
    )
    end_us = int(time_us.max(initial=0)) + (hold_us or 0) if window_us is None else window_us
    # A row at time 0 that changes nothing has the initial states.
    present = np.flatnonzero(np.bincount(device, minlength=len(ids))).astype(device.dtype)
    if late.any():
        device, time_us = device[~late], time_us[~late]
        codes = {key: code[~late] for key, code in codes.items()}
    device = np.append(present, device)
    time_us = np.append(np.zeros(len(present), np.int64), time_us)
    order = order_of(device, time_us)
    device, time_us = device[order], time_us[order]
    coded = {
        key: np.append(np.full(len(present), -1, codes[key].dtype), codes[key])[order]
        for key in rule.keys
    }
    again = np.flatnonzero(~run_starts(device, time_us))
    clash = np.zeros(len(again), np.bool_)
    for code in coded.values():
        now, before = code[again], code[again - 1]
        clash |= (now >= 0) & (before >= 0) & (now != before)
    counts["contradictory"] = int(np.count_nonzero(clash))
    if hold_us is not None:
        device, time_us, coded = _with_expiry(device, time_us, coded, hold_us, end_us, counts)
    states = {key: held(device, code, initial.get(key, -1)) for key, code in coded.items()}
    states = (
        {key: np.where(code == _EXPIRED, -1, code) for key, code in states.items()}
        if hold_us
        else states
    )
    changed = run_starts(device, *states.values())
    counts["repeated_states"] = int(np.count_nonzero(~changed))
    value = rule.holds(states)
    if hold_us is not None:
        # A device whose states expire is not online; it is unknown only before its first state.
        known = np.maximum.accumulate(np.where(value != 0, np.arange(len(value)), -1))
        begun = known >= np.maximum.accumulate(
            np.where(run_starts(device), np.arange(len(value)), 0)
        )
        value = np.where((value == 0) & begun, -1, value)

    last = np.append(run_starts(device, time_us)[1:], True)
    device, time_us, value = device[last], time_us[last], value[last]
    begin, stop = (np.searchsorted(device, np.arange(len(ids)), side) for side in ("left", "right"))
    undecided = np.flatnonzero(value == 0)
    begin[device[undecided]] = undecided + 1
    window = np.zeros((2, len(ids)), np.int64)
    decided = np.flatnonzero(begin < stop)
    window[0, decided] = np.maximum(time_us[begin[decided]], first_us)
    window[1, decided] = end_us
    valid = window[1] > window[0]
    window[:, ~valid] = 0
    counts["not_observed"] = int(np.count_nonzero(~valid))

    turns = np.flatnonzero(run_starts(device, value == 1))
    # A device's last state lasts until the end of the window.
    following = np.append(turns[1:], 0)
    ends = np.where(np.append(run_starts(device[turns])[1:], True), end_us, time_us[following])
    on = (value[turns] == 1) & valid[device[turns]]
    opens = on & (ends == time_us[turns])
    counts["open_at_end"] = int(np.count_nonzero(opens))
    on &= ~opens
    period_us = np.where(valid, max(end_us - first_us, 1), 1)
    if (window[1] - window[0] != period_us)[valid].any():
        columns["period_us"] = period_us
    tables, intervals = observed_tables(
        ids,
        device[turns[on]],
        time_us[turns[on]],
        ends[on],
        (window[0], window[1]),
        counts,
        valid=valid,
        **columns,
    )
    counts["out_of_order"] = disorder
    return tables, intervals


def _with_expiry(
    device: Ints,
    time_us: Ints,
    coded: Mapping[str, Ints],
    hold_us: int,
    end_us: int,
    counts: dict[str, int],
) -> tuple[Ints, Ints, dict[str, Ints]]:
    """The changes, with one after each row that no row of the device follows in time: all states expire."""
    following = np.append(time_us[1:], 2**62)
    following[np.append(run_starts(device)[1:], True)] = 2**62
    silent = np.flatnonzero(time_us + hold_us < np.minimum(following, end_us))
    counts["states_expired"] = len(silent)
    device = np.insert(device, silent + 1, device[silent])
    time_us = np.insert(time_us, silent + 1, time_us[silent] + hold_us)
    return device, time_us, {k: np.insert(code, silent + 1, _EXPIRED) for k, code in coded.items()}


def note_polling(intervals: Intervals, counts: dict[str, int], caveats: list[str]) -> None:
    """Add a count and a caveat if the source was polled and therefore misses shorter changes."""
    polled_us = polling_interval(intervals.end - intervals.start)
    if polled_us is not None:
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
    dropped, left = counts["outside_window"], len(intervals.device)
    window = f"outside the window, {format_duration(window_us / US_PER_S)} from {origin}"
    if not left and any(counts[kind] for kind in ("outside_window", "zero_length", "reversed")):
        raise UserError(
            f"every interval ends before it starts or is {window}",
            where=where,
            hint="correct the times, their unit, or the window with -s window=...",
        )
    if dropped:
        caveats.append(f"{format_counted(dropped, 'interval')} {window}, dropped")


# Rates over time ----------------------------------------------------------------------------------------------------


def link(
    series_id: str, direction: str, edges_us: Ints, rate_bps: Floats, where: str, **columns: Any
) -> pd.DataFrame:
    """The pieces of one direction of a link.

    Args:
        series_id: name of the link.
        direction: down, up or both.
        edges_us: start of the first piece and ends of all pieces, ascending, shape (n + 1,).
        rate_bps: rate of each piece, NaN if unknown, which repeats the last known rate (or else the first), shape (n,).
        where: the file, for messages.
        columns: other columns of ``network_series``, shape (n,) each or one value.
    """
    if np.isnan(rate_bps).all():
        raise UserError(
            f"has no rate of {direction}", where=where, hint="correct the column or the rates"
        )
    rates = pd.Series(rate_bps).ffill().bfill()
    pieces = {"start_us": edges_us[:-1], "dur_us": np.diff(edges_us), "rate_bps": rates, **columns}
    return pd.DataFrame(pieces).assign(series_id=series_id, direction=direction, where=where)


def link_tables(links: Iterable[pd.DataFrame], *, kind: str | None = None) -> dict[str, Any]:
    """Tables ``devices``, ``network_series`` and ``network_assign`` of links, one device per link.

    A device is named after its link; its window and its period have the length of the longer direction. Two files must
    not give the same direction of the same link.
    """
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
    values: dict[str, Any] = {
        "series_id": id_column(row, ids),
        "direction": id_column(pieces["direction"].map(DIRECTIONS.index).to_numpy(), DIRECTIONS),
        **{name: pieces[name].to_numpy() for name in ("start_us", "dur_us", "rate_bps")},
    }
    for name in pieces.columns.intersection(["rtt_s", "loss", "radio"]):
        values[name] = pa.array(
            pieces[name], pa.string() if name == "radio" else pa.float32(), from_pandas=True
        )
    return {
        "devices": devices_table(list(ids), window_end_us=ends, kind=kind, period_us=ends),
        "network_series": make_table("network_series", values),
        "network_assign": per_device(
            list(ids),
            "network_assign",
            series_id=id_column(np.arange(len(ids)), ids),
            offset_us=np.zeros(len(ids), np.int64),
            scale=np.ones(len(ids), np.float32),
        ),
    }


def named_sources(
    sources: Iterable[SourceFile], endings: Sequence[str] = ()
) -> list[tuple[str, SourceFile]]:
    """The files with the names of their links: the file name without the ``endings``, or the path if names repeat."""

    def bare(name: str) -> str:
        for ending in endings:
            name = name.removesuffix(ending)
        return name

    files = list(sources)
    short = [bare(PurePosixPath(file.name).name) for file in files]
    unique = len(set(short)) == len(short)
    names = short if unique else [bare(file.name) for file in files]
    return list(zip(names, files, strict=True))


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
