"""Times of tables: the options that say how they are written, and what they are on one clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from fedsim.files import cells
from fedsim.files.cells import FAR_US, NAT
from fedsim.files.frames import Frame
from fedsim.traces.importers import ImporterParams
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.formatting import format_counted

_HOW_TO_WRITE = (
    "the end of an open session is empty (instead of Unknown); write 2024-05-01T08:00:00+02:00, "
    "or name the zone or the form: -s time_zone=Europe/Berlin, "
    "-s time_format='%d.%m.%Y %H:%M', -s year=2024 (for May  1 08:00:00); of a date and a time of day, make one column"
)
_SYSLOG = "%b %d %H:%M:%S"
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
OPEN_BEFORE_US, OPEN_AFTER_US = 365 * 86_400 * 10**6, 4_070_908_800 * 10**6
"""1971 and 2099: an end before or after is how data bases write that there is none."""


class TimeParams(ImporterParams):
    """Options of the times in a table."""

    time_unit: cells.TimeUnit | None = None
    """Unit of the times, unless they are timestamps: us, ms, s, min, h or d from time 0 on; unix_s, unix_ms, unix_us or
    unix_ns; excel (days of a spreadsheet)."""
    time_zone: str | None = None
    """Time zone of times without an offset: ``UTC``, an IANA name such as ``Europe/Berlin``, or ``+02:00``. Of a
    time that clocks show twice, the order of a device's rows says which it is; otherwise it is the first."""
    time_format: str | None = None
    """Form of the times as for strptime, such as ``%d.%m.%Y %H:%M``, if they are not like ISO 8601."""
    year: int | None = Field(None, ge=1970, le=2099)
    """Year of the first time, if times have none; by default of the form of syslog, ``%b %d %H:%M:%S``."""

    @field_validator("time_format")
    @classmethod
    def _can_be_read(cls, form: str | None) -> str | None:
        import pandas as pd

        try:
            pd.to_datetime(["some text"], format=form, errors="coerce")
        except re.error as error:
            raise ValueError("a directive occurs twice") from error
        return form


class Times:
    """Times of a table as microseconds of UTC, or from time 0 on.

    Attributes:
        zone, zone_name: the zone of times without an offset; None if it is not known.
        dated: whether the times that were read are instants of a calendar.
        caveats: limits of what was read.
    """

    def __init__(self, params: Any) -> None:
        self.params = params
        self.zone, self.zone_name = cells.time_zone(params.time_zone), params.time_zone
        self.dated = False
        self.caveats: list[str] = []

    def instants(self, frame: Frame, names: Sequence[str]) -> list[cells.Instants]:
        """The instants of some columns; those without an offset are times of the local clock."""
        unit, form, year = self.params.time_unit, self.params.time_format, self.params.year
        if form is not None and re.search(cells.HAS_YEAR, form):
            year = None
        elif year is not None:
            form = form or _SYSLOG
        columns = [frame.instants(name, unit, form, _HOW_TO_WRITE, year, names) for name in names]
        frame.require_times(names[0], columns)
        dated = {column.dated: n for n, column in enumerate(columns) if (column.us != NAT).any()}
        if len(dated) > 1:
            message = f"{names[dated[True]]} has dates, {names[dated[False]]} has times without one"
            hint = f"if these are durations, give -s columns='{{duration: {names[dated[False]]}}}'"
            raise frame.error(message, hint)
        self.dated = any(column.dated for column in columns)
        if self.dated and (fit := cells.fitting_unit(columns[0].us, unit)) is not None:
            known = columns[0].us[columns[0].us != NAT]
            raise frame.error(
                f"in {unit}, the times would be in the year {1970 + np.median(known) / 31_556_952e6:.0f}",
                f"they fit -s time_unit={fit}",
            )
        return columns

    def utc(
        self, frame: Frame, names: Sequence[str], columns: Sequence[cells.Instants], device: Ints
    ) -> list[Ints]:
        """The instants as times of UTC (us); those of the local clock are refused without a zone."""
        times = [column.us for column in columns]
        local = [
            column.local & (us != NAT) & (us < FAR_US) & self.dated
            for column, us in zip(columns, times, strict=True)
        ]
        if not any(each.any() for each in local):
            return times
        if self.zone is None:
            for name, each in zip(names, local, strict=True):
                message = f"{name} is {{}}, which has no offset from UTC"
                hint = "write it in all rows, as in 2024-05-01T08:00:00+02:00, or give -s time_zone=Europe/Berlin"
                frame.refuse(each, message, hint, name)
        utc, skipped, unclear = cells.localize(
            np.column_stack(times), np.column_stack(local), self.zone or UTC, device
        )
        for name, each in zip(names, skipped.T, strict=True):
            message = f"{name} is {{}}, a local time that the clocks skip"
            frame.refuse(each, message, "correct it", name)
        if unclear:
            count = format_counted(unclear, "time")
            self.caveats.append(f"{count} in an hour that clocks show twice, taken as the first")
        return list(utc.T)


