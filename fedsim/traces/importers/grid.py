"""Carbon intensity and prices of the electricity grid: tables with one row per interval, of one region or several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from fedsim.errors import UserError
from fedsim.files import cells
from fedsim.files.cells import AMOUNT
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.tables import CARBON_UNIT, id_column
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.formatting import format_names

_GRAMS = {"g": 1.0, "gram": 1.0, "kg": 1e3, "t": 1e6, "tonne": 1e6, "lb": 453.59237}
_GRAMS["pound"] = _GRAMS["lb"]
_CURRENCIES = {"€": "EUR", "£": "GBP", "$": "USD"}
_OTHERS = {"GBp", "GBX", "ton", "Ton", "TON", "cwt"}
"""Pence and masses, which have three letters, too."""
_PER_KWH = {"k": 1.0, "m": 1e-3, "g": 1e-6}
_UNIT = re.compile(
    r"(?<![a-zµμ\d])([a-z]+?|[€£$])[ _]*(?:co[2₂][ _-]*(?:eq?)?)?[ _]*(?:/|per)[ _]*([kmg])(wh)",
    re.I,
)
_UNITS = (
    "give it as g, kg, t, lb or a currency per kWh or MWh: unit=g/kWh, unit=lb/MWh, unit=EUR/MWh"
)
_BRITISH = ("actual", "CARBON_INTENSITY")
"""Columns in g/kWh that do not say so: of the service of Great Britain, and of its operator's archive."""
# What names of columns contain, the best first.
_TIMES = ("utc", "datetime", "^from$", "time(?!.?zone)", "^date")
_CARBON = ("life.?cycle|lca", "^actual$|actual.*intensity", "intensity")
_PRICES = ("price",)
_REGIONS = ("zone id", "region", "zone", "zone name", "country")
_Unit = tuple[str, float]
"""A unit in the bundle, ``g/kWh`` or a currency per kWh, and the factor that converts to it."""


class Grid(Importer):
    """One row per interval and region; the header names the columns and the unit.

    It has a column of times (ISO 8601 timestamps; without an offset, in UTC), one of carbon intensity (life-cycle
    intensity if there are several) or prices, in g, kg, t, lb or a currency per kWh or MWh, and one of regions, such as
    ``Zone id``, if there are several. The last interval is as long as most are. A value that is empty, ``-`` or
    ``nan``, or that only other regions have, is unknown, as is that of a missing interval; a run uses the last one
    before it, or else the first one.
    """

    name = "grid"
    description = "carbon intensity (Electricity Maps, Great Britain) or prices of the grid"
    signature = r"(?i)\A.*\n.*(carbon.?intensity|\bfrom,to,forecast,actual|price[^,\n]*[/_]\w?wh)"

    class Params(ImporterParams):
        """Options of the grid importer."""

        column: str | None = None
        """Column of the values, if its name does not say so or several do."""
        unit: str | None = None
        """Unit of the values, such as ``g/kWh``, ``lb/MWh`` or ``EUR/MWh``; by default the one in the header."""
        regions: tuple[str, ...] = ()
        """Regions to import, by the names in any column of regions, or in the file's name; by default all."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device per region, whose group it is; a file without a column of regions is one of its name."""
        caveats = list[str]()
        table = pd.concat([each for source in sources for each in _pieces(source, params, caveats)])
        begin = table["begin"].iloc[0]
        if len(other := table[table["begin"] != begin]):
            file, first = other.iloc[0], table.iloc[0]
            raise UserError(
                f"begins at {file['begin']}, but {first['where']} at {begin}",
                where=file["where"],
                hint="import files of other times on their own",
            )
        region, ids = pd.factorize(table["region"])
        ends = (table["start_us"] + table["dur_us"]).groupby(region).max().to_numpy()
        rows = {name: table[name].to_numpy() for name in ("unit", "start_us", "dur_us", "value")}
        tables = {
            "devices": {"device_id": ids, "window_end_us": ends, "kind": "site", "group": ids},
            "grid": {"region": id_column(region, ids), **rows},
        }
        counts = {
            "unknown_values": int(table["value"].isna().sum()),
            "missing_intervals": int(table.groupby("where")["missing"].first().sum()),
        }
        return Imported(
            tables, counts, [*dict.fromkeys(caveats)], clock="utc", epoch=begin.isoformat()
        )


