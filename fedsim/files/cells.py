"""Cells of a table as typed columns: text, numbers in units, and instants.

One reader for all columns that people write by hand or by program. A cell without a value is unknown (null, NaN, NaT),
never a value; a cell that cannot be read is reported, never guessed. Whole columns are converted at once, in Arrow and
NumPy. ``values`` is always an Arrow array or chunked array as the file gives it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, WithJsonSchema

from fedsim.errors import UserError
from fedsim.units import DAY_US, DURATION_UNITS
from fedsim.vocabulary.arrays import Array, Bools, Floats, Ints

if TYPE_CHECKING:
    import pandas as pd


UNKNOWN_TEXT = ("", "nan", "NaN", "null", "NULL", "<NA>", "\\N")
"""Text that is no name and no state."""
UNKNOWN = (
    *UNKNOWN_TEXT,
    *("-", "NA", "N/A", "n/a", "#N/A", "None", "none", "<none>", "<unset>", "NaT"),
)
"""Text that is no number and no instant."""
CONTROL = r"[\x00-\x1f\x7f-\x9f]"
"""Characters that no name may contain, because a terminal would interpret them."""
_WHOLE = re.compile(r"(?<=^[01])\.0+$")
_HEAD = 1000
NAT = np.iinfo(np.int64).min
"""An unknown instant (us)."""
_HOUR_US = 3_600_000_000
FAR_US = 2**62
"""An instant (us) that stands for "never"."""

# Units --------------------------------------------------------------------------------------------------------------

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PREFIXES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_BITS = dict.fromkeys(("b", "bit", "bits"), 1.0)
_BITS |= dict.fromkeys(("B", "byte", "bytes", "Byte", "Bytes"), 8.0)
AMOUNTS: Mapping[str, float] = {
    f"{prefix}{name}": factor * bits
    for prefix, factor in _PREFIXES.items()
    for name, bits in _BITS.items()
} | {"octets": 8.0}
"""Bits of each unit of an amount of data: b is a bit, B is a byte."""
RATES: Mapping[str, float] = {
    f"{name}{per}": bits
    for name, bits in AMOUNTS.items()
    for per in ("/s", "/sec", "ps")
    if per != "ps" or name[-1] in "bB"
} | {"mbps": 1e6, "mbit/s": 1e6, "gbps": 1e9, "gbit/s": 1e9}
"""Bits per second of each unit of a rate."""
UNIX_UNITS: Mapping[str, float] = {
    f"unix_{unit}": DURATION_UNITS[unit] for unit in ("s", "ms", "us", "ns")
}
TIME_UNITS: Mapping[str, float] = {**DURATION_UNITS, **UNIX_UNITS, "excel": 86_400.0}
"""Seconds of each unit of an instant: from time 0, from 1970 on, or in days as spreadsheets count them."""
_EXCEL_S = -2_209_161_600.0
"""Spreadsheets count days from 1899-12-30 on."""


def unit(units: Mapping[str, float], examples: str) -> Any:
    """The type of an option that names one of ``units``."""

    def known(text: object) -> object:
        if text is not None and str(text) not in units:
            raise ValueError(f"'{text}' is not a known unit; write {examples}")
        return text

    return Annotated[
        str | None, BeforeValidator(known), WithJsonSchema({"type": ["string", "null"]})
    ]


RATE_EXAMPLES = "bit/s, kbit/s, Mbit/s (or Mbps), Gbit/s, B/s, kB/s, MB/s (or MBps), MiB/s"
RateUnit = unit(RATES, f"one of {RATE_EXAMPLES}; b is a bit, B is a byte")
DataUnit = unit(
    {**RATES, **AMOUNTS}, f"a rate ({RATE_EXAMPLES}) or an amount (bit, kbit, B, kB, MB)"
)
SpanUnit = Literal["ns", "us", "ms", "s", "min", "h", "d"]
StepUnit = Literal[SpanUnit, "1/s"]
Form = Literal["", "duration", "share"]
"""Numbers that may be written otherwise: durations as 01:30:00 or 8 min, shares as 5%."""
TimeUnit = Literal[SpanUnit, "unix_s", "unix_ms", "unix_us", "unix_ns", "excel"]


@dataclass(frozen=True)
class Bounds:
    """The finite numbers from ``low`` (excluded if ``open_low``) to ``high``; ``words`` may describe them."""

    low: float = -np.inf
    high: float = np.inf
    open_low: bool = False
    words: str = ""

    def contain(self, values: Array) -> Bools:
        """Whether each value is finite and within the bounds; false for NaN. Shape of ``values``."""
        with np.errstate(invalid="ignore"):
            inside = (values > self.low) if self.open_low else (values >= self.low)
            return np.asarray(inside & (values <= self.high) & (np.abs(values) < np.inf))

    def __str__(self) -> str:
        if self.words:
            return self.words
        limits = []
        if self.low > -np.inf:
            limits.append(f"{'more than' if self.open_low else 'at least'} {self.low:g}")
        if self.high < np.inf:
            limits.append(f"at most {self.high:g}")
        return " and ".join(limits)


NOT_NEGATIVE = Bounds(0)
POSITIVE = Bounds(0, open_low=True)
AMOUNT = Bounds(0, 1e280)
"""Amounts and rates that are finite in every unit."""
SHARE = Bounds(0, 1)
TIME_S = Bounds(-(2**62) / 1e6, 2**62 / 1e6, words="within 146,000 years of time 0")

# Text and numbers ---------------------------------------------------------------------------------------------------


def texts(values: Any, *, lower: bool = False) -> tuple[Ints, list[str]]:
    """The index of each cell's word (-1 if unknown), and the words, without surrounding space.

    Numbers become text as they are written: ``007`` stays, and 7.0 is 7. In ``lower`` case, words are states: the texts
    0.0 and 1.0, which pandas writes for 0 and 1 if a cell is empty, are these, too.
    """
    values = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    if not pa.types.is_dictionary(values.type):
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            values = values.cast(pa.string())
        values = values.dictionary_encode()
    number: dict[str, int] = {}
    values = values.unify_dictionaries()
    words = values.chunk(0).dictionary.to_pylist() if values.num_chunks else []
    words = [str(word).strip() for word in words]
    named = [_WHOLE.sub("", word.lower()) for word in words] if lower else words
    unknown = (*UNKNOWN_TEXT, *("na", "n/a", "#n/a") * lower)
    known = [
        -1 if word in unknown else number.setdefault(name, len(number))
        for word, name in zip(words, named, strict=True)
    ]
    chunks = (chunk.indices for chunk in values.chunks)
    indices = [np.asarray(c.fill_null(len(words)) if c.null_count else c, np.int32) for c in chunks]
    codes: Any = np.array([*known, -1], np.int32)[np.concatenate([np.zeros(0, np.int32), *indices])]
    return codes, list(number)


def numbers(values: Any, factor: float = 1.0, form: Form = "") -> tuple[Floats, Bools]:
    """``values`` times ``factor``, NaN if unknown, and the cells that are not numbers. Shape (rows,) each.

    A duration may carry its unit: it becomes seconds, whatever the factor. A share may end in % (a hundredth). A text
    may be ``never`` or the like (infinite).
    """
    kind = values.type
    is_wrong = pa.types.is_duration(kind) and form != "duration"
    if pa.types.is_duration(kind):
        factor = DURATION_UNITS[kind.unit]
        values = values.cast(pa.int64())
    elif pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        values = values.cast(pa.string())
    if not _is_text(values.type):
        floats = values.cast(pa.float64(), safe=False)
    else:
        floats = _cast(values, pa.float64())
    if floats is not None:
        with np.errstate(over="ignore"):  # Bounds refuse what is infinite.
            result = np.asarray(floats, np.float64) * factor
        return result, ~np.isnan(result) & is_wrong
    import pandas as pd

    text = _known(values, UNKNOWN).to_pandas().str.strip()
    percent = text.str.endswith("%").fillna(False).to_numpy(bool)
    plain = text.str.removesuffix("%")
    # A span such as 0 days 00:00:01.5 (pandas), 1-02:00:00 (Slurm), 1 02:00:00 (SQL), 8 hrs 17 min or PT1H carries its
    # unit, too.
    clock = plain.where(plain.str.contains(_SPAN)).str.replace(_DAYS, r"\1 days ", regex=True)
    clock = clock.str.replace(",(?=\\d+S?$)", ".", regex=True)
    is_iso = clock.str.contains("^[Pp]").fillna(False).astype(bool)
    for pattern, name in _SPAN_WORDS:
        clock = clock.where(is_iso, clock.str.replace(pattern, name, regex=True))
    spans = pd.to_timedelta(clock, errors="coerce").dt.total_seconds()
    with np.errstate(over="ignore"):
        result = (
            pd.to_numeric(plain, errors="coerce").to_numpy(np.float64, na_value=np.nan) * factor
        )
    result = np.where(percent, result / factor / 100, result)
    result = np.where(spans.notna(), spans, result)
    result = np.where(text.str.fullmatch(_NEVER).fillna(False).astype(bool), np.inf, result)
    known = text.notna() & ~text.isin(UNKNOWN)
    wrong = np.isnan(result) | (percent & (form != "share"))
    return result, np.asarray(known & (wrong | (spans.notna() & (form != "duration"))))


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    )


def _known(values: Any, unknown: Sequence[str]) -> Any:
    """Text, null where it is one of the ``unknown``."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    hits = pc.is_in(values, value_set=pa.array(unknown, values.type))
    return pc.if_else(hits, None, values) if pc.any(hits).as_py() else values


