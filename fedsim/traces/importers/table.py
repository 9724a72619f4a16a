"""Tables: one row per interval, per change of state or per device, with units declared in the options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import field_validator

from fedsim.errors import UserError, nearest, nearest_or_all, raise_all
from fedsim.files.delimited import hint_of_header
from fedsim.traces.bundle import Eligibility
from fedsim.traces.eligibility import OFF, ON, Rule
from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._assemble import (
    STATIC_HORIZON_US,
    devices_table,
    note_outside,
    note_polling,
    observed_tables,
    per_device,
)
from fedsim.traces.importers._changes import observed_changes
from fedsim.traces.importers._numbers import RATE_UNITS, TIME_S, Number, RateUnit
from fedsim.traces.parameters import OnEnd
from fedsim.traces.tables import NOT_NEGATIVE, POSITIVE, SHARE, Bools, Bounds, Floats, id_column
from fedsim.traces.validation import LAST_S
from fedsim.units import DURATION_UNITS, Duration
from fedsim.vocabulary.formatting import format_counted, format_names

UNITS: Mapping[str, float] = {**DURATION_UNITS, **RATE_UNITS}
TEXTS = ("model", "kind", "group", "radio")
# The table of each column, the valid numbers, and the option that gives their unit.
NUMBERS: Mapping[str, tuple[str, Bounds, str | None]] = {
    "sample_time": ("compute", NOT_NEGATIVE, "compute_unit"),
    "step_time": ("compute", NOT_NEGATIVE, "compute_unit"),
    "relative_speed": ("compute", POSITIVE, None),
    "score": ("compute", POSITIVE, None),
    "ram_bytes": ("compute", POSITIVE, None),
    "down": ("network", POSITIVE, "rate_unit"),
    "up": ("network", POSITIVE, "rate_unit"),
    "bandwidth": ("network", POSITIVE, "rate_unit"),
    "rtt": ("network", NOT_NEGATIVE, "latency_unit"),
    "loss": ("network", SHARE, None),
}
SPEEDS: Mapping[str, str] = {
    "sample_time": "sample_s",
    "step_time": "step_fixed_s",
    "relative_speed": "relative_speed",
    "score": "score",
}
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX_S = Bounds(0.0, LAST_S, words="from 1970 to 2200")
_DATE = r"^\d{4}-"
_OFFSET = r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
COLUMNS = ("device", "start", "end", "time", *NUMBERS, *TEXTS)


class Table(Importer):
    """Tables in CSV, Parquet, Feather or Arrow files; several files are joined by ``device``.

    Columns: ``device``; ``start``, ``end`` (available in ``[start, end)``); ``sample_time``, ``step_time`` (a step
    takes step_time + sample_time x batch), ``relative_speed``, ``score``, ``ram_bytes``; ``down`` and ``up`` or
    ``bandwidth`` (both directions), ``rtt``, ``loss``, ``radio``; ``model``, ``kind``, ``group``. An empty cell is
    unknown. All rows of a device must agree. Times are numbers of ``time_unit`` from time 0, or ISO 8601 timestamps
    such as ``2024-05-01T08:00:00+02:00``.

    Instead of ``start`` and ``end``, a log of changes has ``time`` and a column per state, of any name (``state``,
    ``charging``, ``Screen On``, which rules call ``screen_on``); a cell is the state from that time on, an empty one
    leaves it as it was. In a log with one change per row, ``key`` names the state and ``state`` gives its value. The
    option ``online`` says in which states a device is available. A device is observed from when its states decide this
    until its last row, which may repeat a state.
    """

    name = "table"
    description = "tables (CSV, Parquet): device,start,end or device,time,state; compute, network"
    signature = r"(?i)^[^\n]*\n([^\n]*,)? *device *(,[^\n]*)?\n"

    class Params(ImporterParams):
        """Options of the table importer. The unit of a column must be given; none is assumed."""

        time_unit: Literal["us", "ms", "s", "min", "h", "d", "unix_s", "unix_ms"] | None = None
        """Unit of ``start`` and ``end``, or ``time``, unless they are ISO 8601 timestamps. ``unix_s`` and ``unix_ms``
        mean Unix times in s or ms, which are timestamps, too."""
        time_zone: str | None = None
        """Time zone of timestamps without an offset: ``UTC``, an IANA name such as ``Europe/Berlin``, or ``+02:00``. If
        clocks repeat an hour, the first one is used."""
        compute_unit: Literal["us", "ms", "s"] | None = None
        """Unit of ``sample_time`` and ``step_time``."""
        rate_unit: RateUnit | None = None
        """Unit of ``down``, ``up`` and ``bandwidth``: b is a bit, B is a byte."""
        latency_unit: Literal["us", "ms", "s"] | None = None
        """Unit of ``rtt``."""
        phase: Literal["inference", "training"] = "training"
        """Whether the times are those of inference or of training."""
        online: str | None = None
        """Rule for when a device is available, over the states of a log of changes, such as ``state == on and
        charging`` or ``network in (wifi, lan) and battery >= 20``; a bare name means on, true, yes or 1. By default the
        only state of the log, if it is one of these or their opposites."""
        initial: dict[str, str] = {}
        """States of all devices at time 0, such as ``-s initial.charging=off``; by default unknown."""
        window: Duration | None = None
        """Length of the observation from time 0; by default up to the last end in the files, or the last row of each
        device in a log of changes."""
        on_end: OnEnd = "wrap"
        """Behavior of a device after the window."""
        epoch: str | None = None
        """ISO 8601 timestamp of time 0. By default, if the files contain timestamps or Unix times, the last
        midnight before the first start, in ``time_zone`` or else UTC."""
        clock: Literal["local", "utc", "device-relative"] | None = None
        """Meaning of time 0. By default device-relative; with timestamps utc, or local if ``time_zone`` is given."""

        @field_validator("initial", mode="before")
        @classmethod
        def _as_text(cls, given: object) -> object:
            """States in lower case; YAML reads ``true`` and ``1`` as values of other types."""
            if not isinstance(given, dict):
                return given
            return {str(key).lower(): str(state).lower() for key, state in given.items()}

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device per name in the column ``device``."""
        table = _Rows(sources, params)
        clock = _Clock(params)
        table.require_units(clock.needs_unit(table))
        counts: dict[str, int] = {}
        caveats = table.unpaired()
        tables: dict[str, Any] = {}
        horizon_us = round(params.window * 1e6) if params.window else STATIC_HORIZON_US
        texts: dict[str, Any] = {name: table.text(name) for name in TEXTS[:3] if name in table}
        eligibility: Eligibility | None = None
        if table.times:
            read = table.availability if len(table.times) == 2 else table.changes
            horizon_us, tables, rule = read(clock, counts, caveats, texts)
            eligibility = Eligibility(words=rule or "available", expression=rule)
        else:
            tables["devices"] = devices_table(table.ids, window_end_us=horizon_us, **texts)
        present = {kind for name, (kind, _, _) in NUMBERS.items() if name in table}
        if "compute" in present:
            tables["compute"] = _compute(table, params.phase)
        if "network" in present or "radio" in table:
            tables["network"] = _network(table)
        return Imported(
            tables,
            counts,
            caveats,
            eligibility=eligibility,
            horizon_us=horizon_us,
            on_end=params.on_end,
            epoch=clock.epoch,
            epoch_weekday=clock.weekday,
            clock=clock.kind,
        )