class Calendar(Times):
    """Times as microseconds from time 0 on, and the meaning of time 0.

    Attributes:
        epoch, epoch_us: time 0, if it is an instant, and in microseconds of Unix time.
        clock: its meaning.
    """

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.epoch: datetime | None = params.epoch
        self.clock: Literal["local", "utc", "device-relative"] = params.clock or "device-relative"
        self.epoch_us = 0

    def read(
        self, frame: Frame, names: list[str], device: Ints, span_us: Ints | None = None
    ) -> list[Ints]:
        """The times of some columns (us from time 0), NAT if unknown, FAR_US if never. Shape (rows,) each.

        With ``span_us``, the lengths of intervals, they are the starts and ends of these; one of the two is a column.
        """
        form, year = self.params.time_format, self.params.year
        lacks_year = form is not None and not re.search(cells.HAS_YEAR, form)
        if lacks_year and (year is None or not re.search("%[dejU]", form)):
            raise frame.error(
                f"times of the form '{form}' have no {'year' if year is None else 'day'}",
                "give the year of the first one, such as -s year=2024; of times without a date, write the date",
            )
        columns = self.instants(frame, names)
        times = self.utc(frame, names, columns, device)
        if span_us is not None:
            given, unknown = dict(zip(names, times, strict=True)), np.full(len(span_us), NAT)
            start, end = (given.get(name, unknown) for name in ("start", "end"))
            # Beside both, the duration of a session that is still open may be 0.
            known = (span_us >= len(names) - 1) & ((start == NAT) != (end == NAT))
            times = [
                np.where(known & (start == NAT), end - span_us, start),
                np.where(known & (end == NAT), start + span_us, end),
            ]
        message = f"{names[0]} is {{}}, which is no time of an observation"
        fix = "correct it, or remove the row"
        if not self.dated:
            self.zone_name = None
            if names[0] != "end":
                frame.refuse(times[0] == FAR_US, message, fix, names[0])
            return times
        first = times[0] if (times[0] != NAT).all() else times[0][times[0] != NAT]
        begin_us, last_us = int(first.min(initial=FAR_US)), int(first.max(initial=0))
        if first.size and (begin_us < OPEN_BEFORE_US or last_us > OPEN_AFTER_US):
            odd = (times[0] < OPEN_BEFORE_US) | (times[0] > OPEN_AFTER_US)
            frame.refuse(odd & (times[0] != NAT), message, fix, names[0])
        offsets = {column.offset for column in columns if (column.us != NAT).any()}
        if self.zone is None and len(offsets) == 1 and (offset := offsets.pop()).strip("+-0:"):
            self.zone, self.zone_name = cells.time_zone(offset), offset
        self.clock = self.params.clock or ("local" if self.zone else "utc")
        epoch = self.params.epoch
        if epoch is None:
            epoch = _UNIX + timedelta(microseconds=begin_us if first.size else 0)
            if self.zone is not None:
                day = epoch.astimezone(self.zone).date()
                epoch = datetime.combine(day, datetime.min.time(), self.zone)
        elif epoch.tzinfo is None:
            epoch = epoch.replace(tzinfo=self.zone or UTC)
        # With a fixed offset from UTC, which no change of the clocks alters.
        self.epoch = epoch.astimezone(timezone(epoch.utcoffset() or timedelta(0)))
        self.epoch_us = (self.epoch - _UNIX) // timedelta(microseconds=1)
        for column, us in enumerate(times):
            times[column] = us - self.epoch_us
            never = (us == NAT) | (us >= FAR_US)
            if never.any():
                times[column][never] = us[never]
        return times