def _cast(text: Any, kind: Any) -> Any:
    """Text as values of another kind, null where it is unknown; None if there is other text."""
    if not pa.types.is_dictionary(text.type):
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            pass
    try:
        return _known(text, UNKNOWN).cast(kind)
    except pa.ArrowInvalid:
        return None


# Instants -----------------------------------------------------------------------------------------------------------

_STAMP = (
    r"^\d{4}-\d\d-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)?)?$"
)
_ZONED = r"[T ].*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_HALF_DAY = r"\s*(?P<half>[aApP])\.?[mM]\.?\s*$"
# What people write, and what Arrow reads.
_REWRITES = (
    (r"^\s+|\s+$|\[.*\]$", ""),
    (r"(?i)\s*(?:utc|gmt|z)$", "Z"),
    (r"\s+([+-]\d\d:?\d\d)$", r"\1"),
    (r"^(\d{4})[/.](\d\d?)[/.](\d\d?)", r"\1-\2-\3"),
    (r"^((?:19|20)\d\d)(\d\d)(\d\d)(?:$|[T ])?", r"\1-\2-\3 "),
    (r"-(\d)\b", r"-0\1"),
    (r"^([\d-]+)[T ]+(\d\d)(\d\d)(\d\d)?([Z+,.-].*)?$", r"\1 \2:\3:\4\5"),
    (r":([Z+-]|$)", r"\1"),
    (r"[T ]+(\d):", r" 0\1:"),
    (r",(\d+)", r".\1"),
    (r"(\.\d{6})\d+", r"\1"),
    (r"\s+$", ""),
)
HAS_YEAR = "%[YyGcxsDF]"
"""What the form of an instant with a year contains."""
_DAYS = r"^(\d+)(?:-|,? +)(?=\d)"
_SPAN = (
    r"(?i)^[+-]?(?:\d+(?:-|,? +| *days?,? *\+?))?\d+:\d\d?:\d\d?(?:[.,]\d+)?$"
    r"|^P(?!$)(?:\d+[DW])?(?:T(?!$)(?:\d+H)?(?:\d+M)?(?:\d+(?:[.,]\d+)?S)?)?$"
    r"|^(?:\d+ *(?:d(?:ays?)?|h(?:(?:ou)?rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b,? *)+$"
)
_SPAN_WORDS = (
    (r"(?i)(?<=\d) *d(ays?)?\b,?", " D"),
    (r"(?i)(?<=\d) *h[ours]*\b,?", " h"),
    (r"(?i)(?<=\d) *m(in(ute)?s?)?\b,?", " min"),
)
_NEVER = r"(?i)^\s*(?:\+?inf(?:inity)?|never|0000-00-00.*)\s*$"


