"""Tables: one row per interval, per change of state or per measurement, with units declared in the options."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cached_property, reduce
from typing import Any, Literal, TypeGuard

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from fedsim.errors import nearest_or_all, raise_all
from fedsim.files import cells
from fedsim.files.cells import FAR_US, NAT, Bounds, RateUnit, SpanUnit, StepUnit
from fedsim.files.frames import COLUMN, FILE, Frame, LongFile, TableFile, role_name
from fedsim.files.sources import Sources
from fedsim.traces.bundle import Eligibility
from fedsim.traces.eligibility import OFF, ON, Rule, held
from fedsim.traces.importers import Imported, Importer
from fedsim.traces.importers._assemble import note_outside, observed_tables, require_units
from fedsim.traces.importers._columns import (
    COLUMNS,
    MANY,
    NUMBERS,
    STATE,
    SWITCH,
    TEXTS,
    columns_option,
    may_be_points,
    missing_columns,
)
from fedsim.traces.importers._times import OPEN_AFTER_US, OPEN_BEFORE_US, Calendar, TimeParams
from fedsim.traces.intervals import Intervals, join_touching, normalize
from fedsim.traces.parameters import OnEnd
from fedsim.traces.tables import DIRECTIONS, id_column, order_of, run_starts
from fedsim.units import DAY_US, DURATION_UNITS, LONGEST_S, Duration
from fedsim.vocabulary.arrays import Bools, Ints
from fedsim.vocabulary.formatting import format_counted, format_duration, format_names

_LASTS = Bounds(0, LONGEST_S, words="from 0 to a hundred years")
_PER_SECOND = "1/s"
UNITS: Mapping[str, Mapping[str, float]] = {
    "time_unit": cells.TIME_UNITS,
    "duration_unit": DURATION_UNITS,
    "compute_unit": {**DURATION_UNITS, _PER_SECOND: 1.0},
    "rate_unit": cells.RATES,
    "latency_unit": DURATION_UNITS,
    "loss_unit": {"share": 1.0, "percent": 0.01},
}
_LITTLE = 0.01
_SAMPLE = 200_000
"""Rows of the devices that are looked at for it."""
_UNEXPLAINED = 0.1
"""Share of the variance of measurements that remains within kinds if these are several measurements."""
_SEVERAL = 0.1
"""Share of rows, in pairs, from which on sessions are doubted that follow each other."""
ANY = "any"
"""The rule that every row fulfils."""
_PAUSE_US, _TILES = 10**6, 1.25
"""Pause up to which sessions follow each other, and how many of all do so if they fill the time."""
_FEW = 12
"""Values of a column, and columns, that messages show."""
_MOST_KEYS = 1000
"""Keys all of which may be states if no rule names some."""
_LAST_COUNTS = "a row replaces the state that the device had anywhere"
_NEGATIVE = re.compile(
    r"down.*|off(line)?|f|false|no|0|disconnected|un(available|reachable)|inactive|not[_-].*|afk|away|problem|resolved"
)
_OUTAGE = re.compile(
    r"(?:^|_)(outage|incident|downtime|down|maintenance|offline|unavailable|resolved|failure|fault|recover(?:y|ed)|"
    r"alarm|problem)s?(?:_|$)"
)


class Table(Importer):
    """Tables in CSV, Parquet, Feather, Arrow, JSON lines or Excel files; several files are joined by ``device``.

    Columns: ``device``; two of ``start``, ``end`` and ``duration`` (available in ``[start, end)``); ``sample_time``,
    ``step_time`` (a step takes step_time + sample_time x batch), ``relative_speed``, ``score``, ``ram_bytes``; ``down``
    and ``up`` or ``bandwidth`` (both directions), ``rtt``, ``loss``, ``radio``; ``model``, ``kind``, ``group``. An
    empty cell is unknown; an end that is empty, infinite, of 1970 or after 2098 is open. Of several measurements of a
    device, the median counts, and their spread is kept. Times are numbers of ``time_unit``, or timestamps.

    Instead of ``start`` and ``end``, a log of changes has ``time`` and a column per state, of any name (``state``,
    ``charging``, ``Screen On``, which rules call ``screen_on``); a cell is the state from that time on, an empty one
    leaves it as it was. In a log with one change per row, ``key`` names the state and ``state`` gives its value. The
    option ``online`` says in which states a device is available. Heartbeats and polls have these columns, too; ``hold``
    says how long a state is believed. If several access points (cells, gateways) report on a device, ``access_point``
    names that of each row: each has its own states, and the device is available while the rule holds at one of them.
    All devices share the window from the log's first row to its last one; a device is observed once its states decide
    the rule.
    """

    name = "table"
    description = (
        "tables (CSV, Parquet, Excel): device,start,end or device,time,state; compute, network"
    )
    version = "2"
    signature = r"(?i)^[^\n]*\n([^\n]*,)? *device *(,[^\n]*)?\n"

    class Params(TimeParams):
        """Options of the table importer. The unit of a column must be given; none is assumed."""

        columns: dict[str, str] = {}
        """The file's names of columns: ``-s columns='{device: host, time: timestamp, state: status}'``. ``file`` is the
        name of each file without its ending: ``{device: file}`` if each is one device, ``{access_point: file}`` if each
        is that of an access point. ``{device: column}``: each column beside ``time`` is a device, its cells are its
        states."""
        duration_unit: SpanUnit | None = None
        """Unit of ``duration``."""
        compute_unit: StepUnit | None = None
        """Unit of ``sample_time`` and ``step_time``; 1/s if the cells are samples or steps per second."""
        rate_unit: RateUnit = None
        """Unit of ``down``, ``up`` and ``bandwidth``, such as Mbit/s or MB/s: b is a bit, B is a byte."""
        latency_unit: SpanUnit | None = None
        """Unit of ``rtt``."""
        loss_unit: Literal["share", "percent"] = "share"
        """Unit of ``loss``: share or percent."""
        phase: Literal["inference", "training"] = "training"
        """Whether the times are those of inference or of training."""
        online: str | None = None
        """Rule for when a device is available, over the states of a log of changes, or for which intervals count, as in
        ``state == on and charging`` or ``network in (wifi, lan) and battery >= 20``; only rows in which it holds count
        as measurements. A bare name means on, true, t, yes or 1. ``any``: in each row. By default the only column of a
        log of changes, if it is called state, status, online or the like, and has these words or their opposites; any
        row otherwise."""
        intervals: Literal["online", "offline"] | None = None
        """Whether devices are online in the intervals of a table, as by default, or offline, as in outages: then they
        are available in the rest of the window."""
        hold: Duration | None = Field(None, gt=0)
        """Longest time for which a state is believed after a device's last row, such as 5min for heartbeats every
        minute; by default until the next row."""
        initial: dict[str, str] = {}
        """States of all devices at time 0, such as ``-s initial.charging=off``; by default unknown."""
        window: Duration | None = None
        """Length of the observation from time 0; by default up to the last end or row in the files."""
        on_end: OnEnd = "wrap"
        """Behavior of a device at times that were not observed."""
        epoch: datetime | None = None
        """ISO 8601 timestamp of time 0. By default the first time in the files, or if the zone is known (``time_zone``,
        or the same offset in all cells), the local midnight before it."""
        clock: Literal["local", "utc", "device-relative"] | None = None
        """Meaning of time 0. By default device-relative; with timestamps local if the zone is known, else utc."""

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
        files: list[TableFile | LongFile] = [TableFile(source) for source in sources]
        if params.columns.get("device") == COLUMN:
            shared = {*COLUMNS, *map(role_name, params.columns.values())}
            files = [LongFile(file, shared) for file in files if isinstance(file, TableFile)]
        log = _Log(Frame(files, params.columns), params)
        # Rows of the same device that an export under two names has twice.
        known: dict[str, str] = {}
        for file, rows in zip(files, np.diff(log.frame.starts), strict=True):
            if rows and len(files) > 1 and params.columns.get("device") != FILE:
                first = known.setdefault(file.source.sha256(), file.source.where)
                if first != file.source.where:
                    message = f"has the same content as {first}"
                    raise file.source.error(message, "give one of them; its rows would count twice")
        columns = {name: log.single(name) for name in TEXTS if name in log.frame}
        tables: dict[str, Any] = {"devices": {"device_id": log.ids, **columns}}
        eligibility: Eligibility | None = None
        horizon_us = round(params.window * 1e6) if params.window else DAY_US
        if log.edges:
            read = log.changes if log.has_changes else log.intervals
            horizon_us, tables, rule = read(columns)
            eligibility = Eligibility(words=rule or "available", expression=rule)
        present = {column.table for name, column in NUMBERS.items() if name in log.frame}
        if "compute" in present:
            tables |= log.compute()
        if "network" in present or "radio" in log.frame:
            tables |= log.network()
        times = log.times
        return Imported(
            tables,
            log.counts,
            [*log.caveats, *times.caveats, *log.frame.doubted.values()],
            eligibility=eligibility,
            horizon_us=horizon_us,
            on_end=params.on_end,
            epoch=None if times.epoch is None else times.epoch.isoformat(),
            clock=times.clock,
            zone=times.zone_name,
        )


_Available = tuple[int, dict[str, Any], str | None]
"""Time covered (us), the tables of devices and availability, and the rule, if there is one."""


class _Log:
    """The rows of all files, and what they say about devices."""

    def __init__(self, frame: Frame, params: Table.Params) -> None:
        self.any = params.online == ANY and ANY not in frame
        if self.any:
            params = params.model_copy(update={"online": None})
        self.frame, self.params, self.times = frame, params, Calendar(params)
        for name in {*NUMBERS, *TEXTS} & {*frame.names} - {*params.columns}:
            # Programs call columns of their own so, such as the _score of a search.
            if all(each.startswith("_") for each in frame.called(name)):
                frame.names.remove(name)
        self.counts: dict[str, int] = {}
        self.caveats: list[str] = []
        self.has_changes = "time" in frame
        self.edges = [name for name in ("start", "end", "time") if name in frame]
        if {"start", "end"}.isdisjoint(params.columns) and "time" in params.columns:
            self.edges = ["time"]
        self.unused: list[str] = []
        self.states = self._understand()
        kinds = [" ".join(sorted(map(role_name, file.names))) for file in frame.files]
        # The column of access points, or one that may be it; empty if there is none.
        self.point = "access_point" if "access_point" in frame else ""
        if self.has_changes and not self.point and "place" not in frame:
            # Files with the same columns may be those of access points, too.
            is_file = len(kinds) > 1 == len(set(kinds)) and FILE not in params.columns.values()
            self.point = next(iter(may_be_points(frame.names)), FILE * is_file)
        # States of sessions, some of which may be those of a device that is offline.
        doubtful = [
            each for each in self.unused if re.fullmatch("(.*_)?(state|status|event)", each)
        ]
        texts = {"device", *TEXTS, "radio", *self.states, *doubtful, self.point}
        frame.require_values({*NUMBERS, "start", "end", "duration"})
        frame.load(set(COLUMNS) & set(frame.names) | texts, texts)
        own_names = [
            *(name for edge in (*self.edges, "duration") for name in frame.called(edge)),
            *frame.stems,
        ]
        down = next((name for name in own_names if _OUTAGE.search(role_name(name))), None)
        if down and not self.has_changes and params.intervals is None:
            raise frame.error(
                f"'{down}' is no name of times at which devices are available",
                "if they are offline in these intervals, give -s intervals=offline; if online, -s intervals=online",
            )
        # The rows whose sessions and whose measurements count, if a rule says so.
        self.rule: Rule | None = None
        self.chosen = self.measuring = np.ones(len(frame), np.bool_)
        file = np.repeat(np.arange(len(kinds)), np.diff(frame.starts))
        if params.online is not None and not self.has_changes:
            states = self._states()
            self.rule = Rule(
                params.online, {key: (*each[1],) for key, each in states.items()}, "online"
            )
            codes = {name: states[name][0] for name in self.rule.keys}
            self.chosen = self.rule.holds(codes) == 1
            self.counts["rows_without_the_rule"] = int(np.count_nonzero(~self.chosen))
            unknown = ~self.chosen & np.all([code < 0 for code in codes.values()], axis=0)
            if unknown.any():
                cells_ = f"{format_counted(int(unknown.sum()), 'row')} without {' or '.join(codes)}"
                self.caveats.append(f"no comparison holds for an empty cell: {cells_} left out")
            # Measurements in a file without these states are not subject to the rule.
            known = np.any([code >= 0 for code in codes.values()], axis=0)
            self.measuring = self.chosen | (np.bincount(file, known) == 0)[file]
        self.device, self.ids = self._devices()
        if self.edges and len(self.ids) == len(frame) >= MANY:
            self.caveats.append(
                "each row is another device: is the column of the device the right one?"
            )
        if len(self.ids) == 1 < len(kinds) and FILE not in params.columns.values():
            self.caveats.append(
                f"all files are of the device '{self.ids[0]}'; if each is one, give {self._mapping('device', FILE)}"
            )
        self._require_units()
        decided = params.online or params.intervals or self.any or not self.edges
        for name in () if decided else doubtful:
            own = frame.text(name, lower=True)[1]
            if any(map(_NEGATIVE.fullmatch, own)):
                raise frame.error(
                    f"no rule says which intervals count ({name}: {format_names(own, _FEW)})",
                    f"give it, -s online='{name} == VALUE'; if all count, -s online=any; if devices are offline in "
                    "the intervals, -s intervals=offline",
                )
        # Devices that some files have, and files with other columns do not.
        kind, words = pd.factorize(np.array(kinds))
        if len(words) > 1:
            pairs = pd.DataFrame({"device": self.device, "kind": kind[file]}).drop_duplicates()
            if len(alone := np.flatnonzero(np.bincount(pairs["device"]) < len(words))):
                devices = format_counted(len(alone), "device")
                first = self.ids[alone[0]]
                self.caveats.append(f"{devices} not in all files, the first is '{first}'")

    def _devices(self) -> tuple[Ints, list[str]]:
        """The device of each row, and the names; of a row that does not count and names none, it is the first."""
        frame = self.frame
        device, ids = frame.ids("device")
        frame.chosen = self.measuring
        # Names such as *, ?, NA or #REF!, under which several devices would be one.
        nobody = re.compile(r"(?i)\W*|unknown|none|#?n/?a|#[A-Z/0]+[!?]")
        named = [nobody.fullmatch(name) is None for name in ids]
        self.named = np.array([*named, False])[device]
        other = "name it in each row, or take another column: " + columns_option({"device": "..."})
        frame.refuse(~self.named, "has no device (it is {})", other, "device")
        lists = np.array([bool(re.search(r"\[\d+[,-][\d,-]*\]", name)) for name in ids])
        expand = "write one row per device; for lists of Slurm's nodes, use scontrol show hostnames"
        frame.refuse(lists[device], "device is {}, several devices", expand, "device")
        frame.chosen = self.chosen
        if not any(named):
            raise frame.error("has no device", other)
        if not self.named.all():
            position = np.cumsum([*named, False]) - 1
            device = np.where(self.named, position[device], 0).astype(device.dtype)
            ids = [name for name, is_name in zip(ids, named, strict=True) if is_name]
        return device, ids

    def _understand(self) -> list[str]:
        """Refuse tables without the columns that they need, with the mapping that would give them; the states."""
        frame, params, rows = self.frame, self.params, self.has_changes
        if len(self.edges) > 1 and rows:
            message = "has both intervals (start, end) and changes of states (time)"
            given = {role: name for role, name in params.columns.items() if role not in self.edges}
            changes, intervals = (
                columns_option({**given, role: "time"}) for role in ("time", "other")
            )
            hint = f"give {changes} for the changes, or {intervals} for the intervals"
            raise frame.error(message, hint)
        named = {*map(role_name, re.findall(r"\w+", params.online or "")), *params.initial}
        self.in_rule = named
        fields = {role_name(field) for file in frame.files for field in file.fields} - named
        left_out = {name for name in params.columns if name.startswith("other")} - named
        no_states = fields.union(COLUMNS, left_out)
        others = [name for name in frame.names if name not in no_states]
        if params.online is None and not any(map(STATE.fullmatch, others)):
            others += [name for name in frame.names if name in fields and STATE.fullmatch(name)]
        ends = {"start", "end", "duration"} & set(frame.names)
        known = {*self.edges, *NUMBERS, *TEXTS} & set(frame.names)
        if "device" not in frame or not known or (len(ends) == 1 and "time" not in params.columns):
            frame.require_header()
            raise frame.error(*missing_columns(frame, params.columns))
        if not rows and (params.hold or params.initial):
            hint = "leave them out; online alone says which sessions and measurements count"
            raise frame.error("hold and initial need a log of changes, with a column time", hint)
        if rows and params.intervals is not None:
            hint = "leave it out; online says in which states a device is available"
            raise frame.error("intervals needs a table with start and end", hint)
        if self.any and rows:
            others = []
        if not others and params.hold is None and (rows or params.online is not None):
            hint = "name it, for example, state; or, if each row shows its device online, give -s hold=5min"
            hint += (
                f"; fields of objects are {format_names(sorted(fields), _FEW)}" if fields else ""
            )
            raise frame.error("has no column of states", hint)
        states = [name for name in others if name in named]
        if params.online is not None and {"key", "state"} <= set(others):
            states = others
        states = (states or others) if params.online is not None else others if rows else []
        used = {"device", *self.edges, *NUMBERS, *TEXTS, "radio", *states, *left_out}
        used |= {"access_point", "place"} if rows else {"duration"}
        idle = [name for name in frame.names if name not in used]
        if not rows:
            no_roles = fields.union(others)
            self.unused = [name for name in idle if name in no_roles]
        # What has a role, by its name or by the mapping, is used, or said not to be.
        roles = {*COLUMNS, "key", *params.columns, *self.unused}
        if unused := [name for name in idle if name in roles or STATE.fullmatch(name)]:
            shown = ", ".join(unused[: 2 * _FEW]) + " ..." * (len(unused) > 2 * _FEW)
            self.caveats.append(f"columns that are not used: {shown}")
        return states

    def _mapping(self, role: str, name: str) -> str:
        """The option that gives a column another role."""
        given = dict(self.params.columns)
        own = given.pop(name, name)
        # Several columns may be left out.
        role += f"_{name}" * (role == "other" in given)
        return columns_option({**given, role: own})

    @property
    def _without_duration(self) -> str:
        """A way out for tables whose duration is not needed, as a part of a hint."""
        needless = {"start", "end"} <= set(self.frame.names)
        return f"; or leave it out: {self._mapping('other', 'duration')}" * needless

    def _require_units(self) -> None:
        """Refuse columns whose units are not declared, all together."""
        frame, columns = self.frame, dict[str, list[str]]()
        if self.params.time_format is None:
            columns["time_unit"] = [n for n in self.edges if frame.are_plain_numbers(n)]
        if "duration" in frame and not self.has_changes and frame.are_plain_numbers("duration"):
            columns["duration_unit"] = ["duration"]
        for name, column in NUMBERS.items():
            if name in frame and column.option is not None:
                columns.setdefault(column.option, []).append(name)
        examples = {option: ", ".join(units) for option, units in UNITS.items()}
        examples |= {"rate_unit": cells.RATE_EXAMPLES}
        examples["duration_unit"] += self._without_duration
        if self.has_changes and columns.get("rate_unit") == ["up"]:
            examples["rate_unit"] += f"; if up is a state, give {self._mapping('state', 'up')}"
        if names := columns.get("time_unit"):
            some = cells.numbers(frame.columns(names[0])[0])[0]
            fit = cells.recent_unit(some)
            if fit is None and cells.are_days(some):
                fit = "excel"
            examples["time_unit"] += f"; they fit {fit}" * (fit is not None)
        require_units(frame, self.params, columns, examples)

    # Availability ---------------------------------------------------------------------------------------------------

    def intervals(self, devices: dict[str, Any]) -> _Available:
        """Availability from sessions; ``devices`` are other columns of that table."""
        frame, params, times = self.frame, self.params, self.times
        span_us: Ints | None = None
        factor = DURATION_UNITS[params.duration_unit or "s"]
        if "duration" in frame:
            said = f"{params.duration_unit or 'a unit'}, or as 1-02:00:00 or 01:30:00"
            length = frame.number(
                "duration", factor, _LASTS, said, self._without_duration, "duration"
            )
            span_us = np.where(np.isnan(length), NAT, length * 1e6).astype(np.int64)
        start, end = times.read(frame, self.edges, self.device, span_us)
        if self.edges == ["end"]:
            frame.refuse((start == NAT) & (end != NAT), "has an end without a duration")
        open_ = (end == NAT) | (end >= FAR_US)
        if times.dated:
            low_us, high_us = OPEN_BEFORE_US - times.epoch_us, OPEN_AFTER_US - times.epoch_us
            open_ |= (end < low_us) | (end > high_us)
        device, empty, rows = self.device, start == NAT, np.arange(len(start))
        if len(self.edges) == 2 and span_us is not None:
            # Each of the three may be rounded.
            off = np.abs(end - start - span_us) > max(factor, 60.0) * 1e6
            known = (span_us != NAT) & ~(open_ | empty | (end < start))
            hint = "correct it; where clocks are set back, write the offset (2024-10-27T02:30:00+01:00)"
            hint += self._without_duration
            frame.refuse(known & off, "its duration is not the time from start to end", hint)
        if empty.any():
            frame.refuse(empty & (end != NAT), "has an end without a start")
            start, end, device, open_, rows = (
                each[~empty] for each in (start, end, device, open_, rows)
            )
        if params.window is not None:
            horizon_us, begins_us = round(params.window * 1e6), 0
        else:
            closed = end[~open_] if open_.any() else end
            horizon_us = int(max(closed.max(initial=0), start.max(initial=0)))
            begins_us = int(start.min(initial=horizon_us)) if times.dated else 0
            self.caveats.append(
                "no window was given (option window): it is assumed to end with the last interval"
            )
        if horizon_us <= 0:
            raise frame.error(
                "has no interval after time 0 and no window",
                "give the length of the observation with -s window=..., such as 7d",
            )
        if self.rule is not None:
            chosen = self.chosen[rows]
            device, start, end, open_, rows = (
                each[chosen] for each in (device, start, end, open_, rows)
            )
        if opened := int(np.count_nonzero(open_)):
            self.counts["open_sessions"] = opened
            last = pd.Series(start).groupby(device).transform("max").to_numpy()
            later = int(np.count_nonzero(open_ & (start < last)))
            also = f"; {later} of them although their device has a later one"
            self.caveats.append(
                f"{format_counted(opened, 'session')} without an end (empty, infinite, 1970 or "
                f"after 2098): open until the end of the window{also * (later > 0)}"
            )
            end = np.where(open_, horizon_us, end)
        window = begins_us, horizon_us
        if params.intervals is None:
            rule = f" where {self.rule.text}" if self.rule else ""
            self.caveats.append(
                f"devices are online in the intervals{rule}; of outages, give -s intervals=offline"
            )
        if params.intervals == "offline":
            backwards = int(np.count_nonzero(end < start))
            device, start, end = _rest(device, start, end, len(self.ids), window)
            self.caveats.append(
                "the intervals are those offline: devices are available in the rest of the window"
            )
        tables, spans = observed_tables(
            self.ids, device, start, end, window, self.counts, **devices
        )
        if params.intervals == "offline":
            self.counts["reversed"] = backwards
        origin = "time 0" if times.epoch is None else f"time 0 ({times.epoch.isoformat()})"
        note_outside(spans, self.counts, horizon_us, self.caveats, frame.where, origin)
        if self.unused and params.intervals != "offline":
            self._note_overlaps(device, start, end, rows)
        self.counts["never_available"] = len(self.ids) - len(np.unique(spans.device))
        share = float(np.sum(spans.end - spans.start)) / (
            len(self.ids) * max(horizon_us - begins_us, 1)
        )
        if params.window is None and share < _LITTLE:
            self.caveats.append(
                f"online for {share:.2%} of the window: are these the times at which devices are available?"
            )
        return horizon_us, tables, None if self.rule is None else self.rule.text

    def _note_overlaps(self, device: Ints, start: Ints, end: Ints, rows: Ints) -> None:
        """Add a caveat if sessions that overlap, or of which each begins when the one before ends, differ in a column
        that is not used, but may choose among them.
        """
        order = order_of(device, start)
        first, second = order[:-1], order[1:]
        same = device[first] == device[second]
        over = np.flatnonzero(same & (start[second] < end[first]))
        if not len(over):
            over = np.flatnonzero(same & (start[second] - end[first] <= _PAUSE_US))
            if not len(over) or _TILES * len(over) < np.count_nonzero(same):
                return
        again = self._with_unused
        # Sessions of several access points are joined.
        for name in (each for each in self.unused if not may_be_points([each])):
            if len(again) == len(self.frame) and not again.are_plain_numbers(name):
                code, words = again.text(name)
                differs = code[rows[first[over]]] != code[rows[second[over]]]
                if 2 * len(words) <= len(code) and 2 * np.count_nonzero(differs) >= len(over):
                    shown = f"sessions that overlap or touch differ in the column {name}, {format_names(words, 8)}"
                    mapping = self._mapping("device", name)
                    rule = f"-s online='{name} == VALUE'"
                    self.caveats.append(
                        f"{shown}: if it names the device, give {mapping}; if some count, {rule}"
                    )

    @cached_property
    def _with_unused(self) -> Frame:
        """The files with the columns that are not used."""
        return self._again(self.unused)

    def _again(self, names: Collection[str]) -> Frame:
        """The files with these columns, and those that are used, so that the same rows have a value."""
        again = Frame([TableFile(file.source) for file in self.frame.files], self.params.columns)
        return again.load(set(COLUMNS) & set(again.names) | {*names}, names)

    def changes(self, devices: dict[str, Any]) -> _Available:
        """Availability from changes of states; ``devices`` are other columns of that table."""
        frame, initial = self.frame, self.params.initial
        codes = self._states()
        raise_all(
            frame.error(
                f"initial names the state '{name}', which the log does not have",
                nearest_or_all(name, codes, f"its states: {', '.join(codes)}"),
            )
            for name in initial
            if name not in codes
        )
        for name, word in initial.items():
            if word not in codes[name][1]:
                codes[name][1].append(word)
        codes = {name: code for name, code in codes.items() if code[1]}
        (time,) = self.times.read(frame, ["time"], self.device)
        known = time != NAT
        if not codes or not known.any():
            raise frame.error("has no row with a time and a state")
        rule = self._rule(codes)
        taken = f"where {self._took(rule, codes)}" if self.states else "after each row"
        self.caveats.append(f"devices are online {taken}")
        stateful = reduce(np.logical_or, (code >= 0 for code, _ in codes.values()))
        frame.refuse(~known & stateful, "has a state without a time")
        if self.params.window is None:
            later = f", and {format_duration(self.params.hold)} (hold)" if self.params.hold else ""
            self.caveats.append(
                f"no window was given (option window): it ends with the log's last row{later}"
            )
        rows: Any = slice(None) if known.all() else np.flatnonzero(known)
        if np.count_nonzero(time[1:] < time[:-1]) > 10 * np.count_nonzero(time[1:] > time[:-1]):
            # The newest row comes first: of rows at the same time, too.
            rows = np.flatnonzero(known)[::-1]
        after = {key: codes[key][0][rows] for key in rule.keys}
        before = {key: codes[key][1].index(initial[key]) for key in rule.keys if key in initial}
        owner, source = np.arange(len(self.ids)), self.device
        if self.point and self.point not in rule.keys:
            by_point = self._by_point(stateful)
            if self.point == "access_point":
                owner, source = by_point
            else:
                self._require_choice(by_point[0], after, rule, time[rows], rows)
        self._require_turns({key: codes[key][0] for key in rule.keys}, time, rule)
        tables, spans, offline = self._observed(
            owner, source[rows], time[rows], after, rule, before, devices
        )
        if any(name in frame for name in NUMBERS):
            self.measuring[rows] = ~offline
            self.counts["measurements_while_offline"] = int(np.count_nonzero(offline))
        valid = int(np.count_nonzero(tables["devices"]["valid"]))
        if not valid:
            raise frame.error(
                "shows no device for any length of time",
                "give the length of the observation with -s window=..., such as 7d, and the states at time 0 with "
                "-s initial.STATE=...",
            )
        self.counts["never_available"] = valid - len(np.unique(spans.device))
        return int(np.max(tables["devices"]["window_end_us"])), tables, rule.text

    def _observed(
        self,
        owner: Ints,
        source: Ints,
        time_us: Ints,
        codes: dict[str, Ints],
        rule: Rule,
        initial: Mapping[str, int],
        columns: dict[str, Any],
    ) -> tuple[dict[str, Any], Intervals, Bools]:
        """Tables ``devices`` and ``availability`` of a log of changes, the intervals, and the rows that show no device.

        A source of reports, such as an access point that a device uses, has its own states; a device is available while
        the rule holds at one of its sources. A state lasts until the source's next row that changes it, but for
        ``hold`` after its last row at most; of rows at the same time, the later one counts. All devices share the log's
        window, from its first row to its last one: a device is observed from the first instant after which the states
        of one of its sources always decide the rule to the end of that window. If it repeats, all repeat together. A
        device is invalid if no time lies between.

        ``owner`` is the device row of each source; ``source``, ``time_us`` and ``codes`` belong to the changes, in the
        order of the log, and a code of -1 changes nothing; keys without an ``initial`` code are unknown at time 0.
        """
        ids, counts = self.ids, self.counts
        window_us, hold_us = (
            None if seconds is None else round(seconds * 1e6)
            for seconds in (self.params.window, self.params.hold)
        )
        back = np.flatnonzero(time_us[1:] < time_us[:-1])
        disorder = int(np.count_nonzero(source[back + 1] == source[back]))
        first_us = 0
        if window_us is None and not initial:
            first_us = max(int(time_us.min(initial=FAR_US if len(time_us) else 0)), 0)
        end_us = int(time_us.max(initial=0)) + (hold_us or 0) if window_us is None else window_us
        offline = np.zeros(len(time_us), np.bool_)
        inside = time_us < end_us + (window_us is None)
        counts["after_window"] = int(np.count_nonzero(~inside))
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
        head, following = _following(source, time_us, end_us)
        # A run of rows that no long silence interrupts; only a source's first one knows its initial states.
        run, is_first = source, np.ones(1, np.bool_)
        if hold_us is not None:
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
        in_order = np.empty(len(order), np.bool_)
        in_order[order] = value < 0
        offline[inside] = in_order[len(order) - np.count_nonzero(inside) :]
        if hold_us is None:
            changes = np.flatnonzero(run_starts(source, value))
            source, time_us, value = source[changes], time_us[changes], value[changes]
            head, following = _following(source, time_us, end_us)

        # A source is observed from its first row on, or from the end of its last undecided piece on.
        since_us = np.full(len(owner), end_us)
        undecided = np.flatnonzero(value == 0)
        since_us[source[head]] = time_us[head]
        since_us[source[undecided]] = following[undecided]
        window = np.full((2, len(ids)), end_us)
        np.minimum.at(window[0], owner, np.maximum(since_us, first_us))
        valid = window[1] > window[0]
        window[:, ~valid] = 0
        counts["not_observed"] = int(np.count_nonzero(~valid))
        period_us = np.where(valid, max(end_us - first_us, 1), 1)
        if (window[1] - window[0] != period_us)[valid].any():
            columns = {**columns, "period_us": period_us}

        on = np.flatnonzero((value == 1) & valid[owner[source]])
        ends = following[on]
        if hold_us is not None:
            ends = np.minimum(ends, time_us[on] + hold_us)
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
        return tables, intervals, offline

    def _by_point(self, stateful: Bools) -> tuple[Ints, Ints]:
        """The device of each pair of a device and an access point, and the pair of each row."""
        point, words = self.frame.text(self.point)
        if self.point == "access_point":
            hint = f"name it; or, if {_LAST_COUNTS}, give {self._mapping('place', self.point)}"
            self.frame.refuse(stateful & (point < 0), "has no access point", hint)
        pairs = self.device.astype(np.int64) * (len(words) + 1) + point + 1
        source, found = pd.factorize(pairs)
        return found // (len(words) + 1), source

    def _require_choice(
        self, owner: Ints, after: Mapping[str, Ints], rule: Rule, time: Ints, rows: Any
    ) -> None:
        """Refuse a log in which a column, or the file, may be that of access points, unless it makes no difference."""
        several, device = np.bincount(owner, minlength=len(self.ids)) > 1, self.device[rows]
        # If every row shows its device online, it makes no difference where.
        if not (several[device] & (rule.holds(after) != 1)).any():
            return
        varies = f"the column {self.point} varies within a device"
        if self.point == FILE:
            # Files of other times continue each other; they may have rows in common.
            log = pd.DataFrame({"device": device, "time": time, **after})
            log["file"] = self.frame.text(FILE)[0][rows]
            log = log[~log.duplicated(["device", "time", *after], keep="last")]
            spans = log.groupby(["device", "file"])["time"].agg(["min", "max"])
            spans = spans.sort_values(["device", "min"])
            latest = spans.groupby("device")["max"].transform(lambda each: each.cummax().shift())
            if not (spans["min"] < latest).any():
                return
            varies = "several files report on a device at the same time"
        raise self.frame.error(
            f"{varies}, and the availability depends on whether each {self.point} has its own states, as the log of "
            "an access point",
            f"if so, give {self._mapping('access_point', self.point)}; if {_LAST_COUNTS}, "
            f"{self._mapping('place', self.point)}",
        )

    def _require_turns(self, codes: Mapping[str, Ints], time: Ints, rule: Rule) -> None:
        """Refuse a log whose devices come, or go, twice in a row, while they take turns in each of their sessions."""
        frame = self.frame
        is_wide = COLUMN in self.params.columns.values()
        if self.params.hold or is_wide or "access_point" in frame or "place" in frame:
            return
        # Some devices show it.
        some = np.cumsum(np.bincount(self.device, minlength=len(self.ids)))[self.device] <= _SAMPLE
        some = (some | (self.device == 0)) & (time != NAT)
        log = pd.DataFrame({"device": self.device, "time": time, "value": rule.holds(codes)})[some]
        log = log[log["value"] != 0].drop_duplicates()
        log = log.sort_values(["device", "time"], kind="stable")

        def repeats(keys: list[str]) -> int:
            same = log.groupby(keys)["value"].shift() == log["value"]
            return int(np.count_nonzero(same))

        # Polls repeat their states.
        count = repeats(["device"])
        if not len(log) >= 2 * count >= _SEVERAL * len(log):
            return
        taken = (*COLUMNS, *rule.keys, self.point)
        others = [name for name in frame.names if name not in taken]
        again = self._again(others)
        for name in others if len(again) == len(frame) else ():
            log["other"] = again.text(name)[0][log.index]
            pairs = len(log[["device", "other"]].drop_duplicates())
            # Not what each row has of its own.
            is_session = (log["other"] >= 0).all() and 4 * pairs <= 3 * len(log)
            if is_session and not repeats(["device", "other"]):
                session, last = (self._mapping(role, name) for role in ("access_point", "place"))
                raise frame.error(
                    f"devices come or go twice in a row, but take turns in each {name}: do sessions overlap?",
                    f"if so, give {session}; if {_LAST_COUNTS}, {last}",
                )

    def _states(self) -> dict[str, tuple[Ints, list[str]]]:
        """The code of each row (-1 if it does not change it) and the words of each state, in lower case."""
        frame = self.frame
        if not self.states:
            # Files without a time show no heartbeats.
            beats = [column.null_count < len(column) for column in frame.columns("time")]
            return {"state": (np.repeat(beats, np.diff(frame.starts)) - 1, ["online"])}
        by_key = {"key", "state"} <= set(self.states)
        plain = [name for name in self.states if not by_key or name not in ("key", "state")]
        result = {name: frame.text(name, lower=True) for name in plain}
        if by_key:
            number, words = frame.text("key", lower=True)
            frame.refuse(number < 0, "has no key")
            renumbered, keys = pd.factorize(np.array([*map(role_name, words)], object))
            number = renumbered[number]
            ends = np.cumsum(np.bincount(number, minlength=len(keys)))
            by_number = np.split(np.argsort(number, kind="stable"), ends[:-1])
            code, words = frame.text("state", lower=True)
            # Of the keys that no rule names, only the words are needed.
            is_any = self.params.online is None and len(keys) <= _MOST_KEYS
            unnamed = np.full(len(frame), -1)
            for key, rows in zip(keys, by_number, strict=True):
                own, recoded = np.unique(code[rows], return_inverse=True)
                # The first one may be that of an empty cell.
                is_known = own >= 0
                result[key] = unnamed, [words[each] for each in own[is_known]]
                if is_any or key in self.in_rule:
                    result[key] = np.full(len(frame), -1), result[key][1]
                    result[key][0][rows] = recoded - np.count_nonzero(~is_known)
        return result

    def _took(self, rule: Rule, codes: Mapping[str, tuple[Ints, list[str]]]) -> str:
        """What a rule takes for online, and for offline, if it names one column."""
        (key, *others) = rule.keys
        named = pd.Series(codes[key][1])
        if others or len(named) > 2 * _FEW:
            return rule.text
        value = rule.holds({key: np.arange(len(named))})
        on, off = ([*named[value == each]] for each in (1, -1))
        taken = f"{key} is {format_names(on, _FEW) if on else 'nothing'}"
        return taken + (f"; offline where it is {format_names(off, _FEW)}" if off else "")

    def _rule(self, codes: Mapping[str, tuple[Ints, list[str]]]) -> Rule:
        """The rule over the states with these values."""
        frame, text, hold = self.frame, self.params.online, self.params.hold
        words = {name: tuple(each) for name, (_, each) in codes.items()}
        is_single = len(words) <= _MOST_KEYS and all(len(each) == 1 for each in words.values())
        if text is None and hold is not None and is_single:
            text = " or ".join(f"{name} == '{each[0]}'" for name, each in words.items())
        if text is None:
            text, *more = words
            # By the names in the files, too.
            own = [text, *map(role_name, frame.called(text))]
            is_switch = all(map(SWITCH.fullmatch, own))
            if self.params.columns.get("device") == COLUMN:
                is_switch &= not any(_OUTAGE.search(role_name(name)) for name in self.ids)
            if more or not set(words[text]) <= ON | OFF or not is_switch:
                few = sorted(words, key=lambda name: (len(words[name]) > _FEW, name == self.point))
                shown = "; ".join(
                    f"{key}: {format_names(words[key], _FEW)}"
                    if len(words[key]) <= _FEW
                    else f"{key}: {len(words[key]):,} values such as {words[key][0]}"
                    for key in few[:_FEW]
                )
                if len(few) > _FEW:
                    shown += f"; and {format_counted(len(few) - _FEW, 'other state')}"
                message = f"no rule says in which states a device is available ({shown})"
                hint = "give it, -s online='COLUMN == VALUE'; if each row shows its device online, -s online=any"
                hint += " and for how long, such as -s hold=5min"
                if any(name in frame for name in NUMBERS):
                    hint += f"; if there are only measurements, {self._mapping('other', 'time')}"
                if self.point in words:
                    points = self._mapping("access_point", self.point)
                    hint += f"; if each {self.point} reports its own states, also {points}"
                raise frame.error(message, hint)
        rule = Rule(text, words, "online")
        single = [words[key][0] for key in rule.keys if len(words[key]) == 1]
        if hold is None and len(single) == len(rule.keys) and not self.params.initial:
            raise frame.error(
                f"shows only one state ({format_names(single)}), so that no device ever goes offline: are its rows "
                "heartbeats?",
                "say for how long a row is believed, such as -s hold=5min if the rows come every minute",
            )
        return rule

    # Values per device ----------------------------------------------------------------------------------------------

    def single(self, name: str) -> Any:
        """The one text of each device, null if unknown."""
        code, words = self.frame.text(name)
        code = np.where(self.named, code, -1)
        by_device = pd.Series(code).where(code >= 0).groupby(self.device)
        differs = (code >= 0) & (code != by_device.transform("first").to_numpy())
        self.frame.refuse(differs, f"gives a different {name} for its device than an earlier row")
        return id_column(by_device.first().fillna(-1).to_numpy(np.int64), words)

    def _note_kinds(self, name: str, values: Any) -> None:
        """Add a caveat if the measurements of each device differ most by a column that is not used."""
        if not self.unused or self.any:
            return
        log = pd.DataFrame({"device": self.device, "value": np.log(values.where(values > 0))})
        some = log["device"] < _SAMPLE // max(len(log) // len(self.ids), 1)
        log = log[self.measuring & some & log["value"].notna()].head(_SAMPLE)
        spread = log["value"] - log.groupby("device")["value"].transform("mean")
        is_same = len(self._with_unused) == len(self.frame)
        for each in self.unused if is_same and (spread**2).sum() > 0 else ():
            code, words = self._with_unused.text(each)
            log["kind"] = code[log.index]
            pairs = len(log[["device", "kind"]].drop_duplicates())
            if 2 <= len(words) <= _FEW and 2 * pairs < len(log):
                within = log["value"] - log.groupby(["device", "kind"])["value"].transform("mean")
                if (within**2).sum() < _UNEXPLAINED * (spread**2).sum():
                    rule = f"-s online='{each} == VALUE'"
                    self.caveats.append(
                        f"{name} differs by {each} ({format_names(words, _FEW)}): if only some count, give {rule}"
                    )

    def _measured(self, table: str, *needed: str) -> dict[str, pd.DataFrame]:
        """Of each device, the median in SI units (NaN if unknown), the number, mean and spread of its measurements.

        By the columns of ``table``, one of the ``needed`` of which the file must have.
        """
        if not any(name in self.frame for name in needed):
            alone = next(name for name in ("loss", "radio", "ram_bytes") if name in self.frame)
            needs = "a compute speed" if table == "compute" else "a rate or a round-trip time"
            hint = f"{alone} needs {needs}; or leave it out: {self._mapping('other', alone)}"
            raise self.frame.error(f"has none of the columns {', '.join(needed)}", hint)
        result, self.frame.chosen = {}, self.measuring
        for name, (own, column, bounds, option, form) in NUMBERS.items():
            if own != table or name not in self.frame:
                continue
            unit = getattr(self.params, option) if option else ""
            factor = UNITS[option][unit] if option else 1.0
            high = bounds.high * (1.0 if name == "loss" else factor)
            # A step that takes no time is refused; so is one that takes forever.
            scaled = Bounds(bounds.low * factor, high, bounds.open_low or unit == _PER_SECOND)
            said = unit if name != "loss" else "a share, or -s loss_unit=percent"
            form = "" if unit == _PER_SECOND else form
            values = pd.Series(self.frame.number(name, factor, scaled, said, form=form))
            if unit == _PER_SECOND:
                values = 1 / values.where(self.measuring)
            by_device = values.where(self.measuring).groupby(self.device)
            result[column] = by_device.agg(["median", "count", "mean", "std"])
            first: Any = values[self.measuring & (self.device == self.device[0])].dropna()
            grows = len(first) >= MANY and (first.diff()[1:] > 0).all()
            if grows and (by_device.diff().dropna() > 0).all():
                message = f"{name} only grows: is it a counter, or the time since a start?"
                fix = "if so, write its differences; if not, remove a row"
                raise self.frame.error(message, fix)
            self._note_kinds(name, values)
            if name == "rtt" and result[column]["median"].eq(0).all():
                self.caveats.append("all round-trip times are 0: is rtt the right column?")
            if _differ(result[column]):
                count = int(result[column]["count"].sum())
                self.counts["measurements"] = max(self.counts.get("measurements", 0), count)
        return result

    def compute(self) -> dict[str, Any]:
        """The table ``compute``, if it has a row."""
        frame = self.frame
        measured = self._measured("compute", "sample_time", "step_time", "relative_speed", "score")
        steps = [
            frame.number(n, form="duration") for n in ("sample_time", "step_time") if n in frame
        ]
        if steps:
            zero = ~np.isnan(steps).all(axis=0) & (np.nansum(steps, axis=0) == 0)
            fix = "correct it, or leave it empty if it is unknown"
            frame.refuse(zero & self.measuring, "a step takes no time", fix)
        values = pd.DataFrame({column: table["median"] for column, table in measured.items()})
        some = values.drop(columns="ram_bytes", errors="ignore").notna().any(axis=1)
        if "ram_bytes" in values:
            values["ram_bytes"] = values["ram_bytes"].round()
        # If only one of the two times of a step is known, the other is 0.
        for name, other in (("step_fixed_s", "sample_s"), ("sample_s", "step_fixed_s")):
            if other in values:
                known = values.get(name, pd.Series(np.nan, values.index))
                values[name] = known.mask(known.isna() & values[other].notna(), 0.0)
        if _differ(spread := measured.get("sample_s")):
            values["sample_s_std"] = spread["std"]
        if _differ(spread := measured.get("step_fixed_s")):
            values["step_fixed_error"] = spread["std"] / spread["mean"] / np.sqrt(spread["count"])
        columns = {str(name): column.to_numpy() for name, column in values[some].items()}
        device = id_column(np.flatnonzero(some), self.ids)
        table = {"device_id": device, "task": "*", "phase": self.params.phase, **columns}
        return {"compute": table} if some.any() else {}

    def network(self) -> dict[str, Any]:
        """The table ``network``, if it has a row."""
        frame = self.frame
        if "bandwidth" in frame and ("down" in frame or "up" in frame):
            hint = "bandwidth applies to both directions; give either bandwidth, or down and up"
            raise frame.error("has both bandwidth and down or up", hint)
        measured = self._measured("network", "down", "up", "bandwidth", "rtt")
        rates = {way: measured[way] for way in DIRECTIONS if way in measured}
        # Of pings alone, the rates are unknown.
        ways = rates or {"both": measured["rtt_s"]}
        table = pd.concat([each.assign(way=way) for way, each in enumerate(ways.values())])
        table = table[table["median"].notna()].sort_index(kind="stable")
        device = table.index.to_numpy()
        columns: dict[str, Any] = {
            "device_id": id_column(device, self.ids),
            "direction": id_column(table["way"].to_numpy(), list(ways)),
            "bandwidth_bps": table["median"].to_numpy() * (1.0 if rates else np.nan),
        }
        if any(map(_differ, rates.values())):
            columns["bandwidth_cv"] = (table["std"] / table["mean"]).to_numpy(np.float32)
        if (rtt := measured.get("rtt_s")) is not None:
            columns["rtt_s"] = rtt["median"].to_numpy()[device]
            if _differ(rtt):
                columns["rtt_error_s"] = (rtt["std"] / np.sqrt(rtt["count"])).to_numpy()[device]
        if "loss" in measured:
            columns["loss"] = measured["loss"]["median"].to_numpy(np.float32)[device]
        if "radio" in frame:
            # Of several, the most common one.
            code, words = frame.text("radio")
            named = pd.DataFrame({"device": self.device, "radio": code})
            named = named[(code >= 0) & self.measuring]
            usual = named.value_counts().reset_index().drop_duplicates("device")
            number = usual.set_index("device")["radio"].reindex(device, fill_value=-1)
            columns["radio"] = id_column(number.to_numpy(), words)
        return {"network": columns} if len(device) else {}


def _following(source: Ints, time_us: Ints, end_us: int) -> tuple[Any, Ints]:
    """Whether each row is the first one of its source, and the time of the next one of that source."""
    head, following = run_starts(source), np.append(time_us[1:], end_us)
    following[np.append(head[1:], True)[: len(head)]] = end_us
    return head, following[: len(head)]


def _rest(
    device: Ints, start: Ints, end: Ints, count: int, window: tuple[int, int]
) -> tuple[Ints, Ints, Ints]:
    """What the intervals of each of some devices leave of a window."""
    every, edges = np.tile(np.arange(count), 2), np.repeat(window, count)
    some = end > start
    spans = pd.DataFrame({"device": np.append(device[some], every)})
    spans["start"] = np.append(start[some], edges).clip(*window)
    spans["end"] = np.append(end[some], edges).clip(*window)
    by_device = spans.sort_values(["device", "start", "end"]).groupby("device")
    spans["end"], spans["start"] = by_device["start"].shift(-1), by_device["end"].cummax()
    rest = spans[spans["start"] < spans["end"]].sort_values(["device", "start"]).astype(np.int64)
    return rest["device"].to_numpy(), rest["start"].to_numpy(), rest["end"].to_numpy()


def _differ(table: pd.DataFrame | None) -> TypeGuard[pd.DataFrame]:
    """Whether some device has different measurements."""
    return table is not None and bool((table["std"] > 0).any())
