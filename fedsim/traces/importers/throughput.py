"""Throughput logs: a column of times and one of rates, amounts or counters, of one or many links.

For formats without an importer of their own, such as the logs of HSDPA commutes, of broadband tests and of 5G drives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedsim.files import cells
from fedsim.files.cells import AMOUNT, AMOUNTS, RATES, DataUnit
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile
from fedsim.traces.importers._assemble import LinkImporter, Notes, require_units
from fedsim.traces.importers._times import TimeParams, Times
from fedsim.traces.tables import DIRECTIONS, run_starts
from fedsim.units import Duration
from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.formatting import format_names

_GAP = 30
_ROLES = ("time", "down", "up", "device", "direction")
_WAYS = dict.fromkeys(("down", "dl", "download", "downlink", "rx", "in"), 0)
_WAYS |= dict.fromkeys(("up", "ul", "upload", "uplink", "tx", "out"), 1)
_WRAP = 2.0**32


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
    kinds = "same_time missing_rates gaps counter_resets counter_wraps summary_rows"

    class Params(TimeParams):
        """Options of the throughput importer. Columns and units must be given; none is assumed."""

        time: int | str | None = None
        """Column of the times: its name in the header, or its number from 1. Times are numbers or timestamps."""
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
        rate is unknown, and a counter of 32 bits may wrap."""
        max_gap: Duration | None = Field(None, gt=0)
        """Longest interval that a rate stands for; by default 30 times the median interval. Longer ones are cut out."""

    @classmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> pd.DataFrame:
        chosen = {role: each for role in _ROLES if (each := getattr(params, role)) is not None}
        values: list[str] = [role for role in ("down", "up") if role in chosen]
        file = TableFile(source, header=False)
        first = file.first
        # Numbers may be those of columns with names, too.
        named = [
            first[c - 1] for r in values if isinstance(c := chosen[r], int) and 0 < c <= len(first)
        ]
        has_names = any(re.search("[A-Za-z]{2}", c) and c not in cells.UNKNOWN for c in named)
        if has_names or any(isinstance(column, str) for column in chosen.values()):
            file = TableFile(source)
        if "time" not in chosen or not values:
            shown = ", ".join(f"{n} {cell}" for n, cell in enumerate(first, 1))
            shown += "".join(f", and {name}, a list" for name in file.nested)
            hint = "give the names or numbers of those to import: -s time=... and -s down=... or -s up=..."
            raise source.error(f"has several columns: {shown}", hint)
        numbered = {
            role: file.names[c - 1] if isinstance(c, int) and 0 < c <= len(file.names) else str(c)
            for role, c in chosen.items()
        }
        others = [each for each in file.names if each not in numbered.values()]
        frame = Frame([file], numbered | {each: each for each in others})
        frame.load({*_ROLES, *others}, {"device", "direction", *others})
        plain = params.time_format is None and frame.are_plain_numbers("time")
        units = {"rate_unit": values, "time_unit": ["time"] * plain}
        of_file = {option: [str(chosen[role]) for role in units[option]] for option in units}
        examples = {"rate_unit": cells.RATE_EXAMPLES, "time_unit": ", ".join(cells.TIME_UNITS)}
        require_units(frame, params, of_file, examples)
        times = Times(params)
        columns = times.instants(frame, ["time"])
        frame.refuse(columns[0].us == cells.NAT, "has no time")
        device, ids = np.zeros(len(frame), np.int64), [name]
        if "device" in frame:
            device, ids = frame.ids("device")
            frame.refuse(device < 0, "has no device")
        way = np.zeros(len(frame), np.int64)
        if "direction" in frame:
            code, words = frame.text("direction", lower=True)
            way = np.array([*(_WAYS.get(word, -1) for word in words), -1])[code]
            hint = f"it must be one of {', '.join(_WAYS)}"
            frame.refuse(way < 0, "direction is {}", hint, "direction")
        link = 2 * device.astype(np.int64) + way
        time_us = columns[0].us
        if times.zone is not None:
            (time_us,) = times.utc(frame, ["time"], columns, link)
        for caveat in times.caveats:
            notes.caveats.append(f"{source.where}: {caveat}")
        order = np.argsort(link, kind="stable")
        heads, before = run_starts(link[order]), np.roll(time_us[order], 1)
        wrong = np.zeros((2, len(frame)), np.bool_)
        wrong[:, order] = ~heads & (time_us[order] < before), heads & np.roll(heads, -1)
        hint = "times must not decrease; sort the rows by time, or split the file there"
        if columns[0].local.any() and times.zone is None:
            hint += "; where clocks were set back, give -s time_zone=Europe/Berlin, or write times in UTC"
        if params.time_format and not re.search("%[dejUcxsDF]", params.time_format):
            hint = "after midnight, times need a date: join it with the time in one column"
        elif (np.diff(time_us) <= 0).all():
            hint = "the newest row comes first: reverse the rows"
        elif "device" not in frame and (
            texts := [c for c in others if not frame.are_plain_numbers(c)]
        ):
            hint += f", or name the column of the device, -s device=..., one of {', '.join(texts)}"
        frame.refuse(wrong[0], "the time is {}, before that of the row above it", hint, "time")
        message = "is the only row of its link, which thus has no interval between two times"
        frame.refuse(wrong[1], message, "remove it")
        numbers = {
            role: frame.number(role, 1.0, AMOUNT, str(params.rate_unit))[order] for role in values
        }
        notes.caveats.extend(frame.doubted.values())
        link, time_us = link[order], time_us[order]
        for other in others:
            if (sums := _summaries(frame.text(other), link, order)).any():
                notes.counts["summary_rows"] += int(np.count_nonzero(sums))
                link, time_us, order = link[~sums], time_us[~sums], order[~sums]
                numbers = {role: column[~sums] for role, column in numbers.items()}
        notes.counts["same_time"] += int(np.count_nonzero(~run_starts(link, time_us)))
        for other in others:
            _require_one_link(frame, other, link, time_us, order, numbers, params.kind == "counter")
        if "direction" in frame:
            numbers = {"": np.where(link % 2 == 1, numbers[values[-1]], numbers[values[0]])}
        pieces = []
        for role, column in numbers.items():
            owner, dur_us, rate_bps = _rates(link, time_us, column, source, params, notes)
            ways = role or np.array(DIRECTIONS, object)[owner % 2]
            facts = {"series_id": np.array(ids, object)[owner // 2], "direction": ways}
            pieces.append(pd.DataFrame({**facts, "dur_us": dur_us, "rate_bps": rate_bps}))
        return pd.concat(pieces)


def _summaries(text: tuple[Ints, list[str]], link: Ints, order: Ints) -> Bools:
    """Which rows are sums of those above them, by a column of spans such as 0.0-1.0, as iperf writes it."""
    code, words = text
    spans = [re.fullmatch(r"(\d+(?:\.\d+)?) ?- ?(\d+(?:\.\d+)?)", word) for word in words]
    if not spans or not all(spans):
        return np.zeros(len(order), np.bool_)
    edges = np.array([*([float(n) for n in span.groups()] for span in spans if span), [np.nan] * 2])
    begin, end = edges[code[order]].T
    again = np.append(
        False, (link[1:] == link[:-1]) & (begin[1:] < end[:-1]) & (end[1:] >= end[:-1])
    )
    sums: Bools = again & (end - begin > np.append(0, end[:-1] - begin[:-1]))
    return sums


def _require_one_link(
    frame: Frame,
    column: str,
    link: Ints,
    time_us: Ints,
    order: Ints,
    values: Mapping[str, Floats],
    are_counters: bool,
) -> None:
    """Refuse a column that names several devices or measurements, which take turns or are of the same times.

    Those in numbers are looked for in counters alone, of which each grows, while all of them together do not.
    """
    plain = frame.are_plain_numbers(column)
    if plain and not are_counters:
        return
    code, words = frame.text(column)
    # Few words that take turns, row by row, are the links of a file with several.
    known = np.flatnonzero(code[order] >= 0)
    code, link = code[order][known].astype(np.int64), link[known]
    same, size = ~run_starts(link), np.bincount(link)
    differs, at_once = same & run_starts(code), ~run_starts(link, time_us[known])
    several = 2 * np.bincount(link, differs) >= np.maximum(size, 2)
    several |= 10 * np.bincount(link, differs & at_once) >= np.maximum(size, 1)
    if not several.any():
        return
    pair = link * len(words) + code
    count = np.bincount(pd.unique(pair) // len(words))
    several &= (count >= 2) & (2 * count <= size)
    if plain and several.any():
        own = np.argsort(pair, kind="stable")
        falls, falls_alone = np.zeros((2, len(count)))
        for each in values.values():
            fell = np.diff(each[known], prepend=np.inf) < 0
            falls += np.bincount(link, same & fell)
            fell = np.diff(each[known][own], prepend=np.inf) < 0
            falls_alone += np.bincount(link[own], ~run_starts(pair[own]) & fell)
        several &= (8 * falls >= size) & (4 * falls_alone <= falls)
    if several.any():
        shown = format_names([words[each] for each in pd.unique(code[several[link]])], 4)
        raise frame.error(
            f"the column {column} takes turns between {shown}: are these several devices?",
            f"if so, give -s device={column}, or a column that joins it with another; if not, keep the rows "
            "of one of them, or remove the column",
        )


def _rates(
    link: Ints, time_us: Ints, values: Floats, source: SourceFile, params: Any, notes: Notes
) -> tuple[Ints, Ints, Floats]:
    """The link, length (us) and rate (bit/s) of the interval before each time but the first one of its link."""
    unit, is_counter = str(params.rate_unit), params.kind == "counter"
    if is_counter:
        if unit in RATES:
            raise source.error(f"{unit} is no amount, as counters have", "write, for example, B")
        if (values > 2**53).any():
            raise source.error(
                "a counter is above 2^53, where digits are lost",
                "correct it, or subtract its first value",
            )
        # Over an empty cell, a counter grows on.
        heads = run_starts(link)
        kept = ~np.isnan(values) | heads | np.roll(heads, -1)
        link, time_us, values = link[kept], time_us[kept], values[kept]
    first = run_starts(link, time_us)
    by_time: Any = pd.Series(values).groupby(np.cumsum(first) - 1)
    link, time_us = link[first], time_us[first]
    rest = np.flatnonzero(~run_starts(link))
    link, length_us = link[rest], np.diff(time_us)[rest - 1]
    if unit in RATES:
        rates = by_time.mean().to_numpy()[rest] * RATES[unit]
        limit_us: Any = 1e6 * (params.max_gap or 0)
        if not limit_us:
            limit_us = _GAP * pd.Series(length_us).groupby(link).transform("median").to_numpy()
        gap = length_us > limit_us
        notes.counts["gaps"] += int(np.count_nonzero(gap))
        link, length_us, rates = link[~gap], length_us[~gap], rates[~gap]
    else:
        if is_counter:
            amount = by_time.last().to_numpy(np.float64)
            grown = _grown(amount[rest - 1], amount[rest], notes.counts)
        else:
            amount = by_time.sum(min_count=1).to_numpy()
            grown = amount[rest]
            steps = pd.Series(amount[rest] > amount[rest - 1]).groupby(link).agg(["all", "size"])
            if (steps["all"] & (steps["size"] >= 9)).any():
                raise source.error(
                    "the amounts increase from row to row: are they a counter?",
                    "if so, give -s kind=counter; if not, remove a row",
                )
        rates = grown * AMOUNTS[unit] / (length_us / 1e6)
    notes.counts["missing_rates"] += int(np.count_nonzero(np.isnan(rates)))
    return link, length_us, rates


def _grown(before: Floats, after: Floats, counts: dict[str, int]) -> Floats:
    """How much a counter has grown in each interval; NaN at its resets. A wrap is a fall from the top of its range."""
    grown = after - before
    fell = grown < 0
    wraps = fell & (before > 0.9 * _WRAP) & (before < _WRAP) & (after < 0.1 * _WRAP)
    counts["counter_wraps"] += int(np.count_nonzero(wraps))
    counts["counter_resets"] += int(np.count_nonzero(fell & ~wraps))
    return np.where(wraps, grown + _WRAP, np.where(fell, np.nan, grown))