@dataclass
class Instants:
    """The instants of a column.

    Attributes:
        us: microseconds from 1970-01-01T00:00Z on, or of the local clock from 1970-01-01 on, or from time 0 on; NAT if
            unknown; FAR_US if never. Shape (rows,).
        local: whether each is a time of the local clock.
        bad: cells that cannot be read.
        dated: whether they are instants of a calendar, not times from time 0 on.
        offset: the zone or the offset from UTC that all cells have, such as ``+02:00``; empty if there is none.
    """

    us: Ints
    local: Bools
    bad: Bools
    dated: bool
    offset: str = ""

    def are_dates(self) -> bool:
        """Whether all known instants are at midnight of their clock."""
        parts = self.us[:_HEAD], self.us
        return not any(((us % DAY_US != 0) & (us != NAT) & (us < FAR_US)).any() for us in parts)


def time_zone(name: str | None) -> tzinfo | None:
    """The time zone of this name: ``UTC``, an IANA name, or an offset such as ``+02:00``."""
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


def are_plain_numbers(values: Any) -> bool:
    """Whether the first known cell is a number, and not an instant of any form; its unit must be declared then.

    ``never`` and the like may be written among both.
    """
    if pa.types.is_temporal(values.type):
        return False
    if not _is_text(values.type):
        return True
    some = (_known(part, UNKNOWN).drop_null() for part in (values[:_HEAD], values))
    some = (known.filter(pc.invert(pc.match_substring_regex(known, _NEVER))) for known in some)
    text = next((known for known in some if len(known)), None)
    if text is None:
        return False
    first = text[0].as_py().strip()
    # Digits may be a date without separators: 20240501, 202405010800 or 20240501080000.
    compact = r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{4}(\d\d)?)?"
    number = rf"(?!{compact}$)[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
    return re.fullmatch(number, first) is not None