class _Rows:
    """The rows of all files, as text, with their locations."""

    def __init__(self, sources: Sources, params: Table.Params) -> None:
        self.params = params
        self.where = sources.where
        frames = []
        ids_by_columns: dict[tuple[str, ...], set[str]] = {}
        for source in sources:
            columns, lines = _columns(source)
            frames.append(pd.DataFrame({**columns, "where": [source.line(line) for line in lines]}))
            ids_by_columns.setdefault(tuple(sorted(columns)), set()).update(columns["device"])
        self.cells = pd.concat(frames, ignore_index=True).fillna("")
        self._refuse((self.cells["device"] == "").to_numpy(), "has no device")
        self.device, ids = pd.factorize(self.cells["device"])
        self.ids: list[str] = ids.tolist()
        self.in_all_files = set.intersection(*ids_by_columns.values())
        self.times = tuple(name for name in ("start", "end", "time") if name in self)
        if len(self.times) > 2:
            message = "has both intervals (start, end) and changes of states (time)"
            raise UserError(message, where=self.where, hint="import either of them")

    def __contains__(self, name: str) -> bool:
        return name in self.cells

    def unpaired(self) -> list[str]:
        """A caveat on devices that some files have, and files with other columns do not."""
        alone = [name for name in self.ids if name not in self.in_all_files]
        devices = format_counted(len(alone), "device")
        return [f"{devices} not in all files, the first is '{alone[0]}'"] if alone else []

    def require_units(self, needs_time_unit: bool) -> None:
        """Refuse columns whose units are not declared, all together."""
        columns_by_option = {"time_unit": list(self.times)} if needs_time_unit else {}
        for name, (_, _, option) in NUMBERS.items():
            if name in self and option is not None:
                columns_by_option.setdefault(option, []).append(name)
        raise_all(
            UserError(
                f"the unit of the column{'s' * (len(columns) > 1)} {format_names(columns)} is not declared",
                where=self.where,
                hint=f"give it with -s {option}=..., one of {', '.join(_units(option))}",
            )
            for option, columns in columns_by_option.items()
            if getattr(self.params, option) is None
        )

    def location(self, row: int) -> str:
        """File and line of a row."""
        return str(self.cells["where"][row])

    def _refuse(self, bad: Bools, message: str) -> None:
        """Refuse the first of the rows marked by ``bad``, if any."""
        if bad.any():
            raise UserError(message, where=self.location(int(bad.argmax())))

    def require_one_of(self, *names: str) -> None:
        """Refuse a table with none of the columns ``names``, which its other columns refer to."""
        if not any(name in self for name in names):
            raise UserError(
                f"has none of the columns {', '.join(names)}",
                where=self.where,
                hint="ram_bytes needs a compute speed; rtt, loss and radio need a rate",
            )

    def number(self, name: str) -> Floats:
        """One number per device in SI units, NaN if unknown. Shape (devices,)."""
        _, bounds, option = NUMBERS[name]
        unit = getattr(self.params, option) if option else ""
        number = Number(name, unit, bounds, missing=("",))
        values = number.read(self.cells[name].tolist(), self.location)
        single = np.asarray(self._single(name, pd.Series(values)), np.float64)
        return single * UNITS[unit] if unit else single

    def text(self, name: str) -> list[str | None]:
        """One string per device, None if unknown."""
        values = self.cells[name]
        single = self._single(name, values.mask(values == ""))
        return [value if isinstance(value, str) else None for value in single]

    def availability(
        self, clock: _Clock, counts: dict[str, int], caveats: list[str], texts: dict[str, Any]
    ) -> tuple[int, dict[str, Any], None]:
        """Time covered (us), the tables of devices and availability, and no rule."""
        start, end = clock.read(self)
        self._refuse(
            np.isnan(start) != np.isnan(end),
            "has a start without an end, or an end without a start",
        )
        rows = np.flatnonzero(~np.isnan(start))
        start_us, end_us = (np.rint(time[rows]).astype(np.int64) for time in (start, end))
        if self.params.window is not None:
            horizon_us = round(self.params.window * 1e6)
        else:
            horizon_us = int(end_us.max(initial=0))
            caveats.append(
                "no window was given (option window): it is assumed to end with the last interval"
            )
        if horizon_us <= 0:
            raise UserError(
                "has no interval after time 0 and no window",
                where=self.where,
                hint="give the length of the observation with -s window=..., such as 7d",
            )
        tables, intervals = observed_tables(
            self.ids, self.device[rows], start_us, end_us, (0, horizon_us), counts, **texts
        )
        note_outside(intervals, counts, horizon_us, caveats, self.where, clock.origin)
        counts["never_available"] = len(self.ids) - len(np.unique(intervals.device))
        note_polling(intervals, counts, caveats)
        return horizon_us, tables, None

    def changes(
        self, clock: _Clock, counts: dict[str, int], caveats: list[str], texts: dict[str, Any]
    ) -> tuple[int, dict[str, Any], str]:
        """Time covered (us), the tables of devices and availability, and the rule, from changes of states."""
        states = [name for name in map(str, self.cells) if name not in (*COLUMNS, "where")]
        initial = self.params.initial
        raise_all(
            UserError(
                f"initial names the state '{name}', which the log does not have",
                where=self.where,
                hint=nearest_or_all(name, states, f"its states: {', '.join(states)}"),
            )
            for name in initial
            if name not in states
        )
        cells = {name: self.cells[name].str.lower() for name in states}
        words = {
            name: tuple(sorted({*column, initial.get(name, "")} - {""}))
            for name, column in cells.items()
        }
        rule = self._rule(words)
        (time,) = clock.read(self)
        known = ~np.isnan(time)
        stateful = np.any([cells[name] != "" for name in states], axis=0)
        self._refuse(~known & stateful, "has a state without a time")
        window = self.params.window
        if window is None:
            caveats.append(
                "no window was given (option window): each device is observed until its last row"
            )
        tables, intervals = observed_changes(
            self.ids,
            self.device[known],
            np.rint(time[known]).astype(np.int64),
            {key: pd.Index(words[key]).get_indexer(cells[key][known]) for key in rule.keys},
            rule,
            {key: words[key].index(initial[key]) for key in rule.keys if key in initial},
            None if window is None else round(window * 1e6),
            counts,
            **texts,
        )
        valid = int(np.count_nonzero(tables["devices"].column("valid")))
        if not valid:
            raise UserError(
                "shows no device for any length of time",
                where=self.where,
                hint="give the length of the observation with -s window=..., such as 7d, and the states at time 0 with "
                "-s initial.STATE=...",
            )
        counts["never_available"] = valid - len(np.unique(intervals.device))
        note_polling(intervals, counts, caveats)
        return int(np.max(tables["devices"].column("window_end_us"))), tables, rule.text

    def _rule(self, words: Mapping[str, tuple[str, ...]]) -> Rule:
        """The rule over the states with these values."""
        text = self.params.online
        if text is None:
            [name, *others] = words
            if others or not set(words[name]) <= ON | OFF:
                raise UserError(
                    "no rule says in which states a device is available "
                    f"({'; '.join(f'{key}: {format_names(each, 12)}' for key, each in words.items())})",
                    where=self.where,
                    hint=f"give it, such as -s online='{name} == {words[name][-1]}'",
                )
            text = name
        return Rule.parse(text, words, "online")

    def _single(self, name: str, values: pd.Series[Any]) -> pd.Series[Any]:
        """The known value of each device, which must be unique; NaN if there is none."""
        single = values.groupby(self.device).first().reindex(range(len(self.ids)))
        of_device = single.iloc[self.device].reset_index(drop=True)
        differs = (values.notna() & (values != of_device)).to_numpy()
        self._refuse(differs, f"gives a different {name} for its device than an earlier row")
        return single


