"""How fedsim writes numbers and commands: the same in a terminal, on a page, in a page's charts and in a LaTeX table.

``analysis/templates/formatting.js`` holds the same rules in JavaScript; a test compares both on one table of cases.
The exact value is rounded half up, as in JavaScript. Values that are not finite are written as a dash.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import Any, Literal

from fedsim.errors import printable

Kind = Literal["time", "count", "mean", "share", "number", "bytes", "energy", "text"]
"""The type of a value: seconds, a whole number, a mean of whole numbers, a share of 1, any number, bytes, joules, or
text."""

ABSENT = "–"
"""Text for a missing value."""
NAMED = 3
"""Names that a sentence has, before the number of the others."""

_PREFIXES = ("", "k", "M", "G", "T", "P")
_SMALL_UNITS = (("s", 1.0, 0.1), ("ms", 1e3, 1e-4), ("µs", 1e6, 1e-7), ("ns", 1e9, 0.0))
"""Units below a minute: name, how many make a second, and the shortest duration written in them, in seconds."""
_LARGE_UNITS = (
    ("min", 60, 60, "s", 1),
    ("h", 3600, 24, "min", 60),
    ("d", 86_400, 1000, "h", 3600),
)
"""Pairs of units from a minute up: name and seconds of the larger unit, the number of these from which the next pair is
used, and name and seconds of the smaller unit."""
_AXIS_UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "time": ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")),
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
}


def format_value(value: Any, kind: Kind) -> str:
    """The text of a table cell; a value that is text is returned unchanged."""
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else _FORMATS[kind](float(value))


_LONG_S = 1e15
"""Duration from which the digits of whole days say nothing; runs end long before."""


def format_duration(seconds: float) -> str:
    """A duration in its two largest units, rounded: ``3 d 4 h``, ``12 min 5 s``, ``0.25 s``, ``40 ms``.

    From 1,000 days on, whole days.
    """

    def written(value: float) -> str:
        if value < 59.95:
            unit, per_s, _ = next(row for row in _SMALL_UNITS if value >= row[2] or not value)
            return f"{_significant(value * per_s, 3)} {unit}"
        for unit, length, most, smaller, smaller_length in _LARGE_UNITS:
            count, rest = divmod(_whole(value / smaller_length), length // smaller_length)
            if count < most:
                return f"{count} {unit} {rest} {smaller}" if rest else f"{count} {unit}"
        return f"{_whole(value / 86_400):,} d" if value < _LONG_S else f"{value / 86_400:.3g} d"

    return _signed(seconds, written)


def format_count(value: float) -> str:
    """A whole number with thousands separated: ``12,345``."""
    return _signed(value, lambda size: f"{_whole(size):,}")


def format_mean_count(value: float) -> str:
    """A mean of whole numbers with one decimal, unless it is whole: ``66.3``, ``12,345``."""

    def written(size: float) -> str:
        # A mean of equal numbers may have a rounding error.
        is_whole = abs(size - _whole(size)) < 1e-9
        return f"{_whole(size):,}" if is_whole else f"{_rounded(size, 1):,f}"

    return _signed(value, written)


def format_counted(count: int, noun: str) -> str:
    """A whole number and what it counts: ``1 row``, ``12,345 rows``."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def format_share(share: float) -> str:
    """A share in percent with one decimal: ``12.3%``; below 0.1% with one significant digit."""

    def written(value: float) -> str:
        percent = 100.0 * value
        if percent and percent < 0.095:
            return f"{_significant(percent, 1)}%"
        return f"{_fixed(percent, 1)}%"

    return _signed(share, written)


def format_number(value: float) -> str:
    """A number with four significant digits, or all digits of its whole part: ``0.2487``, ``12,345``, ``1.2e-7``."""
    whole_from, whole_below = 999.95, 1e15

    def written(size: float) -> str:
        return f"{_whole(size):,}" if whole_from <= size < whole_below else _significant(size, 4)

    return _signed(value, written)


def format_roughly(value: float) -> str:
    """A number with two significant digits, for one beside its spread: ``13``, ``0.93``, ``1,300``."""
    return format_number(float(f"{value:.2g}"))


def format_times(ratio: float, word: str) -> str:
    """A ratio as a comparison with two significant digits: ``6.8 times as fast``, ``about as many``."""
    text = format_roughly(ratio)
    return f"about as {word}" if text == "1" else f"{text} times as {word}"