def instants(values: Any, unit: str | None = None, form: str | None = None) -> Instants:
    """The instants of a column.

    Args:
        values: numbers, timestamps, dates, durations, or text.
        unit: unit of numbers, one of :data:`TIME_UNITS`.
        form: form of text as for ``strptime``; by default ISO 8601 and its usual variants.
    """
    kind = values.type
    if pa.types.is_temporal(kind) and not pa.types.is_time(kind):
        is_dated = not pa.types.is_duration(kind)
        zone = getattr(kind, "tz", None)
        values = values.cast(pa.date64()) if pa.types.is_date32(kind) else values
        unit_s = DURATION_UNITS[getattr(kind, "unit", "ms")]
        # Without safe, the cast cuts nanoseconds off, and wraps what does not fit.
        as_us = pa.timestamp("us", zone) if is_dated else pa.duration("us")
        us = _filled(values.cast(as_us, safe=False).cast(pa.int64()))
        seconds = _filled(values.cast(pa.int64())) * unit_s
        bad = (np.abs(seconds) > TIME_S.high) & (us != NAT)
        local = np.full(len(us), is_dated and zone is None)
        return Instants(us, local, bad, is_dated, "" if zone in (None, "UTC", "Z") else zone)
    if unit is not None and form is None:
        dated = unit in UNIX_UNITS or unit == "excel"
        seconds, bad = numbers(values, TIME_UNITS[unit], "" if dated else "duration")
        if unit == "excel":
            # A spreadsheet shows no more, and its days are not exact.
            seconds = np.round(seconds + _EXCEL_S, 3)
        far = seconds == np.inf
        beyond = np.abs(seconds) > TIME_S.high
        us = (np.where(np.isnan(seconds) | beyond, 0, seconds) * 1e6).round().astype(np.int64)
        us[np.isnan(seconds)], us[far] = NAT, FAR_US
        local = np.full(len(us), unit == "excel")
        return Instants(us, local, bad | (beyond & ~far), dated)
    if not _is_text(kind):
        values = values.cast(pa.string())
    return _stamps(values, form)


