"""Tables: one row per interval, per change of state or per measurement, with units declared in the options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field, field_validator

from fedsim.errors import UserError, nearest_or_all, raise_all
from fedsim.files import cells
from fedsim.files.cells import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Bools,
    Bounds,
    Floats,
    Ints,
    RateUnit,
    SpanUnit,
)
from fedsim.files.frames import Frame, TableFile, role_name
from fedsim.files.sources import Sources
from fedsim.traces.bundle import Eligibility
from fedsim.traces.eligibility import OFF, ON, Rule
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    HOW_TO_WRITE,
    STATIC_HORIZON_US,
    devices_table,
    note_outside,
    note_polling,
    observed_changes,
    observed_tables,
    per_device,
)
from fedsim.traces.parameters import OnEnd
from fedsim.traces.tables import id_column
from fedsim.units import DURATION_UNITS, Duration
from fedsim.vocabulary.formatting import format_counted, format_names

TEXTS = ("model", "kind", "group")
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
    "loss": ("network", SHARE, "loss_unit"),
}
UNITS: Mapping[str, Mapping[str, float]] = {
    "time_unit": cells.TIME_UNITS,
    "duration_unit": DURATION_UNITS,
    "compute_unit": DURATION_UNITS,
    "rate_unit": cells.RATES,
    "latency_unit": DURATION_UNITS,
    "loss_unit": {"share": 1.0, "percent": 0.01},
}
SPEEDS: Mapping[str, str] = {
    "sample_time": "sample_s",
    "step_time": "step_fixed_s",
    "relative_speed": "relative_speed",
    "score": "score",
}
COLUMNS = ("device", "start", "end", "duration", "time", *NUMBERS, *TEXTS, "radio")
# What others call these columns; a name that begins with that of the role is proposed, too.
_CALLED: Mapping[str, str] = {
    "device": r"(host|client|node|user|computer).*|.*(mac|imei|uuid|serial)|id|phone|probe|machine|name|sensor|worker",
    "start": r"(start|begin|login|connect|open).*|from|since|on_at|session_start",
    "end": r"(end|stop|finish|logout|disconnect|close).*|until|to|off_at|session_end",
    "duration": r"(duration|length|elapsed).*|session_time|seconds",
    "time": r"time.*|.*date.*|ts|when|.*_time|.*_at|epoch|t",
    "down": r"(down|dl|rx).*",
    "up": r"(up(load|link)|ul|tx).*",
    "rtt": r".*(rtt|ping|latency).*",
    "loss": r".*loss.*",
    "step_time": r"(step|batch)_.*",
}
_POSITIVE = re.compile(
    r"on|online|up|alive|active|available|connected|associated|idle|charging|true|yes|1|join(ed)?|in"
)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN_BEFORE_US, _OPEN_AFTER_US = 365 * 86_400 * 10**6, 4_070_908_800 * 10**6
"""1971 and 2099: an end before or after is how data bases write that there is none."""


class Table(Importer):
    """Tables in CSV, Parquet, Feather, Arrow, JSON lines or Excel files; several files are joined by ``device``.

    Columns: ``device``; ``start`` with ``end`` or ``duration`` (available in ``[start, end)``); ``sample_time``,
    ``step_time`` (a step takes step_time + sample_time x batch), ``relative_speed``, ``score``, ``ram_bytes``; ``down``
    and ``up`` or ``bandwidth`` (both directions), ``rtt``, ``loss``, ``radio``; ``model``, ``kind``, ``group``. An
    empty cell is unknown; an end that is empty, infinite, of 1970 or after 2098 is open. Of several measurements of a
    device, the median counts, and their spread is kept. Times are numbers of ``time_unit``, or timestamps.

    Instead of ``start`` and ``end``, a log of changes has ``time`` and a column per state, of any name (``state``,
    ``charging``, ``Screen On``, which rules call ``screen_on``); a cell is the state from that time on, an empty one
    leaves it as it was. In a log with one change per row, ``key`` names the state and ``state`` gives its value. The
    option ``online`` says in which states a device is available. Heartbeats and polls have these columns, too; ``hold``
    says how long a state is believed. All devices share the window from the log's first row to its last one; a device
    is observed once its states decide the rule.
    """

    name = "table"
    description = (
        "tables (CSV, Parquet, Excel): device,start,end or device,time,state; compute, network"
    )
    version = "2"
    signature = r"(?i)^[^\n]*\n([^\n]*,)? *device *(,[^\n]*)?\n"

    class Params(ImporterParams):
        """Options of the table importer. The unit of a column must be given; none is assumed."""

        columns: dict[str, str] = {}
        """The file's names of columns: ``-s columns='{device: host, time: timestamp, state: status}'``."""
        time_unit: cells.TimeUnit | None = None
        """Unit of ``start`` and ``end``, or ``time``, unless they are timestamps: us, ms, s, min, h or d from time 0
        on; unix_s, unix_ms, unix_us or unix_ns; excel (days of a spreadsheet)."""
        time_zone: str | None = None
        """Time zone of times without an offset: ``UTC``, an IANA name such as ``Europe/Berlin``, or ``+02:00``. Of a
        time that clocks show twice, the order of a device's rows tells which it is; otherwise it is the first."""
        time_format: str | None = None
        """Form of the times as for strptime, such as ``%d.%m.%Y %H:%M``, if they are not like ISO 8601."""
        duration_unit: SpanUnit | None = None
        """Unit of ``duration``."""
        compute_unit: SpanUnit | None = None
        """Unit of ``sample_time`` and ``step_time``."""
        rate_unit: RateUnit = None
        """Unit of ``down``, ``up`` and ``bandwidth``, such as Mbit/s or MB/s: b is a bit, B is a byte."""
        latency_unit: SpanUnit | None = None
        """Unit of ``rtt``."""
        loss_unit: Literal["share", "percent"] = "share"
        """Unit of ``loss``: share or percent."""
        phase: Literal["inference", "training"] = "training"
        """Whether the times are those of inference or of training."""
        online: str | None = None
        """Rule for when a device is available, over the states of a log of changes, such as ``state == on and
        charging`` or ``network in (wifi, lan) and battery >= 20``; a bare name means on, true, yes or 1. By default the
        only state of the log, if it is one of these or their opposites."""
        hold: Duration | None = Field(None, gt=0)
        """Longest time for which a state is believed after a device's last row, such as 5min for heartbeats every
        minute; by default until the next row."""
        initial: dict[str, str] = {}
        """States of all devices at time 0, such as ``-s initial.charging=off``; by default unknown."""
        window: Duration | None = None
        """Length of the observation from time 0; by default up to the last end or row in the files."""
        on_end: OnEnd = "wrap"
        """Behavior of a device at times that were not observed."""
        epoch: str | None = None
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
        clock = _Clock(params)
        log = _Log(Frame([TableFile(source) for source in sources], params.columns), params)
        texts = {name: log.single(name) for name in TEXTS if name in log.frame}
        eligibility: Eligibility | None = None
        horizon_us = round(params.window * 1e6) if params.window else STATIC_HORIZON_US
        if log.times:
            read = log.changes if "time" in log.frame else log.intervals
            horizon_us, tables, rule = read(clock, texts)
            eligibility = Eligibility(words=rule or "available", expression=rule)
        else:
            tables = {"devices": devices_table(log.ids, window_end_us=horizon_us, **texts)}
        present = {kind for name, (kind, _, _) in NUMBERS.items() if name in log.frame}
        if "compute" in present:
            tables["compute"] = log.compute()
        if "network" in present or "radio" in log.frame:
            tables["network"] = log.network()
        return Imported(
            tables,
            log.counts,
            [*log.caveats, *clock.caveats],
            eligibility=eligibility,
            horizon_us=horizon_us,
            on_end=params.on_end,
            epoch=clock.epoch,
            epoch_weekday=clock.weekday,
            clock=clock.kind,
            zone=clock.zone_name,
        )


