"""Throughput logs: a column of times and one of rates, amounts or counters, of one or many links.

For formats without an importer of their own, such as the logs of HSDPA commutes, of broadband tests and of 5G drives.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedsim.files import cells
from fedsim.files.cells import AMOUNTS, RATES, DataUnit, Floats, Ints
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile
from fedsim.traces.importers import ImporterParams
from fedsim.traces.importers._assemble import LinkImporter, Links, Notes, link, require_units
from fedsim.traces.tables import run_starts
from fedsim.units import Duration
from fedsim.vocabulary.formatting import format_names

_GAP = 30
_ROLES = ("time", "down", "up", "device", "direction")
_WAYS = dict.fromkeys(("down", "dl", "download", "downlink", "rx", "in"), 0)
_WAYS |= dict.fromkeys(("up", "ul", "upload", "uplink", "tx", "out"), 1)
_WRAPS = (2.0**32, 2.0**64)


class Throughput(LinkImporter):
    """Links over time, one per file or per device; cells are separated by commas, semicolons, tabs or spaces.

    Name the columns and their units: ``-s time=timestamp -s time_unit=ms -s down=throughput -s rate_unit=Mbit/s``; in a
    file without a header, columns have numbers from 1. A rate is the mean over the interval that ends at its time, so
    the one in the first row belongs to no interval and is dropped. Of rows with the same time, rates are averaged and
    amounts added; a missing rate is replaced by the one before it, at the beginning by the first one. A gap in a log of
    rates is cut out. The series repeats at its end.
    """

    name = "throughput"
    description = "throughput logs in any columns (time; rate, bytes or counter), by file or device"
    version = "2"
    kinds = "same_time missing_rates gaps counter_resets counter_wraps"

    class Params(ImporterParams):
        """Options of the throughput importer. Columns and units must be given; none is assumed."""

        time: int | str | None = None
        """Column of the times: its name in the header, or its number from 1. Times are numbers or timestamps."""
        time_unit: cells.TimeUnit | None = None
        """Unit of the times, unless they are timestamps: us, ms, s, min, h, d; unix_s, unix_ms, unix_us, unix_ns."""
        time_format: str | None = None
        """Form of the times as for strptime, such as ``%d.%m.%Y %H:%M``, if they are not like ISO 8601."""
        down: int | str | None = None
        """Column of the downlink."""
        up: int | str | None = None
        """Column of the uplink."""
        device: int | str | None = None
        """Column of the device, if a file has several."""
        direction: int | str | None = None
        """Column of the direction (down, rx, in ...; up, tx, out ...) of the values in the column ``down``."""
        rate_unit: DataUnit = None
        """Unit of ``down`` and ``up``, such as Mbit/s or MB/s: b is a bit, B is a byte. ``bit``, ``B``, ``kB`` and
        ``MB`` mean amounts."""
        kind: Literal["amount", "counter"] = "amount"
        """Whether an amount is what arrived since the previous row, or a counter that only grows; at its resets, the
        rate is unknown, and a counter of 32 or 64 bits may wrap."""
        max_gap: Duration | None = Field(None, gt=0)
        """Longest interval that a rate stands for; by default 30 times the median interval. Longer ones are cut out."""

    @classmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> Links:
        chosen = {role: each for role in _ROLES if (each := getattr(params, role)) is not None}
        file = TableFile(source, header=any(isinstance(column, str) for column in chosen.values()))
        values: list[str] = [role for role in ("down", "up") if role in chosen]
        if "time" not in chosen or not values:
            first = ", ".join(f"{n} {cell}" for n, cell in enumerate(TableFile(source).names, 1))
            hint = "give the names or numbers of those to import: -s time=... and -s down=... or -s up=..."
            raise source.error(f"has several columns: {first}", hint)
        numbered = {
            role: file.names[c - 1] if isinstance(c, int) and 0 < c <= len(file.names) else str(c)
            for role, c in chosen.items()
        }
        frame = Frame([file], numbered).load(_ROLES, {"device", "direction"})
        if not len(frame):
            raise source.error("has no rows")
        plain = params.time_format is None and frame.are_plain_numbers("time")
        units = {"rate_unit": values, "time_unit": ["time"] * plain}
        of_file = {option: [str(chosen[role]) for role in units[option]] for option in units}
        examples = {"rate_unit": cells.RATE_EXAMPLES, "time_unit": ", ".join(cells.TIME_UNITS)}
        require_units(frame, params, of_file, examples)
        form = "give -s time_format='%d.%m.%Y %H:%M', the form of the times"
        time_us = frame.instants("time", params.time_unit, params.time_format, form).us
        frame.refuse(time_us == cells.NAT, "has no time")
        device, ids = np.zeros(len(frame), np.int64), [name]
        if "device" in frame:
            device, ids = frame.text("device")
            frame.refuse(device < 0, "has no device")
        way = np.full(len(frame), -1)
        if "direction" in frame:
            code, words = frame.text("direction", lower=True)
            way = np.array([*(_WAYS.get(word, -1) for word in words), -1])[code]
            hint = f"it must be one of {', '.join(_WAYS)}"
            frame.refuse(way < 0, "direction is {}", hint, "direction")
        rows = pd.DataFrame({"device": device, "way": way, "time": time_us})
        steps = rows.diff()
        backwards = (steps["time"] < 0) & (steps["device"] == 0) & (steps["way"] == 0)
        others = [each for each in file.names if each not in numbered.values()]
        hint = "times must not decrease; sort the rows by time, or split the file there"
        if "device" not in frame and others:
            hint += f", or name the column of the device, -s device=..., one of {', '.join(others)}"
        message = "the time is {}, before that of the row above it"
        frame.refuse(backwards.to_numpy(), message, hint, "time")
        notes.counts["same_time"] += int(rows.duplicated().sum())
        for role in values:
            rows[role] = frame.number(role, 1.0, unit=str(params.rate_unit))
        groups: Any = rows.groupby(["device", "way"])
        if others:
            _require_one_link(file, others, groups.ngroup())
        for (number, position), of_link in groups:
            for direction in values if position < 0 else [("down", "up")[position]]:
                column = of_link[direction if direction in values else values[0]].to_numpy()
                time = of_link["time"].to_numpy()
                length_us, rates = _rates(time, column, direction, source, params, notes)
                if params.rate_unit in RATES and len(length_us):
                    limit_us = (params.max_gap or _GAP * np.median(length_us) / 1e6) * 1e6
                    gap = length_us > limit_us
                    notes.counts["gaps"] += int(np.count_nonzero(gap))
                    length_us, rates = length_us[~gap], rates[~gap]
                notes.counts["missing_rates"] += int(np.count_nonzero(np.isnan(rates)))
                yield link(ids[number], direction, length_us, rates, source)


def _require_one_link(file: TableFile, others: list[str], link: Any) -> None:
    """Refuse a file whose other columns name several devices, each with a time more than once in a row of turns."""
    frame = Frame([file], {name: name for name in others}).load(others)
    for name in others:
        if frame.are_plain_numbers(name):
            continue
        code, words = frame.text(name)
        of_link: Any = pd.Series(code).where(code >= 0).groupby(link)
        turns, count = of_link.diff().fillna(0).ne(0).groupby(link).sum(), of_link.nunique()
        # Few words that take turns, row by row, are the links of a file with several.
        several = (count >= 2) & (2 * count <= of_link.size()) & (2 * turns >= of_link.size())
        if several.any():
            codes = of_link.unique()[several].explode().dropna().unique()
            shown = format_names([words[int(each)] for each in codes], 4)
            raise file.source.error(
                f"the column {name} takes turns between {shown}: are these several devices?",
                f"if so, give -s device={name}, or a column that joins it with another; if not, remove it",
            )


def _rates(
    time_us: Ints,
    values: Floats,
    direction: str,
    source: SourceFile,
    params: Throughput.Params,
    notes: Notes,
) -> tuple[Ints, Floats]:
    """The length (us) and the rate (bit/s) of the interval before each time but the first one."""
    if params.kind == "counter":
        # Over an empty cell, a counter grows on.
        kept = ~np.isnan(values)
        kept[[0, -1]] = True
        time_us, values = time_us[kept], values[kept]
    first = run_starts(time_us)
    length_us = np.diff(time_us[first])
    unit = str(params.rate_unit)
    by_time: Any = pd.Series(values).groupby(np.cumsum(first))
    if unit in RATES:
        if params.kind == "counter":
            raise source.error(f"{unit} is no amount, as counters have", "write, for example, B")
        return length_us, by_time.mean().to_numpy()[1:] * RATES[unit]
    amount = by_time.sum(min_count=1).to_numpy()
    if params.kind == "counter":
        grown = _grown(by_time.last().to_numpy(np.float64), notes.counts)
    elif len(amount) > 9 and (np.diff(amount) > 0).all():
        raise source.error(
            f"the amounts of {direction} increase from row to row: are they a counter?",
            "if so, give -s kind=counter; if not, remove a row",
        )
    else:
        grown = amount[1:]
    return length_us, grown * AMOUNTS[unit] / (length_us / 1e6)


def _grown(counter: Any, counts: dict[str, int]) -> Any:
    """How much a counter has grown in each interval; NaN at its resets. A wrap is a fall from the top of its range."""
    grown = np.diff(counter)
    fell = grown < 0
    for size in _WRAPS:
        wraps = (
            fell & (counter[:-1] > 0.9 * size) & (counter[:-1] < size) & (counter[1:] < 0.1 * size)
        )
        grown = np.where(wraps, grown + size, grown)
        counts["counter_wraps"] += int(np.count_nonzero(wraps))
        fell &= ~wraps
    counts["counter_resets"] += int(np.count_nonzero(fell))
    return np.where(fell, np.nan, grown)