def _units(option: str) -> tuple[str, ...]:
    """The valid values of an option that gives a unit."""
    words, _ = get_args(Table.Params.model_fields[option].annotation)
    return get_args(words)


def _columns(source: SourceFile) -> tuple[dict[str, list[str]], list[int]]:
    """The columns of a file by their names in lower case, and the line of each row."""
    columns, lines = source.table()
    is_log = "time" in map(str.lower, columns)
    unknown = [] if is_log else [name for name in columns if name.lower() not in COLUMNS]
    if unknown:
        known = f"{nearest(unknown[0], COLUMNS)}known columns: {', '.join(COLUMNS)}"
        message = f"has the unknown column '{unknown[0]}'"
        raise source.error(message, hint_of_header(unknown, known), line=1)
    columns = {_key(name): cells for name, cells in columns.items()}
    if is_log and {"key", "state"} <= set(columns):
        keys, states = [_key(key) for key in columns.pop("key")], columns.pop("state")
        changes = list(zip(keys, states, strict=True))
        columns = {
            name: [state if key == name else "" for key, state in changes]
            for name in dict.fromkeys(keys)
        } | columns
    if is_log and set(columns) <= set(COLUMNS):
        raise source.error("has no column of states", "name it, for example, state", line=1)
    if "device" not in columns or len(columns) < 2 or ("start" in columns) != ("end" in columns):
        raise source.error(
            f"has the columns {', '.join(columns)}",
            "it needs device, and start with end, time with states, or compute or network columns",
            line=1,
        )
    if not lines:
        raise source.error("has no rows")
    return columns, lines


