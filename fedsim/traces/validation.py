"""All problems of a trace bundle, by table and row.

The declarations of :mod:`fedsim.traces.tables` are checked in the same way for all tables; rules that relate columns to
each other are below. All checks are whole-column operations; only the findings become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError, printable, raise_all
from fedsim.files.cells import CONTROL, fitting_unit
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.tables import TABLES, Column, filled, run_starts, single_chunk, to_numpy
from fedsim.units import DAY_S
from fedsim.vocabulary.arrays import Bools, Ints
from fedsim.vocabulary.formatting import format_counted, format_duration, format_rate

LISTED_PER_KIND = 1000
_SHOWN = 10

_YEAR_S = 365.0 * DAY_S
_LONGEST_S = 5 * _YEAR_S
"""Time after time 0 beyond which times are probably Unix times, and longest plausible observation of a device."""
_SERVERS_BPS = 1e6, 400e9
_RATES = "rate", "rate_unit", format_rate, (50e3, 2e9)
_STEPS = "compute_unit", format_duration, (1e-6, 3600.0)
_PLAUSIBLE: Mapping[tuple[str, str], Any] = {
    ("network", "bandwidth_bps"): _RATES,
    ("network_series", "rate_bps"): _RATES,
    ("network", "rtt_s"): ("round-trip time", "latency_unit", format_duration, (10e-6, 5.0)),
    ("compute", "step_fixed_s"): ("step time", *_STEPS),
    ("compute", "sample_s"): ("sample time", *_STEPS),
}
"""Measurements, the option of their unit, and the lowest and the highest plausible median of personal devices."""
_SERVER_KINDS = ("vm", "server", "site")
LAST_S = 230 * _YEAR_S
"""The year 2200 as a Unix time."""


@dataclass(frozen=True)
class Finding:
    """A problem of a bundle.

    Args:
        table: table concerned, or ``manifest``.
        row: row number in the table from 0; None if it concerns the whole table.
        message: the problem.
    """

    table: str
    row: int | None
    message: str

    def __str__(self) -> str:
        location = self.table if self.row is None else f"{self.table} row {self.row}"
        return str(printable(f"{location}: {self.message}")).replace("\n", "\\n")


def validate_bundle(
    bundle: TraceBundle, *tables: str, limit: int = LISTED_PER_KIND
) -> list[Finding]:
    """The problems of some tables (by default all) of a bundle, by table and kind; empty for a sound bundle.

    At most ``limit`` findings of each kind are listed; one more then gives the number of the others.
    """
    if not bundle.device_count:
        return [Finding("devices", None, "there is no device")]
    findings = [
        Finding(name, None, "its file has changed since fedsim wrote it: the SHA-256 differs")
        for name in sorted(bundle.altered)
    ]
    for name in tables or bundle.tables:
        findings += _Table(bundle, name).findings(limit)
    return findings


def require_sound(bundle: TraceBundle, *tables: str, where: str = "") -> TraceBundle:
    """The bundle; refuse one some tables of which (by default all) are not sound, with the first ten problems.

    ``where`` is what it was made of, for messages about one that is not yet a folder.
    """
    findings = [str(finding) for finding in validate_bundle(bundle, *tables, limit=_SHOWN)]
    if len(findings) > _SHOWN:
        findings[_SHOWN:] = ["and more"]
        if not where:
            findings[-1] += "; `fedsim traces validate` lists them all"
    raise_all(UserError(finding, where=where or bundle.where) for finding in findings)
    return bundle


def implausible_times(bundle: TraceBundle) -> UserError | None:
    """A warning if the times of a bundle were probably read in the wrong unit; otherwise None.

    This is assumed if the median interval of availability is shorter than 1 s or longer than 10 days, the median
    device was observed for more than 5 years, or an interval begins that long after time 0, as Unix times do. Traces
    of servers can be long; those of personal devices are not. If the unit was declared at the import, it is also
    doubted if most intervals are shorter than a minute and the median device was observed for less than 3 hours.
    """
    if not bundle.device_count or not len(bundle.tables.get("availability", ())):
        return None
    start = bundle.numpy("availability", "start_us")
    length = bundle.numpy("availability", "end_us") - start
    window_start, window_end = bundle.windows
    window_s = float(np.median(window_end - window_start)) / 1e6
    # A window that was declared says nothing about the unit of the times.
    span_s = min(window_s, float((start + length).max()) / 1e6 - float(start.min()) / 1e6)
    first_s = float(start.min()) / 1e6
    unit = bundle.manifest.options.get("time_unit")
    brief = unit is not None and span_s < 3 * 3600 and not _are_servers(bundle)
    half = "half of the intervals are"
    doubts = {
        f"its first interval begins {first_s / _YEAR_S:,.3g} years after time 0": first_s
        > _LONGEST_S,
        f"{half} shorter than 1 s": _most(length < 1e6),
        f"{half} shorter than 1 min, and devices were observed for {format_duration(span_s)}": brief
        and _most(length < 60e6),
        f"{half} longer than 10 d": _most(length > 10 * DAY_S * 1e6),
        f"half of the devices were observed for more than {window_s / _YEAR_S:,.3g} years": window_s
        > _LONGEST_S,
    }
    for fact in (text for text, doubted in doubts.items() if doubted):
        again = bundle.import_again("time_unit", fitting_unit(start, unit))
        return bundle.error(f"{fact}: are its times in the right unit?", f"if not, {again}")
    return None


def implausible_rates(bundle: TraceBundle, part: str = "") -> UserError | None:
    """A warning if the rates or times of a bundle, or of its tables of a ``part``, are probably in the wrong unit.

    This is assumed if the median rate is below 50 kbit/s or above 2 Gbit/s; of servers, below 1 Mbit/s or above
    400 Gbit/s; if the median round-trip time is below 10 us or above 5 s, or that of a step below 1 us or above 1 h.
    """
    for (table, column), (what, option, written, bounds) in _PLAUSIBLE.items():
        is_there = table.startswith(part) and bundle.has(table, column)
        values = bundle.numpy(table, column) if is_there else np.zeros(0)
        values = values[(values > 0) & (values < np.inf)]
        is_rate = option == "rate_unit"
        low, high = _SERVERS_BPS if is_rate and _are_servers(bundle) else bounds
        if len(values) and not low <= (median := float(np.median(values))) <= high:
            return bundle.error(
                f"the median {what} is {written(median)}: are its {what}s in the right unit?",
                f"if not, {bundle.import_again(option)}"
                + "; if these are servers, give them the kind server"
                * (is_rate and option in bundle.manifest.options),
            )
    return None


def _most(condition: Bools) -> bool:
    # Counting is several times faster than finding the median of a long trace.
    return 2 * int(np.count_nonzero(condition)) >= len(condition)


def _are_servers(bundle: TraceBundle) -> bool:
    if not bundle.has("devices", "kind"):
        return False
    codes, words = bundle.text_codes("devices", "kind")
    return _most(np.array([*(word in _SERVER_KINDS for word in words), False])[codes])


def _repeats(numbers: Ints) -> Bools:
    """Whether each number occurred before."""
    repeats = np.ones(len(numbers), np.bool_)
    repeats[np.unique(numbers, return_index=True)[1]] = False
    return repeats


_Checks = Iterator[tuple[Any, ...]]
"""Rows that are wrong (None: the table as a whole), a message, and what fills its braces: columns, or texts by name."""


class _Table:
    """A table and its columns as arrays."""

    def __init__(self, bundle: TraceBundle, name: str) -> None:
        self.bundle, self.name, self.table = bundle, name, bundle.tables[name]
        self.present = set(self.table.column_names)

    def findings(self, limit: int) -> Iterator[Finding]:
        """The problems, at most ``limit`` of each kind."""
        for bad, message, *values in self._checks():
            if bad is None:
                yield Finding(self.name, None, message)
                continue
            rows = np.flatnonzero(bad)
            if len(rows):
                values = [
                    self.bundle.texts(self.name, v) if isinstance(v, str) else v for v in values
                ]
            for row in rows[:limit].tolist():
                text = message.format(*(value[row] for value in values))
                yield Finding(self.name, row, text)
            if len(rows) > limit:
                more = f"and {format_counted(len(rows) - limit, 'more row')} of the same kind"
                yield Finding(self.name, None, more)

    def _checks(self) -> _Checks:
        schema = TABLES[self.name]
        for column in schema.columns.values():
            if column.name in self.present:
                yield from self._column(column)
        if schema.unique:
            repeats = _repeats(self._numbered([n for n in schema.unique if n in self.present]))
            yield repeats, f"repeats the {', '.join(schema.unique)} of an earlier row"
        if schema.order:
            yield from self._order(schema.order)
        yield from getattr(self, f"_{self.name}", lambda: ())()

    def _column(self, column: Column) -> _Checks:
        """What the schema declares."""
        name, values = column.name, self.values(column.name)
        if not column.nullable and values.null_count:
            yield to_numpy(pc.is_null(values)), f"{name} is null"
        if column.refers == "devices":
            # Its texts are those of the devices, which are checked there.
            yield self.devices < 0, "'{}' is not in the table devices", name
            if (self.devices >= 0).all():
                return
        elif column.refers in self.bundle.tables:
            known = pc.unique(self.bundle.tables[column.refers].column(name).cast(pa.string()))
            unknown = ~to_numpy(pc.is_in(values.cast(pa.string()), value_set=known))
            yield unknown, f"'{{}}' is not in the table {column.refers}", name
        elif column.refers is not None:
            yield None, f"there is no table {column.refers}"
        if column.words:
            message = f"{name} is {{!r}}; it must be one of {', '.join(column.words)}"
            yield ~self._are(name, *column.words, None), message, name
        if column.bounds is not None:
            known, numbers = to_numpy(pc.is_valid(values)), to_numpy(values)
            inside, finite = column.bounds.contain(numbers), np.isfinite(numbers)
            unit = f" {column.unit}" if column.unit else ""
            message = f"{name} is {{}}{unit}; it must be {column.bounds}"
            yield known & finite & ~inside, message, numbers
            yield known & ~finite, f"{name} is {{}}, which is not finite", numbers
        text = values.dictionary if pa.types.is_dictionary(values.type) else values
        if text.type == pa.string() and pc.any(pc.match_substring_regex(text, CONTROL)).as_py():
            bad = to_numpy(pc.match_substring_regex(values.cast(pa.string()), CONTROL))
            yield bad, f"{name} is {{!r}}, which contains a control character", name

    def _order(self, columns: Sequence[str]) -> _Checks:
        """Unsorted rows and, for intervals, reversed, empty and overlapping ones, and gaps unless allowed."""
        first = next(n for n, name in enumerate(columns) if name.endswith("_us"))
        group, start = self._numbered(columns[:first]), self.integers(columns[first])
        heads = run_starts(group)
        unsorted = ~heads & (start < np.roll(start, 1))
        interrupted = np.zeros(len(group), np.bool_)
        interrupted[heads] = _repeats(group[heads])
        yield interrupted, "continues a group that other rows have interrupted; sort the table"
        yield unsorted, "is at {} us, before the row above it", start
        if columns[first + 1 :] == ():
            return
        follows = columns[-1] == "dur_us"
        end = self.integers(columns[-1]) + (start if follows else 0)
        above = np.roll(end, 1)
        yield end < start, "the interval [{}, {}) us is reversed", start, end
        yield end == start, "the interval [{}, {}) us has zero length", start, end
        overlaps, gap = ~heads & ~unsorted & (start < above), ~heads & (start > above) & follows
        ends = "the row above it, which ends at {} us"
        yield overlaps, f"starts at {{}} us and overlaps {ends}", start, above
        # The pieces of a series follow each other.
        yield gap, f"starts at {{}} us and leaves a gap after {ends}", start, above

    # Relations between columns, by table ------------------------------------------------------------------------------

    def _devices(self) -> _Checks:
        yield to_numpy(pc.binary_length(self.values("device_id"))) == 0, "device_id is empty"
        start, end = self.integers("window_start_us"), self.integers("window_end_us")
        # An invalid device may have an empty window.
        empty = (end < start) | (self.bundle.valid & (end == start))
        yield empty, "the window [{}, {}) us has no length", start, end
        if "period_us" in self.present:
            period = self.bundle.numpy("devices", "period_us")
            with np.errstate(invalid="ignore"):
                yield period < end - start, "period_us {} is shorter than the window", period

    def _availability(self) -> _Checks:
        known = self.devices >= 0
        start, end = self.integers("start_us"), self.integers("end_us")
        low, high = (edge[self.devices] for edge in self.bundle.windows)
        outside = known & ((start < low) | (end > high))
        message = "[{}, {}) us is not inside the window [{}, {}) us of its device"
        yield outside, message, start, end, low, high
        yield known & ~self.bundle.valid[self.devices], "belongs to an invalid device"

    def _compute(self) -> _Checks:
        speeds = {"step_fixed_s", "sample_s", "relative_speed", "score"} & self.present
        unknown = [to_numpy(pc.is_null(self.values(name))) for name in speeds]
        none = np.logical_and.reduce([np.ones(self.table.num_rows, np.bool_), *unknown])
        yield none, "gives no speed: neither a time, a relative speed nor a score"

    def _network(self) -> _Checks:
        both = self._are("direction", "both")
        has_both = np.zeros(self.bundle.device_count + 1, np.bool_)
        has_both[self.devices[both]] = True
        bad = ~both & has_both[self.devices] & (self.devices >= 0)
        yield bad, "its device already has a row for both directions"

    def _grid(self) -> _Checks:
        bad = ~to_numpy(
            pc.match_substring_regex(self.values("unit").cast(pa.string()), "^(g|[A-Z]{3})/kWh$")
        )
        yield bad, "unit is {!r}; it must be g/kWh, or as EUR/kWh for prices", "unit"

    # Columns as arrays ------------------------------------------------------------------------------------------------

    @cached_property
    def devices(self) -> Ints:
        """Row in ``devices`` of each row; -1 if there is none."""
        return self.bundle.device_rows(self.name)

    def values(self, column: str) -> Any:
        return single_chunk(self.table.column(column))

    def integers(self, column: str) -> Ints:
        """An integer column; nulls, which are reported elsewhere, become 0."""
        return filled(self.values(column), 0)

    def _are(self, column: str, *words: str | None) -> Bools:
        """Whether each text of a dictionary-encoded column is one of ``words``, where None is null."""
        values = self.values(column)
        hits = np.array([text in words for text in (*values.dictionary.to_pylist(), None)])
        rows: Bools = hits[filled(values.indices, len(hits) - 1)]
        return rows

    def _numbered(self, columns: Sequence[str]) -> Ints:
        """One number per combination of the columns' values, where null and unknown devices are values, too."""
        number: Ints = np.zeros(self.table.num_rows, np.int64)
        for column in columns:
            codes = self.devices if column == "device_id" and self.name != "devices" else None
            if codes is None:
                values = self.values(column)
                if not pa.types.is_dictionary(values.type):
                    values = values.dictionary_encode()
                unique = pc.index_in(values.dictionary, value_set=values.dictionary.unique())
                lookup = np.append(to_numpy(unique).astype(np.int64), -1)
                codes = lookup[filled(values.indices, len(lookup) - 1)]
            number = number * (codes.max(initial=-1) + 2) + codes + 1
        return number