def format_speed(
    ratio: float,
    low: float = math.nan,
    high: float = math.nan,
    *,
    rival: str = "",
    spread: str = "",
) -> str:
    """A ratio of speeds and its ends in the direction in which it is at least 1: ``1.2 times as slow, 0.9 to 1.4``,
    ``2.8 times as fast as fedavg, 95% interval 2.6 to 3.2``."""
    if not math.isfinite(ratio):
        return ABSENT
    word = "fast"
    if ratio < 1 and format_roughly(1 / ratio) != "1":
        ratio, low, high, word = 1 / ratio, 1 / high, 1 / low, "slow"
    text = f"{format_times(max(ratio, 1 / ratio), word)}{f' as {rival}' if rival else ''}"
    ends = [format_roughly(end) for end in (low, high)]
    if ends[0] == ends[1] or not math.isfinite(low):
        return text
    return f"{text}, {f'{spread} ' if spread else ''}{' to '.join(ends)}"


def format_bytes(value: float) -> str:
    """A size with an SI prefix and three significant digits: ``1.23 GB``."""
    return _prefixed(value, "B")


def format_rate(bps: float) -> str:
    """A rate of data in bits with an SI prefix and three significant digits: ``12.5 Mbit/s``."""
    return _prefixed(bps, "bit/s")


def format_energy(joules: float) -> str:
    """An energy with an SI prefix and three significant digits: ``4.5 kJ``."""
    return _prefixed(joules, "J")


def format_watt_hours(joules: float) -> str:
    """An energy in watt hours: ``1.25 Wh``."""
    return _prefixed(joules / 3600.0, "Wh")


def format_level(value: float, kind: Kind) -> str:
    """A value that a person chose, without trailing zeros: ``80%`` instead of ``80.0%``."""
    if kind == "share":
        return _signed(value, lambda size: f"{_significant(100.0 * size, 4)}%")
    return format_value(value, kind)


def format_decimals(value: float, decimals: int) -> str:
    """A number with a fixed number of decimals: ``56.67``."""
    return _signed(value, lambda size: f"{_rounded(size, decimals):,f}")


def format_probability(value: float, decimals: int = 2) -> str:
    """An estimated probability, which is never certain: ``0.87``, ``>0.99``, ``<0.01``."""
    text, step = format_decimals(value, decimals), 10.0**-decimals
    least, most = (format_decimals(each, decimals) for each in (step, 1 - step))
    ends = {format_decimals(0, decimals): f"<{least}", format_decimals(1, decimals): f">{most}"}
    return ends.get(text, text)


def format_ratio(ratio: float) -> str:
    """A ratio: ``1.47×``."""
    return _signed(ratio, lambda size: f"{_fixed(size, 2)}×")


def format_difference(value: float, kind: Kind) -> str:
    """A difference with its sign, for shares in percentage points: ``+1.2 pp``, ``−3 min 5 s``, ``±0 s``."""
    if not math.isfinite(value):
        return ABSENT
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    size = abs(value)
    return sign + (f"{_fixed(100.0 * size, 1)} pp" if kind == "share" else format_value(size, kind))


def format_mean(mean: float, spread: float, kind: Kind) -> str:
    """A mean and its standard deviation, if it has one: ``93.0% ± 0.4%``, ``63.0 s ± 4.2 s``, ``4.20 GB ± 0.28 GB``.

    Both have the unit of the larger one and end at the same decimal place, at which the spread has one or two
    significant digits.
    """
    if not math.isfinite(spread) or not math.isfinite(mean):
        return format_value(mean, kind)
    factor, unit = _unit_of_mean(max(abs(mean), spread), kind)
    size = max(abs(mean), spread) / factor
    places = alone = _places(size, kind)
    if spread:
        first = -Decimal(spread / factor).adjusted()
        # A spread from rounding errors does not lengthen the mean.
        places = min(max(alone, first), first + 1, alone + 2)

    def written(value: float) -> str:
        return f"{_rounded(value / factor, places):,f}{unit}"

    return f"{_signed(mean, written)} ± {written(spread)}"


def _unit_of_mean(size: float, kind: Kind) -> tuple[float, str]:
    """The unit of a mean and its spread: its size, and its text after the number."""
    if kind == "share":
        return 0.01, "%"
    if kind == "time":
        below_s = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
        large = (row for row in _AXIS_UNITS["time"] if size >= 2 * row[0])
        small = (row for row in below_s if size >= 0.1 * row[0])
        length, name = next(itertools.chain(large, small), below_s[-1 if size else 0])
        return length, f" {name}"
    if kind in ("bytes", "energy"):
        step = 0
        while size >= 999.5 * 1000.0**step and step < len(_PREFIXES) - 1:
            step += 1
        return 1000.0**step, f" {_PREFIXES[step]}{'B' if kind == 'bytes' else 'J'}"
    if size and not 1e-4 <= size < 1e15:
        exponent = Decimal(size).adjusted()
        return 10.0**exponent, f"e{exponent:+d}"
    return 1.0, ""


