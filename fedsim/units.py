"""Units of fedsim's input and output: durations, sizes and rates.

Internally, time is integer nanoseconds (``_ns``) so that ties are real ties; files and pages carry seconds (``_s``),
bytes (``_bytes``), SI bits per second (``_bps``) and joules (``_j``) as float64.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

NS_PER_S = 1_000_000_000
NS_PER_US = 1_000
US_PER_S = 1_000_000
DAY_S = 86_400
DAY_US = DAY_S * US_PER_S
NEVER = 2**62
"""The end of the clock, and the time (ns) of an event that never happens: every instant of a run is earlier."""
CLOCK_YEARS = int(NEVER / NS_PER_S / (365.25 * DAY_S))
"""Whole years that the clock counts."""

LONGEST_S = 3.2e9
"""The longest duration that may be given, about a hundred years, which the clock counts (:data:`NEVER`)."""

DURATION_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_COARSEST = {"h": 360_000.0, "min": 6000.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Durations in seconds from which :func:`duration_at_least` uses a unit."""
SIZE_UNITS = {
    "B": 1.0,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}
RATE_UNITS = {"bps": 1.0, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*\Z")
_WITH_COMMA = re.compile(r"([+-]?\d+),(\d+)((?:[eE][+-]?\d+)?\s*[A-Za-z%]*)")


def share_of(value: object) -> str:
    """The number to write instead of a percentage: ``"0.9"`` for ``"90%"``; empty if it is not one."""
    text = str(value).strip()
    try:
        return str(float(f"{text[:-1].strip()}e-2")) if text.endswith("%") else ""
    except ValueError:
        return ""


def without_comma(value: object) -> str:
    """How to write a number with a comma, as a hint: ``0.1`` for ``"0,1"``; empty if it is not one."""
    # Of 1.298,8 as of 1298,8.
    text = re.sub(r"(?<=\d)\.(?=\d{3}[.,])", "", str(value).strip())
    match = _WITH_COMMA.fullmatch(text)
    if match is None:
        return ""
    whole, decimals, unit = match.groups()
    number = f"{whole}.{decimals}{unit}"
    if len(decimals) == 3 and whole.strip("+-0"):
        return f"write {whole}{decimals}{unit}, or {number} if the comma is a decimal point"
    return f"decimal numbers are written with a point: {number}"


def parse_quantity(value: object, units: dict[str, float], kind: str, base: str) -> float:
    """Turn ``"90s"``, ``"25MB"`` or a plain number (in the base unit) into a finite number >= 0.

    Raises:
        ValueError: not a number with one of the ``units``, not finite, or negative.
    """
    example = ", ".join(f"12{unit}" for unit in list(units)[-3:])
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"is not a {kind}: give a number of {base} or text such as {example}")
    if isinstance(value, str):
        match = _QUANTITY.match(value)
        if match is None:
            instead = without_comma(value) or f"write a number and a unit, such as {example}"
            raise ValueError(f"'{value}' is not a {kind}: {instead}")
        number, unit = float(match.group(1)), match.group(2)
        if unit and unit not in units:
            meant = next((known for known in units if known.lower() == unit.lower()), "")
            if meant.endswith("bps") and "B" in unit:  # Bytes; rates are in bits.
                number *= 8
            raise ValueError(
                f"'{value}' has no known unit of a {kind}: "
                + (
                    f"did you mean {number:g}{meant}?"
                    if meant
                    else f"use one of {', '.join(units)}"
                    if any(units)
                    else "write none"
                )
            )
        result = number * units[unit] if unit else number
    else:
        result = float(str(value))  # Infinite if it is an integer that is too large.
    if not math.isfinite(result):
        raise ValueError(f"{value!r} is not a finite {kind}")
    if not result and re.match(r"\s*[+-]?[0.]*[1-9]", str(value)):
        raise ValueError(f"{value!r} is too small a {kind}")
    if result < 0:
        raise ValueError(f"{value!r} is negative; a {kind} is zero or more")
    return result


def parse_duration_s(value: object) -> float:
    """Seconds from a number or text such as ``"90s"``, ``"15min"``, ``"7d"``; at most :data:`LONGEST_S`."""
    result = parse_quantity(value, DURATION_UNITS, "duration", "seconds")
    if result > LONGEST_S:
        raise ValueError(f"{value!r} is longer than a hundred years")
    return result


def duration_at_least(seconds: float) -> str:
    """A duration to write in a scenario, rounded up to three digits or whole units: ``151s``, ``241min``."""
    # Ten nanoseconds are rounding, which would add a whole unit.
    seconds = max(seconds - 1e-8, 0.0)
    unit = next((unit for unit, least_s in _COARSEST.items() if seconds >= least_s), "ns")
    amount = Decimal(seconds) / Decimal(str(DURATION_UNITS[unit]))
    places = max(0, 2 - amount.adjusted())
    rounded = amount.quantize(Decimal(1).scaleb(-places), ROUND_CEILING)
    return f"{rounded.normalize():f}{unit}"


def parse_size_bytes(value: object) -> float:
    """Bytes from a number or text such as ``"25MB"`` (SI) or ``"4KiB"``."""
    return parse_quantity(value, SIZE_UNITS, "size", "bytes")


def parse_rate_bps(value: object) -> float:
    """SI bits per second from a number or text such as ``"20Mbps"``."""
    return parse_quantity(value, RATE_UNITS, "rate", "bits per second")


_QUANTITY_SCHEMA = WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]})

Duration = Annotated[float, BeforeValidator(parse_duration_s), _QUANTITY_SCHEMA]
"""Seconds; written as a number or with a unit: ns, us, ms, s, min, h, d."""

Size = Annotated[float, BeforeValidator(parse_size_bytes), _QUANTITY_SCHEMA]
"""Bytes; written as a number or with a unit: B, kB, MB, GB, KiB, MiB, GiB."""

Rate = Annotated[float, BeforeValidator(parse_rate_bps), _QUANTITY_SCHEMA]
"""Bits per second (SI); written as a number or with a unit: bps, kbps, Mbps, Gbps."""

Level = Annotated[
    float,
    BeforeValidator(lambda value: share_of(value) or value),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
]
"""A value of a metric; written as a number, or as a percentage, which is a share: 90%."""


def to_ns(seconds: float) -> int:
    """Integer nanoseconds nearest to ``seconds``; the only conversion of seconds to simulated time.

    Raises:
        ValueError: not finite.
    """
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds!r} seconds is not a finite time")
    return round(seconds * NS_PER_S)


def to_s(time_ns: int) -> float:
    """Seconds of an integer nanosecond time."""
    return time_ns / NS_PER_S
