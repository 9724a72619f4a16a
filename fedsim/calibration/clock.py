"""The instants of a log, in seconds of one clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsim.errors import UserError
from fedsim.files import cells
from fedsim.files.frames import Frame
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import format_counted, format_names

_TIMES = "give seconds, or ISO 8601 timestamps such as 2026-01-31T12:00:00.250Z; empty or never for what did not happen"
_FIRST_S, _LAST_S = 365 * 86_400.0, 4_070_908_800.0
"""1971 and 2099: earlier and later dates stand for an instant that never came."""
FAR_DATES = "dates before 1971 and after 2098"
_LAST_32_BIT_S = 2**31 - 1
"""The last second of clocks with 32 bits, in 2038."""
_RESOLUTIONS_US = (60_000_000, 1_000_000, 100_000, 10_000, 1000)
"""Resolutions of clocks in microseconds that lengthen or shorten spans noticeably."""
_MOST_DAYS, _DAYS = 31, (10_000, 3_000_000)
"""Most days that a log lasts whose instants are suspected to be days of any calendar."""
_MANY = 20
"""Numbers up to which all of them may end in minutes and seconds by chance."""


@dataclass(frozen=True)
class Clock:
    """What the instants of a file show about its clock.

    Attributes:
        is_local: whether they are timestamps without an offset from UTC, which are read as UTC.
        resolution_s: the coarsest resolution that all of them have; 0 if it is below a millisecond.
        flags: statements about how they were read.
    """

    is_local: bool
    resolution_s: float
    flags: tuple[str, ...]


def instants(frame: Frame, column: Mapping[str, str]) -> tuple[dict[str, Floats], Clock]:
    """Instants in seconds, NaN if unknown, and their clock.

    Args:
        frame: the file, loaded.
        column: its columns of instants by name.
    """
    seconds: dict[str, Floats] = {}
    dated: dict[str, bool] = {}
    units: dict[str, str] = {}
    local, zoned, flags = {}, False, []
    for name, spelling in column.items():
        if frame.are_plain_numbers(spelling):
            values = frame.number(spelling, 1.0, None, also=" or never", form="duration")
            values[values == np.inf] = np.nan
            unit = cells.recent_unit(values)
            if unit not in (None, "unix_s"):
                units[spelling] = unit
            if unit is not None:
                frame.refuse_rounded(spelling)
            values *= cells.TIME_UNITS[unit or "s"]
            # The difference of two instants must fit, too.
            beyond = np.abs(values) > cells.TIME_S.high / 2
            frame.refuse(beyond, f"{spelling} is {{}}", f"it must be {cells.TIME_S}", spelling)
            dated[name] = unit is not None
        else:
            read = frame.instants(spelling, hint=_TIMES)
            known = (read.us != cells.NAT) & (read.us < cells.FAR_US)
            values = np.where(known, read.us / 1e6, np.nan)
            dated[name] = read.dated
            if read.dated:
                local[spelling] = known & read.local
                zoned |= bool((known & ~read.local).any())
        if not np.isfinite(values).any():
            del dated[name]
        seconds[name] = values
    if units:
        units_named = format_names(sorted(set(units.values())))
        flag = f"The numbers of {format_names(list(units))} are read as {units_named}"
        flags.append(f"{flag}: no other unit fits.")
    if zoned:
        for spelling, without in local.items():
            message = f"{spelling} is {{}}, which has no offset from UTC, but other timestamps of the log have one"
            hint = "write it in all of them: 2026-01-31T12:00:00Z, or 2026-01-31T12:00:00+02:00"
            frame.refuse(without, message, hint, spelling)
    if len(set(dated.values())) > 1:
        kinds = {kind: column[name] for name, kind in dated.items()}
        message = f"{kinds[True]} has dates, but {kinds[False]} has times from 0 on"
        raise UserError(message, where=frame.where, hint="write all instants on one clock")
    if any(dated.values()):
        far = 0
        for each in seconds.values():
            never = (each < _FIRST_S) | (each > _LAST_S) | (each == _LAST_32_BIT_S)
            each[never] = np.nan
            far += int(never.sum())
        if far:
            never_came = f"stand for what never happened ({format_counted(far, 'cell')})"
            flags.append(f"{FAR_DATES.capitalize()} {never_came}.")
    every = np.concatenate(list(seconds.values()))
    known = every[np.isfinite(every)]
    what = ""
    if cells.are_days(known, *_DAYS) and np.ptp(known) < _MOST_DAYS:
        what = "days of a spreadsheet"
    elif not any(dated.values()) and _are_clocks(known):
        what = "times of day such as 123059"
    if what:
        columns = format_names(list(column.values()))
        flags.append(
            f"The numbers of {columns} are read as seconds, but may be {what}: if so, write timestamps, such as"
            " 2026-01-31T12:00:00Z."
        )
    sizes_us = list(_RESOLUTIONS_US)
    for each in seconds.values():
        us = (each[np.isfinite(each)] * 1e6).round().astype(np.int64)
        sizes_us = [size for size in sizes_us if not (us % size).any()]
    resolution_s = next(iter(sizes_us), 0) / 1e6
    return seconds, Clock(bool(local) and not zoned, resolution_s, tuple(flags))


def _are_clocks(numbers: Floats) -> bool:
    """Whether all numbers may be times of day such as 123059."""
    whole = np.floor(numbers)
    if not len(whole) or whole.max() <= 10_000 or np.ptp(whole) <= 1000:
        return False
    if not (whole % 100).any() or (whole % 100 >= 60).any() or (whole // 100 % 100 >= 60).any():
        return False
    return len(np.unique(whole)) > _MANY