def _key(name: str) -> str:
    """A column's name as a rule can contain it."""
    return re.sub(r"\W+", "_", name.lower())


class _Clock:
    """Conversion of a table's times to microseconds, and the meaning of time 0.

    Attributes:
        epoch: ISO 8601 timestamp of time 0; None if times are relative.
        weekday: its day of the week, if the files contain timestamps.
        kind: meaning of time 0.
    """

    def __init__(self, params: Table.Params) -> None:
        self.params = params
        self.zone = _zone(params.time_zone)
        self.epoch = params.epoch
        self.weekday: int | None = None
        self.kind = params.clock or "device-relative"

    @property
    def origin(self) -> str:
        """Time 0 in words."""
        return "time 0" if self.epoch is None else f"time 0 ({self.epoch})"

    def needs_unit(self, table: _Rows) -> bool:
        """Whether the times of a table are numbers."""
        if not table.times:
            return False
        cells = table.cells[table.times[0]]
        return not cells[cells != ""].head(1).str.contains(_DATE).any()

    def read(self, table: _Rows) -> list[Floats]:
        """Starts and ends, or times (us from time 0), NaN if empty. Shape (rows,) each."""
        unit = self.params.time_unit
        if unit is None:
            times = [self._timestamps_us(table, name) for name in table.times]
        elif unit.startswith("unix_"):
            times = _times_us(table, unit.removeprefix("unix_"), _UNIX_S)
        else:
            return _times_us(table, unit, TIME_S)
        epoch = self._epoch(_UNIX_EPOCH + timedelta(microseconds=np.nanmin(times[0])))
        self.epoch, self.weekday = epoch.isoformat(), epoch.weekday()
        self.kind = self.params.clock or ("local" if self.zone else "utc")
        epoch_us = (epoch - _UNIX_EPOCH) // timedelta(microseconds=1)
        return [column - epoch_us for column in times]

    def _timestamps_us(self, table: _Rows, name: str) -> Floats:
        """Timestamps of a column (us since 1970), NaN if empty."""
        cells = table.cells[name]
        filled = cells != ""
        moments = pd.to_datetime(
            cells.where(cells.str.contains(_DATE)), format="ISO8601", utc=True, errors="coerce"
        )
        local = moments.notna() & ~cells.str.contains(_OFFSET)
        if self.zone is not None:
            # A local time that clocks show twice is the first of the two; one that they skip is none.
            naive = moments[local].dt.tz_localize(None)
            first = np.ones(len(naive), np.bool_)
            zoned = naive.dt.tz_localize(self.zone, ambiguous=first, nonexistent="NaT")
            moments[local] = zoned.dt.tz_convert(UTC)
        bad = (filled & (moments.isna() | (local & (self.zone is None)))).to_numpy()
        if bad.any():
            row = int(bad.argmax())
            raise UserError(
                f"{name} is '{cells[row]}', which is not an ISO 8601 timestamp with an offset from UTC, or a local "
                "time that the clocks skip",
                where=table.location(row),
                hint="write 2024-05-01T08:00:00+02:00 in all rows, or give -s time_zone=Europe/Berlin",
            )
        us = moments.dt.as_unit("us").dt.tz_localize(None).astype(np.int64)
        return np.where(filled, us, np.nan)

    def _epoch(self, first: datetime) -> datetime:
        """Time 0, with a fixed offset from UTC, which no change of the clocks alters."""
        zone = self.zone or UTC
        if self.params.epoch is None:
            day = first.astimezone(zone).date()
            epoch = datetime.combine(day, datetime.min.time(), zone)
        else:
            try:
                epoch = datetime.fromisoformat(self.params.epoch)
            except ValueError as error:
                raise UserError(
                    f"epoch is '{self.params.epoch}', which is not an ISO 8601 timestamp",
                    hint="write -s epoch=2024-05-01T00:00:00+02:00",
                ) from error
            epoch = epoch if epoch.tzinfo else epoch.replace(tzinfo=zone)
        return epoch.astimezone(timezone(epoch.utcoffset() or timedelta(0)))