def fitting_forms(values: Any) -> list[str]:
    """Forms as for strptime, some of the usual ones, in which all of the first cells are instants."""
    import pandas as pd

    text = _known(values[:_HEAD], UNKNOWN).drop_null().unique().to_pandas().str.strip()
    clocks = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%H:%M:%S %z")
    days = [f"%{a}{s}%{b}{s}%{y}" for s in "./-" for a, b in ("dm", "md", "db") for y in "Yy"]
    days += ["%d %b %Y", "%b %d %Y", "%b %d, %Y", "%a %b %d %Y", "%a %d %b %Y"]
    forms = [
        *days,
        *(f"{day}{mark}{clock}" for day in days for clock in clocks for mark in (" ", ", ", ":")),
    ]
    forms += [
        "%a %b %d %H:%M:%S %Y",
        "%a, %d %b %Y %H:%M:%S %z",
        "%b %d %H:%M:%S",
        "%Y.%m.%d_%H.%M.%S",
    ]
    forms += ["%Y-%m-%d-%H:%M:%S", "%Y-%m-%d_%H:%M:%S"]
    return [
        form
        for form in forms
        if len(text) and pd.to_datetime(text, format=form, errors="coerce").notna().all()
    ]


def are_rounded(values: Any) -> Bools:
    """Which cells are Unix times of too few digits for a second: with an exponent, such as 1.71455E+12, or float32."""
    if pa.types.is_float32(values.type):
        return np.asarray(pc.greater_equal(values, 2.0**24).fill_null(False))
    if not _is_text(values.type):
        return np.zeros(len(values), np.bool_)
    short = pc.match_substring_regex(values.cast(pa.string()), r"^\s*\d\.\d{1,8}[eE]\+?\d+\s*$")
    return np.asarray(short.fill_null(False))


def with_years(columns: Sequence[Sequence[Any]], form: str, year: int) -> list[Any]:
    """Columns of instants without a year, in chunks of text, with the year in front: that of the first row, and later.

    A fall by half a year or more, from row to row or from the first instant of a row to another one, is a new year; a
    rise from row to row by as much, of rows that are not quite in order, the old one.
    """
    import pandas as pd

    plain = [
        _known(pa.chunked_array(text, pa.string()), UNKNOWN).to_pandas().astype(object)
        for text in columns
    ]
    some_leap_year = [
        pd.to_datetime("2000 " + text, format=f"%Y {form}", errors="coerce") for text in plain
    ]
    first = functools.reduce(pd.Series.combine_first, some_leap_year).ffill()
    half = pd.Timedelta(days=183)
    step = first.diff() / half
    years = year + (step < -1).cumsum() - (step > 1).cumsum()
    return [
        pa.array(
            (years + ((instant - first) / half < -1)).astype(str) + " " + text,
            pa.string(),
            from_pandas=True,
        )
        for instant, text in zip(some_leap_year, plain, strict=True)
    ]


def _filled(us: Any) -> Ints:
    return np.asarray(us.fill_null(NAT) if us.null_count else us, np.int64)