def _pieces(source: SourceFile, params: Grid.Params, caveats: list[str]) -> Iterator[pd.DataFrame]:
    """The series of one file. Adds to ``caveats``."""
    file = TableFile(source)
    value_columns = _value_columns(source, file.names, params)
    time = _only(source, "times", [_matching(word, file.names) for word in _TIMES])
    if time is None:
        raise source.error("has no column of times", f"its columns are {format_names(file.names)}")
    zones = [name for word in _REGIONS for name in file.names if name.lower() == word]
    used = [time, *value_columns, *zones]
    frame = Frame([file], {name: name for name in used}).load(used, zones)
    moments = frame.instants(time)
    frame.refuse(moments.us == cells.NAT, f"{time} is empty")
    mixed = moments.local != moments.local[:1].all()
    message = f"{time} is {{}}, which differs from the first one in having an offset"
    frame.refuse(mixed, message, "write an offset from UTC in all rows or in none", time)
    begins_us, interval = np.unique(moments.us, return_inverse=True)
    if len(begins_us) < 2:
        raise source.error("has fewer than two intervals")
    spans, often = np.unique(np.diff(begins_us), return_counts=True)
    table = pd.DataFrame({"start_us": begins_us - begins_us[0]})
    table["dur_us"] = spans_us = np.append(np.diff(begins_us), spans[often.argmax()])
    # The length of intervals may change in the course of a file; one longer than both of its neighbours is a gap.
    usual_us = np.maximum(np.roll(spans_us, 1), np.roll(spans_us, -1))
    gaps = spans_us > 1.5 * usual_us
    missing = round(float((spans_us / usual_us - 1)[gaps].sum()))
    begin = pd.Timestamp(begins_us[0], unit="us", tz="UTC")
    for region, rows in _regions(frame, zones, params.regions).items():
        _, first = np.unique(interval[rows], return_index=True)
        repeated = np.zeros(len(frame), np.bool_)
        repeated[np.delete(rows, first)] = True
        frame.refuse(
            repeated,
            f"{time} is {{}}, as in an earlier row of the same region",
            "where clocks are set back, write times in UTC or with an offset (2024-10-27T02:00+01:00); several "
            "regions need a column 'Zone id'",
            time,
        )
        for column, (unit, factor) in value_columns.items():
            # A value that only other regions have need not be a number of this one.
            bounds = AMOUNT if unit == CARBON_UNIT else replace(AMOUNT, low=-AMOUNT.high)
            known = frame.number(column, 1.0, bounds)[rows]
            caveats += frame.doubted.values()
            intervals = len(rows) + missing
            if 2 * (count := int(np.count_nonzero(~np.isnan(known)))) < intervals:
                raise source.error(
                    f"has a value of '{column}' in {count} of {intervals} intervals of the region '{region}'",
                    "half of the values must be known",
                )
            values = np.full(len(begins_us), np.nan)
            values[interval[rows]] = known * factor
            facts: dict[str, Any] = {
                "region": region,
                "unit": unit,
                "begin": begin,
                "where": source.where,
                "missing": missing,
            }
            yield table.assign(value=values, **facts)


def _value_columns(
    source: SourceFile, names: Iterable[str], params: Grid.Params
) -> dict[str, _Unit]:
    """The columns of carbon intensity and of prices, with their units."""
    stated = _unit(params.unit or "")
    if params.unit is not None and stated is None:
        raise source.error(f"cannot be read in the unit '{params.unit}'", _UNITS)
    units = {name: _unit(name) for name in names}
    chosen = [name for name in units if name == params.column]
    for what, words in (("carbon intensity", _CARBON), ("prices", _PRICES)):
        fits = [name for name, unit in units.items() if unit is None or measured(unit[0]) == what]
        in_unit = [name for name in fits if units[name] is not None]
        # Prices without a unit are not meant if there is carbon intensity.
        levels = [*(_matching(word, in_unit if chosen else fits) for word in words), in_unit]
        if params.column is None and (stated is None or measured(stated[0]) == what):
            chosen += filter(None, [_only(source, what, levels)])
    if not chosen:
        what = f"'{params.column}'" if params.column else "of carbon intensity or prices"
        raise source.error(f"has no column {what}", f"its columns are {format_names([*units])}")
    result = {name: unit for name in chosen if (unit := stated or units[name])}
    if len(result) < len(chosen):
        raise source.error(f"does not give the unit of '{chosen[0]}'", _UNITS)
    return result


def measured(unit: str) -> str:
    """What a unit of the table ``grid`` measures."""
    return "carbon intensity" if unit == CARBON_UNIT else "prices"


def _unit(text: str) -> _Unit | None:
    """The unit in a text, such as ``gCO2eq/kWh``, ``lbs_per_MWh`` or ``Price (EUR/MWh)``; None without one."""
    if text in _BRITISH:
        return CARBON_UNIT, 1.0
    for amount, energy, wh in _UNIT.findall(text):
        if f"{energy}{wh}" == "mWh":  # A milliwatt-hour.
            continue
        factor = _PER_KWH[energy.lower()]
        if (grams := _GRAMS.get(amount.lower().removesuffix("s"))) is not None:
            return CARBON_UNIT, grams * factor
        currency = _CURRENCIES.get(amount, amount.upper())
        if len(currency) == 3 and amount not in _OTHERS:
            return f"{currency}/kWh", factor
    return None


def _only(source: SourceFile, what: str, levels: Iterable[Sequence[str]]) -> str | None:
    """The only name of the first level that has any; None if none has."""
    names = next(filter(None, levels), ())
    if len(names) > 1:
        raise source.error(
            f"has several columns of {what}: {format_names(names)}",
            "name that of the values (column=...), or remove the others",
        )
    return names[0] if names else None


def _matching(word: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if re.search(word, name, re.I)]


def _regions(frame: Frame, zones: Sequence[str], wanted: Sequence[str]) -> dict[str, Ints]:
    """The rows of each region."""
    source = frame.files[0].source
    if not zones:
        stem = PurePath(source.name).stem
        if wanted and wanted[0] not in stem:
            message = f"has no column of regions, such as 'Zone id', for '{wanted[0]}'"
            hint = f"its columns are {format_names(frame.files[0].names)}"
            raise source.error(message, hint)
        return {wanted[0] if wanted else stem: np.arange(len(frame))}
    texts = {name: frame.text(name) for name in zones}
    zone = next((name for name, (_, words) in texts.items() if set(wanted) <= set(words)), zones[0])
    code, words = texts[zone]
    frame.refuse(code < 0, f"{zone} is {{}}", "name the region in each row", zone)
    if missing := [name for name in wanted if name not in words]:
        raise source.error(
            f"has no row whose '{zone}' is '{missing[0]}'",
            f"its regions are {format_names(words, 20)}",
        )
    return {name: np.flatnonzero(code == words.index(name)) for name in wanted or words}