def _times_us(table: _Rows, unit: str, bounds_s: Bounds) -> list[Floats]:
    """The table's times (us) from numbers, NaN if empty. Shape (rows,) each."""
    unit_s = DURATION_UNITS[unit]
    bounds = Bounds(bounds_s.low / unit_s, bounds_s.high / unit_s, words=bounds_s.words)
    numbers = (
        Number(name, unit, bounds, missing=("",)).read(table.cells[name].tolist(), table.location)
        for name in table.times
    )
    return [column * (unit_s * 1e6) for column in numbers]


def _zone(name: str | None) -> tzinfo | None:
    """The time zone of this name."""
    if name is None:
        return None
    try:
        if name[:1] in "+-":
            return datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo
        return ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        raise UserError(
            f"time_zone is '{name}', which is not a time zone",
            hint="give UTC, an IANA name such as Europe/Berlin, or an offset such as +02:00",
        ) from error


def _compute(table: _Rows, phase: str) -> Any:
    table.require_one_of(*SPEEDS)
    values = {column: table.number(name) for name, column in SPEEDS.items() if name in table}
    rows = np.flatnonzero(np.any(~np.isnan(list(values.values())), axis=0))
    if "ram_bytes" in table:
        values["ram_bytes"] = np.rint(table.number("ram_bytes"))
    # If only one of the two times of a step is known, the other is 0.
    for name, other in (("step_fixed_s", "sample_s"), ("sample_s", "step_fixed_s")):
        if other in values:
            times = values.setdefault(name, np.full(len(table.ids), np.nan))
            times[np.isnan(times) & ~np.isnan(values[other])] = 0.0
    chosen = {name: column[rows] for name, column in values.items()}
    return per_device(table.ids, "compute", rows, task="*", phase=phase, **chosen)


def _network(table: _Rows) -> Any:
    table.require_one_of("down", "up", "bandwidth")
    if "bandwidth" in table and ("down" in table or "up" in table):
        raise UserError(
            "has both bandwidth and down or up",
            where=table.where,
            hint="bandwidth applies to both directions; give either bandwidth, or down and up",
        )
    directions = {"both": "bandwidth", "down": "down", "up": "up"}
    names = [name for name, column in directions.items() if column in table]
    rates = np.column_stack([table.number(directions[name]) for name in names])
    device, which = np.nonzero(~np.isnan(rates))
    columns: dict[str, Any] = {
        "direction": id_column(which, names),
        "bandwidth_bps": rates[device, which],
    }
    if "rtt" in table:
        columns["rtt_s"] = table.number("rtt")[device]
    if "loss" in table:
        columns["loss"] = table.number("loss")[device].astype(np.float32)
    if "radio" in table:
        columns["radio"] = pa.array(table.text("radio"), pa.string()).take(pa.array(device))
    return per_device(table.ids, "network", device, **columns)