def _stamps(values: Any, form: str | None) -> Instants:
    """The instants of text."""
    local, bad = np.zeros((2, len(values)), np.bool_)
    if form is None:
        for zone in ("UTC", None):
            if (us := _cast(values, pa.timestamp("us", zone))) is not None:
                offset = _common_offset(_known(values[:_HEAD], UNKNOWN)) and _common_offset(
                    _known(values, UNKNOWN)
                )
                return Instants(
                    _filled(us.cast(pa.int64())), local | (zone is None), bad, True, offset
                )
    import pandas as pd

    text = _known(values, UNKNOWN)
    is_never = np.asarray(pc.match_substring_regex(text, _NEVER).fill_null(False))
    if form is not None:
        form = re.sub("(?<!%)Z$", "%z", form)  # A Z at the end is UTC.
        plain = text.to_pandas().str.strip()
        if not re.search(HAS_YEAR, form):
            # In some leap year.
            plain, form = "2000 " + plain, f"%Y {form}"
        has_zone = "%z" in form or "%Z" in form
        read: Any = functools.partial(pd.to_datetime, errors="coerce", utc=has_zone)
        parsed = read(plain, format=form)
        # pandas takes the seconds 60 and 61 for those of the next minute.
        for second in (60, 61) * ("%S" in form):
            some = plain.where(parsed.dt.second < 2)
            late = read(some, format=form.replace("%S", str(second)))
            parsed = parsed.mask(late + pd.Timedelta(second, "s") == parsed)
        local |= parsed.dt.tz is None
    else:
        half = pc.extract_regex(text, _HALF_DAY)
        rewritten = pc.replace_substring_regex(text, _HALF_DAY, "")
        for pattern, replacement in _REWRITES:
            rewritten = pc.replace_substring_regex(rewritten, pattern, replacement)
        shaped = pc.match_substring_regex(rewritten, _STAMP)
        plain = pc.if_else(shaped, rewritten, None)
        zoned = pc.match_substring_regex(rewritten, _ZONED).fill_null(False)
        local = ~np.asarray(zoned)
        # A half of the day behind the offset would be that of UTC.
        plain = pc.if_else(pc.and_(zoned, half.is_valid()), None, plain)
        parsed = _parse(pc.if_else(zoned, plain, None), "UTC").fillna(
            _parse(pc.if_else(zoned, None, plain), None).dt.tz_localize("UTC")
        )
        if half.null_count < len(half):
            letter = pd.Series(pc.struct_field(half, "half").to_pandas()).str.lower()
            hour = parsed.dt.hour
            turn = ((letter == "p") & (hour < 12)) * 12 - ((letter == "a") & (hour == 12)) * 12
            parsed += pd.to_timedelta(turn, unit="h")
    us = np.where(parsed.isna(), NAT, parsed.dt.tz_localize(None).astype("M8[us]").astype(np.int64))
    bad = np.asarray(text.is_valid()) & parsed.isna().to_numpy() & ~is_never
    us[is_never] = FAR_US
    return Instants(us, local & ~is_never, bad, True, _common_offset(text))


def _parse(text: Any, zone: str | None) -> pd.Series[Any]:
    """Timestamps of ISO 8601 text; NaT where there is none, or no such day or hour."""
    import pandas as pd

    parsed: pd.Series[Any]
    try:
        parsed = text.cast(pa.timestamp("us", zone)).to_pandas()
        return parsed.astype("datetime64[us, UTC]") if zone else parsed.astype("datetime64[us]")
    except pa.ArrowInvalid:
        objects = pd.Series(text.to_pandas(), dtype=object)
        parsed = pd.to_datetime(objects, format="ISO8601", errors="coerce", utc=True)
        return parsed if zone else parsed.dt.tz_localize(None)


def _common_offset(text: Any) -> str:
    """The offset from UTC at the end of all cells, such as ``+02:00``; empty if there is none."""
    known = text.drop_null()
    match = re.search(r"\d([+-]\d\d:?\d\d)$", known[0].as_py()) if len(known) else None
    if match is None or not pc.all(pc.ends_with(known, match[1])).as_py():
        return ""
    return match[1]