def _places(size: float, kind: Kind) -> int:
    """Decimal places of a mean that has no spread."""
    if kind in ("share", "mean", "count"):
        return 1
    digits = 4 if kind == "number" else 3
    return max(0, digits - 1 - Decimal(size).adjusted()) if size else 0


def format_interval(low: float, high: float, written: Callable[[float], str]) -> str:
    """An interval, each end as ``written``: ``1 min to 2 min``, ``0.0 pp to +1.4 pp``; a dash if there is none."""
    if not math.isfinite(low):
        return ABSENT
    # The sign of a difference of zero means nothing at the end of an interval.
    return " to ".join(written(end).removeprefix("±") for end in (low, high))


def format_names(names: Sequence[str], most: int | None = None) -> str:
    """Names in a sentence: ``A``, ``A and B``, ``A, B and C``; beyond ``most`` names, ``A, B and 5 more``."""
    if most is not None and len(names) > most:
        names = [*names[:most], f"{format_count(len(names) - most)} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def format_command(*words: object) -> str:
    """A fedsim command, ready to be pasted into a shell; no path in it begins like an option."""
    texts = ("./" * (isinstance(word, Path) and str(word)[0] == "-") + str(word) for word in words)
    return " ".join(map(format_word, ("fedsim", *texts)))


def format_word(word: str) -> str:
    """A word of a command, quoted if need be; as ``$'\\n'`` if it has characters that do not show."""
    if printable(word, lines=False) == word:
        return shlex.quote(word)
    return f"$'{''.join(map(_in_shell, word))}'"


def _in_shell(character: str) -> str:
    if printable(character, lines=False) == character:
        return f"\\{character}" if character in "\\'" else character
    code = ord(character)
    is_byte = code < 0x80 or 0xDC80 <= code <= 0xDCFF  # Of a name that is not UTF-8.
    return f"\\x{code & 0xFF:02x}" if is_byte else f"\\U{code:08x}"


def axis_unit(value: float, kind: Kind) -> tuple[float, str]:
    """A unit in which an axis or a column reads well.

    Args:
        value: a typical value on it, in seconds or bytes.
        kind: kind of the values.

    Returns:
        Seconds or bytes per unit, and the unit's name; 1 and an empty text for kinds without units.
    """
    units = _AXIS_UNITS.get(kind, ((1.0, ""),))
    return next(
        (unit for unit in units if math.isfinite(value) and value >= 2 * unit[0]), units[-1]
    )


def _signed(value: float, written: Callable[[float], str]) -> str:
    if not math.isfinite(value):
        return ABSENT
    size = abs(float(value))
    return f"−{written(size)}" if value < 0 else written(size)


def _whole(value: float) -> int:
    return int(Decimal(value).to_integral_value(ROUND_HALF_UP))


def _fixed(value: float, decimals: int) -> str:
    return f"{_rounded(value, decimals):f}"


def _rounded(value: float, decimals: int) -> Decimal:
    step = Decimal(1).scaleb(-decimals)
    # The percentage of a huge share is infinite.
    return Decimal(min(value, 1e308)).quantize(step, ROUND_HALF_UP, Context(prec=400))


def _significant(value: float, digits: int) -> str:
    """A number >= 0 without trailing zeros; with an exponent if it is tiny or huge."""
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(value).normalize()
    return f"{rounded:f}" if not rounded or -4 <= rounded.adjusted() < 15 else f"{rounded:e}"


def _prefixed(value: float, unit: str) -> str:
    def written(size: float) -> str:
        step = 0
        while size >= 999.5 and step < len(_PREFIXES) - 1:
            size /= 1000.0
            step += 1
        return f"{_significant(size, 3)} {_PREFIXES[step]}{unit}"

    return _signed(value, written)


_FORMATS: dict[Kind, Callable[[float], str]] = {
    "time": format_duration,
    "count": format_count,
    "mean": format_mean_count,
    "share": format_share,
    "number": format_number,
    "bytes": format_bytes,
    "energy": format_energy,
    "text": format_number,
}


def natural_order(text: str) -> list[tuple[int, int, str]]:
    """A key by which texts are sorted with the numbers in them in their order."""
    # Not as numbers: Python refuses those of more than 4,300 digits.
    pieces = re.findall(r"\d+|\D+", text)
    return [
        (0, len(digits := each.lstrip("0")), digits) if each.isdecimal() else (1, 0, each)
        for each in pieces
    ]