class _Log:
    """The rows of all files, and what they say about devices."""

    def __init__(self, frame: Frame, params: Table.Params) -> None:
        self.frame, self.params = frame, params
        self.counts: dict[str, int] = {}
        self.caveats: list[str] = []
        self.times = [name for name in ("start", "end", "time") if name in frame]
        self.states = self._understand()
        used = set(COLUMNS) & set(frame.names) | set(self.states)
        frame.load(used, {"device", *TEXTS, "radio", *self.states})
        if not len(frame):
            raise UserError("has no rows", where=frame.where)
        self.device, self.ids = frame.text("device")
        frame.refuse(self.device < 0, "has no device")
        self._require_units()
        self._note_unpaired()

    def _understand(self) -> list[str]:
        """Refuse tables without the columns that they need, with the mapping that would give them; the states."""
        frame = self.frame
        if len(self.times) > 1 and "time" in frame:
            message = "has both intervals (start, end) and changes of states (time)"
            raise UserError(message, where=frame.where, hint="import either of them")
        others = [name for name in frame.names if name not in COLUMNS]
        ends = "end" in frame or "duration" in frame
        complete = "device" in frame and len(frame.names) > 1 and ("start" in frame) == ends
        complete &= bool(self.times) or any(
            name in NUMBERS or name in TEXTS for name in frame.names
        )
        if not complete:
            raise UserError(
                f"has the columns {', '.join(frame.names)}",
                where=frame.where,
                hint=f"{_proposed(frame.names)}it needs device, and start with end or duration, time with states, or "
                f"numbers: {', '.join(NUMBERS)}",
            )
        if "time" in frame:
            if not others and self.params.hold is None:
                hint = "name it, for example, state; or, if each row shows that the device is online, give -s hold=5min"
                raise UserError("has no column of states", where=frame.where, hint=hint)
            if self.params.online is not None and not {"key", "state"} <= set(others):
                named = {
                    *map(role_name, re.findall(r"\w+", self.params.online)),
                    *self.params.initial,
                }
                return [name for name in others if name in named] or others
            return others
        if others:
            self.caveats.append(f"columns that are not used: {', '.join(others)}{_hint_of(others)}")
        return []

    def _require_units(self) -> None:
        """Refuse columns whose units are not declared, all together."""
        frame, columns = self.frame, dict[str, list[str]]()
        if self.params.time_format is None:
            columns["time_unit"] = [n for n in self.times if frame.are_plain_numbers(n)]
        if "duration" in frame and "end" not in frame and frame.are_plain_numbers("duration"):
            columns["duration_unit"] = ["duration"]
        for name, (_, _, option) in NUMBERS.items():
            if name in frame and option is not None:
                columns.setdefault(option, []).append(name)
        examples = {"rate_unit": cells.RATE_EXAMPLES}
        raise_all(
            UserError(
                f"the unit of the column{'s' * (len(names) > 1)} {format_names(names)} is not declared",
                where=frame.where,
                hint=f"give it with -s {option}=..., one of {examples.get(option) or ', '.join(UNITS[option])}",
            )
            for option, names in columns.items()
            if names and getattr(self.params, option) is None
        )

    def _note_unpaired(self) -> None:
        """Note devices that some files have, and files with other columns do not."""
        kinds = [" ".join(sorted(map(role_name, file.names))) for file in self.frame.files]
        if (count := len(set(kinds))) > 1:
            kind = np.repeat(kinds, np.diff(self.frame.starts))
            pairs = pd.DataFrame({"device": self.device, "kind": kind}).drop_duplicates()
            alone = np.flatnonzero(np.bincount(pairs["device"]) < count)
            if len(alone):
                devices = format_counted(len(alone), "device")
                first = self.ids[alone[0]]
                self.caveats.append(f"{devices} not in all files, the first is '{first}'")

    # Availability ---------------------------------------------------------------------------------------------------

    def intervals(self, clock: _Clock, texts: dict[str, Any]) -> tuple[int, dict[str, Any], None]:
        """Time covered (us), the tables of devices and availability, and no rule."""
        frame, params = self.frame, self.params
        if "end" in frame:
            start, end = clock.read(frame, ["start", "end"], self.device)
        else:
            (start,) = clock.read(frame, ["start"], self.device)
            unit = DURATION_UNITS.get(params.duration_unit or "s", 1.0)
            length = frame.number("duration", unit, NOT_NEGATIVE, params.duration_unit or "")
            end = np.where(
                np.isnan(length) | (start == cells.NAT),
                cells.NAT,
                start + np.nan_to_num(length) * 1e6,
            )
            end = end.astype(np.int64)
        frame.refuse((start == cells.NAT) & (end != cells.NAT), "has an end without a start")
        rows = np.flatnonzero(start != cells.NAT)
        start, end, device = start[rows], end[rows], self.device[rows]
        open_ = (end == cells.NAT) | (end >= cells.FAR_US)
        if clock.dated:
            calendar = end + clock.epoch_us
            open_ |= (calendar < _OPEN_BEFORE_US) | (calendar > _OPEN_AFTER_US)
        begins_us = (
            int(start.min(initial=cells.FAR_US)) if clock.dated and params.window is None else 0
        )
        if params.window is not None:
            horizon_us = round(params.window * 1e6)
        else:
            horizon_us = int(max(end[~open_].max(initial=0), start.max(initial=0)))
            self.caveats.append(
                "no window was given (option window): it is assumed to end with the last interval"
            )
        if horizon_us <= 0:
            raise UserError(
                "has no interval after time 0 and no window",
                where=frame.where,
                hint="give the length of the observation with -s window=..., such as 7d",
            )
        if open_.any():
            self.counts["open_sessions"] = int(np.count_nonzero(open_))
            self.caveats.append(
                f"{format_counted(self.counts['open_sessions'], 'session')} without an end (empty, infinite, 1970 or "
                "after 2098): open until the end of the window"
            )
        end = np.where(open_, max(horizon_us, 0), end)
        window = min(begins_us, horizon_us), horizon_us
        tables, intervals = observed_tables(
            self.ids, device, start, end, window, self.counts, **texts
        )
        note_outside(intervals, self.counts, horizon_us, self.caveats, frame.where, clock.origin)
        self.counts["never_available"] = len(self.ids) - len(np.unique(intervals.device))
        note_polling(intervals, self.counts, self.caveats)
        return horizon_us, tables, None

    def changes(self, clock: _Clock, texts: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
        """Time covered (us), the tables of devices and availability, and the rule, from changes of states."""
        frame, params, initial = self.frame, self.params, self.params.initial
        codes = self._states()
        raise_all(
            UserError(
                f"initial names the state '{name}', which the log does not have",
                where=frame.where,
                hint=nearest_or_all(name, codes, f"its states: {', '.join(codes)}"),
            )
            for name in initial
            if name not in codes
        )
        for name, word in initial.items():
            if word not in codes[name][1]:
                codes[name][1].append(word)
        codes = {name: code for name, code in codes.items() if code[1]}
        (time,) = clock.read(frame, ["time"], self.device)
        known = time != cells.NAT
        if not codes or not known.any():
            raise UserError("has no row with a time and a state", where=frame.where)
        rule = self._rule({name: tuple(words) for name, (_, words) in codes.items()})
        stateful = np.any([code >= 0 for code, _ in codes.values()], axis=0)
        frame.refuse(~known & stateful, "has a state without a time")
        if params.window is None:
            self.caveats.append(
                "no window was given (option window): it ends with the log's last row"
            )
        tables, intervals = observed_changes(
            self.ids,
            self.device[known],
            time[known],
            {key: codes[key][0][known] for key in rule.keys},
            rule,
            {key: codes[key][1].index(initial[key]) for key in rule.keys if key in initial},
            None if params.window is None else round(params.window * 1e6),
            None if params.hold is None else round(params.hold * 1e6),
            self.counts,
            **texts,
        )
        valid = int(np.count_nonzero(tables["devices"].column("valid")))
        if not valid:
            raise UserError(
                "shows no device for any length of time",
                where=frame.where,
                hint="give the length of the observation with -s window=..., such as 7d, and the states at time 0 with "
                "-s initial.STATE=...",
            )
        self.counts["never_available"] = valid - len(np.unique(intervals.device))
        note_polling(intervals, self.counts, self.caveats)
        return int(np.max(tables["devices"].column("window_end_us"))), tables, rule.text

    def _states(self) -> dict[str, tuple[Ints, list[str]]]:
        """The code of each row (-1 if it does not change it) and the words of each state, in lower case."""
        frame = self.frame
        if not self.states:
            return {"state": (np.zeros(len(frame), np.int64), ["online"])}
        if {"key", "state"} <= set(self.states):
            number, keys = frame.text("key", lower=True)
            frame.refuse(number < 0, "has no key")
            code, words = frame.text("state", lower=True)
            result: dict[str, tuple[Ints, list[str]]] = {}
            for position, key in enumerate(map(role_name, keys)):
                own, recoded = (
                    np.unique(code[(number == position) & (code >= 0)]),
                    np.full(len(words) + 1, -1),
                )
                recoded[own] = np.arange(len(own))
                result[key] = (
                    np.where(number == position, recoded[code], -1),
                    [words[each] for each in own],
                )
            return result | {
                name: frame.text(name, lower=True)
                for name in self.states
                if name not in ("key", "state")
            }
        return {name: frame.text(name, lower=True) for name in self.states}

    def _rule(self, words: Mapping[str, tuple[str, ...]]) -> Rule:
        """The rule over the states with these values."""
        text, where, hold = self.params.online, self.frame.where, self.params.hold
        if text is None and hold is not None and all(len(each) == 1 for each in words.values()):
            text = " or ".join(f"{name} == '{each[0]}'" for name, each in words.items())
        if text is None:
            [name, *others] = words
            if others or not set(words[name]) <= ON | OFF:
                example = next((each for each in words[name] if _POSITIVE.fullmatch(each)), "...")
                raise UserError(
                    "no rule says in which states a device is available "
                    f"({'; '.join(f'{key}: {format_names(each, 12)}' for key, each in words.items())})",
                    where=where,
                    hint=f"give it, such as -s online='{name} == {example}'",
                )
            text = name
        rule = Rule.parse(text, words, "online")
        if (
            hold is None
            and all(len(words[key]) == 1 for key in rule.keys)
            and not self.params.initial
        ):
            raise UserError(
                f"shows only one state ({format_names([words[key][0] for key in rule.keys])}), so that no device ever "
                "goes offline: are its rows heartbeats?",
                where=where,
                hint="say for how long a row is believed, such as -s hold=5min if the rows come every minute",
            )
        return rule

    # Values per device ----------------------------------------------------------------------------------------------

    def single(self, name: str) -> Any:
        """The one text of each device, None if unknown."""
        code, words = self.frame.text(name)
        of_device = self._first(pd.Series(code).where(code >= 0))
        differs = (code >= 0) & (code != of_device[self.device])
        self.frame.refuse(differs, f"gives a different {name} for its device than an earlier row")
        return [None if np.isnan(each) else words[int(each)] for each in of_device]

    def _first(self, values: pd.Series[Any]) -> Floats:
        return (
            values.groupby(self.device).first().reindex(range(len(self.ids))).to_numpy(np.float64)
        )

    def measured(self, name: str) -> pd.DataFrame:
        """The median of each device in SI units (NaN if unknown), the number of measurements, their mean and spread."""
        _, bounds, option = NUMBERS[name]
        unit = getattr(self.params, option) if option else ""
        factor = UNITS[option][unit] if option else 1.0
        scaled = Bounds(
            bounds.low * factor, bounds.high * (1.0 if name == "loss" else factor), bounds.open_low
        )
        values = self.frame.number(
            name, factor, scaled, unit if name != "loss" else "a share, or -s loss_unit=percent"
        )
        by_device = pd.Series(values).groupby(self.device)
        table = by_device.agg(["median", "count", "mean", "std"]).reindex(range(len(self.ids)))
        if (table["count"] > 1).any() and (table["std"] > 0).any():
            self.counts["measurements"] = max(
                self.counts.get("measurements", 0), int(table["count"].sum())
            )
        return table

    def compute(self) -> Any:
        """The table ``compute``."""
        frame = self.frame
        self._require_one_of(*SPEEDS)
        times = [frame.number(name) for name in ("sample_time", "step_time") if name in frame]
        if times:
            known = np.any(~np.isnan(times), axis=0)
            zero = known & (np.nansum(times, axis=0) == 0)
            frame.refuse(
                zero, "a step takes no time", "correct it, or leave it empty if it is unknown"
            )
        measured = {column: self.measured(name) for name, column in SPEEDS.items() if name in frame}
        values = {column: table["median"].to_numpy(copy=True) for column, table in measured.items()}
        rows = np.flatnonzero(np.any(~np.isnan(list(values.values())), axis=0))
        if "ram_bytes" in frame:
            values["ram_bytes"] = np.rint(self.measured("ram_bytes")["median"].to_numpy())
        # If only one of the two times of a step is known, the other is 0.
        for name, other in (("step_fixed_s", "sample_s"), ("sample_s", "step_fixed_s")):
            if other in values:
                seconds = values.setdefault(name, np.full(len(self.ids), np.nan))
                seconds[np.isnan(seconds) & ~np.isnan(values[other])] = 0.0
        if (table := _varying(measured.get("sample_s"))) is not None:
            values["sample_s_std"] = table["std"].to_numpy()
        if (table := _varying(measured.get("step_fixed_s"))) is not None:
            values["step_fixed_error"] = (
                table["std"] / table["mean"] / np.sqrt(table["count"])
            ).to_numpy()
        chosen = {name: column[rows] for name, column in values.items()}
        return per_device(self.ids, "compute", rows, task="*", phase=self.params.phase, **chosen)

    def network(self) -> Any:
        """The table ``network``."""
        frame = self.frame
        self._require_one_of("down", "up", "bandwidth", "rtt")
        if "bandwidth" in frame and ("down" in frame or "up" in frame):
            raise UserError(
                "has both bandwidth and down or up",
                where=frame.where,
                hint="bandwidth applies to both directions; give either bandwidth, or down and up",
            )
        directions = {"both": "bandwidth", "down": "down", "up": "up"}
        measured = {way: self.measured(name) for way, name in directions.items() if name in frame}
        rtt = self.measured("rtt") if "rtt" in frame else None
        if not measured and rtt is not None:
            # Pings alone: the rates are unknown.
            measured = {"both": rtt.assign(median=np.nan, std=np.nan)}
            device = np.flatnonzero(rtt["median"].notna())
            which = np.zeros(len(device), np.int64)
        else:
            known = np.column_stack([table["median"].notna() for table in measured.values()])
            device, which = np.nonzero(known)
        columns: dict[str, Any] = {"direction": id_column(which, list(measured))}
        stacked = {
            key: np.column_stack([t[key] for t in measured.values()])
            for key in ("median", "mean", "std")
        }
        columns["bandwidth_bps"] = stacked["median"][device, which]
        if any(_varying(table) is not None for table in measured.values()):
            columns["bandwidth_cv"] = (stacked["std"] / stacked["mean"])[device, which].astype(
                np.float32
            )
        if rtt is not None:
            columns["rtt_s"] = rtt["median"].to_numpy()[device]
        if (varying := _varying(rtt)) is not None:
            error_s = varying["std"] / np.sqrt(varying["count"])
            columns["rtt_error_s"] = error_s.to_numpy()[device]
        if "loss" in frame:
            columns["loss"] = self.measured("loss")["median"].to_numpy()[device].astype(np.float32)
        if "radio" in frame:
            # Of several, the most common one.
            code, words = frame.text("radio")
            named = pd.DataFrame({"device": self.device, "radio": code})[code >= 0]
            counted = named.value_counts().reset_index().drop_duplicates("device")
            usual = counted.set_index("device")["radio"]
            radio = [words[usual[n]] if n in usual.index else None for n in range(len(self.ids))]
            columns["radio"] = pa.array(radio, pa.string()).take(pa.array(device))
        return per_device(self.ids, "network", device, **columns)

    def _require_one_of(self, *names: str) -> None:
        """Refuse a table with none of the columns ``names``, which its other columns refer to."""
        if not any(name in self.frame for name in names):
            raise UserError(
                f"has none of the columns {', '.join(names)}",
                where=self.frame.where,
                hint="ram_bytes needs a compute speed; loss and radio need a rate or a round-trip time",
            )


def _varying(table: pd.DataFrame | None) -> pd.DataFrame | None:
    """The measurements, if some device has different ones."""
    return table if table is not None and bool((table["std"] > 0).any()) else None


def _proposed(names: list[str]) -> str:
    """The mapping of columns that the names of a table suggest, as a hint."""
    mapping: dict[str, str] = {}
    for role, pattern in _CALLED.items():
        free = [name for name in names if name not in COLUMNS and name not in mapping.values()]
        fitting = [n for n in free if re.fullmatch(pattern, n)] or get_close_matches(
            role, free, 1, 0.75
        )
        if role not in names and fitting:
            mapping[role] = fitting[0]
    if {"start", "end", "duration", *NUMBERS} & {*mapping, *names}:
        mapping.pop("time", None)
    if not mapping:
        return ""
    return (
        f"give -s columns='{{{', '.join(f'{role}: {name}' for role, name in mapping.items())}}}'; "
    )


def _hint_of(others: list[str]) -> str:
    proposed = _proposed([*others, "device", "time", "start", "end"])
    return f" ({proposed.removesuffix('; ')} if it is one of these)" if proposed else ""


class _Clock:
    """Conversion of a table's times to microseconds, and the meaning of time 0.

    Attributes:
        epoch: ISO 8601 timestamp of time 0; None if times are relative.
        weekday: its day of the week, if the files contain timestamps.
        kind: meaning of time 0.
        zone_name: zone of the local time; None if it is not known.
        dated: whether the files contain timestamps.
        epoch_us: time 0 as a Unix time (us).
    """

    def __init__(self, params: Table.Params) -> None:
        self.params = params
        self.zone = cells.time_zone(params.time_zone)
        self.zone_name = params.time_zone
        self.epoch = params.epoch
        self.weekday: int | None = None
        self.kind = params.clock or "device-relative"
        self.dated = False
        self.epoch_us = 0
        self.caveats: list[str] = []

    @property
    def origin(self) -> str:
        """Time 0 in words."""
        return "time 0" if self.epoch is None else f"time 0 ({self.epoch})"

    def read(self, frame: Frame, names: list[str], device: Ints) -> list[Ints]:
        """The times of some columns (us from time 0), NAT if unknown, FAR_US if never. Shape (rows,) each."""
        unit, form = self.params.time_unit, self.params.time_format
        columns = [frame.instants(name, unit, form, HOW_TO_WRITE) for name in names]
        self.dated = any(column.dated for column in columns)
        if not self.dated:
            self.zone_name = None
            return [column.us for column in columns]
        us, local = (
            np.stack([getattr(column, key) for column in columns], axis=1)
            if len(columns) > 1
            else getattr(columns[0], key)[:, None]
            for key in ("us", "local")
        )
        if (fit := cells.fitting_unit(us[:, 0], unit)) is not None:
            year = 1970 + float(np.median(us[:, 0])) / 31_556_952e6
            raise UserError(
                f"in {unit}, the times would be in the year {year:.0f}",
                where=frame.where,
                hint=f"they fit -s time_unit={fit}",
            )
        if local.any():
            us = self._of_local(
                frame, names, us, local & (us != cells.NAT) & (us < cells.FAR_US), device
            )
        known = us[:, 0] != cells.NAT
        first = us[known, 0] if not known.all() else us[:, 0]
        begin_us, last_us = int(first.min(initial=2**61)), int(first.max(initial=0))
        if first.size and (begin_us < _OPEN_BEFORE_US or last_us > _OPEN_AFTER_US):
            odd = known & ((us[:, 0] < _OPEN_BEFORE_US) | (us[:, 0] > _OPEN_AFTER_US))
            message = f"{names[0]} is {{}}, which is no time of an observation"
            frame.refuse(odd, message, "correct it, or remove the row", names[0])
        offsets = {column.offset for column in columns if (column.us != cells.NAT).any()}
        if self.zone is None and len(offsets) == 1 and (offset := offsets.pop()).strip("+-0:"):
            self.zone, self.zone_name = cells.time_zone(offset), offset
        begin = _UNIX + timedelta(microseconds=begin_us if first.size else 0)
        epoch = self._epoch(begin)
        self.epoch, self.weekday = epoch.isoformat(), epoch.weekday()
        self.kind = self.params.clock or ("local" if self.zone else "utc")
        self.epoch_us = (epoch - _UNIX) // timedelta(microseconds=1)
        never = (us == cells.NAT) | (us >= cells.FAR_US)
        shifted = us - self.epoch_us
        if never.any():
            shifted[never] = us[never]
        return list(shifted.T)

    def _of_local(
        self, frame: Frame, names: list[str], us: Ints, local: Bools, device: Ints
    ) -> Ints:
        """``us`` in UTC, from times of the local clock where ``local``; refuses them without a zone."""
        for number, name in enumerate(names):
            if self.zone is None:
                message = f"{name} is {{}}, which has no offset from UTC"
                hint = "write it in all rows, as in 2024-05-01T08:00:00+02:00, or give -s time_zone=Europe/Berlin"
                frame.refuse(local[:, number], message, hint, name)
        if self.zone is None:
            return us
        group = np.repeat(device, len(names))
        flat, skipped, unclear = cells.localize(us.ravel(), local.ravel(), self.zone, group)
        for number, name in enumerate(names):
            message = f"{name} is {{}}, a local time that the clocks skip"
            frame.refuse(skipped.reshape(us.shape)[:, number], message, "correct it", name)
        if unclear:
            times = format_counted(unclear, "time")
            self.caveats.append(f"{times} in an hour that clocks show twice, taken as the first")
        return flat.reshape(us.shape)

    def _epoch(self, first: datetime) -> datetime:
        """Time 0, with a fixed offset from UTC, which no change of the clocks alters."""
        if self.params.epoch is not None:
            try:
                epoch = datetime.fromisoformat(self.params.epoch)
            except ValueError as error:
                raise UserError(
                    f"epoch is '{self.params.epoch}', which is not an ISO 8601 timestamp",
                    hint="write -s epoch=2024-05-01T00:00:00+02:00",
                ) from error
            epoch = epoch if epoch.tzinfo else epoch.replace(tzinfo=self.zone or UTC)
        elif self.zone is None:
            epoch = first
        else:
            epoch = datetime.combine(
                first.astimezone(self.zone).date(), datetime.min.time(), self.zone
            )
        return epoch.astimezone(timezone(epoch.utcoffset() or timedelta(0)))