def localize(
    us: Ints, local: Bools, zone: tzinfo, group: Ints | None = None
) -> tuple[Ints, Bools, int]:
    """Instants of UTC from times of the local clock, which of them the clock never showed, and how many stay unclear.

    A time that clocks show twice is the first of the two, unless the same device has a later time of that hour before
    it: then it is the second. Rows may also begin with the last; where they are in no order, such a time is unclear.

    Args:
        us: instants of the local clock (us) where ``local``, else of UTC; shape (rows,) or (rows, columns).
        local: whether each is a time of the local clock.
        zone: its zone.
        group: the device of each row; None: one.
    """
    import pandas as pd

    # Python knows the zones of years with four digits.
    cells_ = np.flatnonzero(local & (np.abs(us) < 10**16))
    naive = pd.DatetimeIndex(us.ravel()[cells_].view("M8[us]"))
    early, late = (
        naive.tz_localize(zone, ambiguous=np.full(len(cells_), first), nonexistent="NaT").asi8
        for first in (True, False)
    )
    result, skipped = us.copy(), np.zeros(us.shape, np.bool_)
    result.flat[cells_], skipped.flat[cells_] = early, early == NAT
    twice = np.flatnonzero(early != late)
    if not len(twice):
        return result, skipped, 0
    known = np.where(np.abs(us) < 10**16, us, np.nan).reshape(len(us), -1)
    owner = np.zeros(len(us), np.int64) if group is None else group
    ends = pd.DataFrame({row: row.reduce(known, axis=1) for row in (np.fmin, np.fmax)})
    steps = ends.groupby(owner).diff()
    falls = (np.sign(steps).sum(axis=1).groupby(owner).transform("sum") < 0).to_numpy()
    # Clocks that are put back go an hour back; rows that go farther back are in no order.
    strays = (steps.mul(np.where(falls, -1, 1), axis=0) < -_HOUR_US).all(axis=1)
    strays |= strays.groupby(owner).shift(-1, fill_value=False)
    row, column = np.divmod(cells_[twice], known.shape[1])
    order = np.lexsort((column, np.where(falls[row], -row, row)))
    row, twice = row[order], twice[order]
    night = [owner[row], early[twice] // 43_200_000_000]
    clock = pd.Series(us.flat[cells_[twice]])
    second = (clock < clock.groupby(night).cummax()).groupby(night).cummax()
    second &= ~pd.Series(strays.to_numpy()[row]).groupby(night).transform("any")
    unclear = ~second.groupby(night).transform("any")
    result.flat[cells_[twice[second]]] = late[twice[second]]
    return result, skipped, int(unclear.sum())


def fitting_unit(us: Ints, given: str | None) -> str | None:
    """The unit in which numbers would be instants between 2000 and 2099, if they are not in the ``given`` unit."""
    if given not in (*UNIX_UNITS, "s", "ms", "us", "ns"):
        return None
    known = us[(us != NAT) & (us < FAR_US)]
    if not len(known):
        return None
    seconds = float(np.median(np.abs(known))) / 1e6
    if given in UNIX_UNITS and _is_recent(seconds):
        return None
    return recent_unit(np.array([seconds / TIME_UNITS[given]]))


def _is_recent(seconds: float) -> bool:
    return 946_684_800 <= seconds <= 4_070_908_800


def recent_unit(numbers: Floats) -> str | None:
    """The unit in which numbers are instants between 2000 and 2099; None if there is none."""
    known = np.abs(numbers[np.isfinite(numbers)])
    middle = float(np.median(known)) if len(known) else 0.0
    return next((unit for unit, size in UNIX_UNITS.items() if _is_recent(middle * size)), None)


def are_days(numbers: Floats, first: float = 36_526, last: float = 73_050) -> bool:
    """Whether most numbers are days with times of day; by default those of a spreadsheet between 2000 and 2099."""
    days = numbers[(numbers > first) & (numbers < last)]
    return bool(2 * np.count_nonzero(days % 1) > np.count_nonzero(np.isfinite(numbers)))
