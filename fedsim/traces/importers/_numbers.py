"""Numbers in source files, declared once per column: the values that a cell may have, and the error for any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fedsim.errors import UserError
from fedsim.traces.tables import NOT_NEGATIVE, Bounds, Floats, Ints

# The clock covers 2**62 us, which is 146,000 years.
TIME_S = Bounds(-(2**62) / 1e6, 2**62 / 1e6, words="within 146,000 years of time 0")

RateUnit = Literal["bps", "kbps", "Mbps", "Gbps", "B/s", "kB/s", "MB/s", "KiB/s", "MiB/s"]
_BITS: tuple[float, ...] = (1.0, 1e3, 1e6, 1e9, 8.0, 8e3, 8e6, 8.0 * 2**10, 8.0 * 2**20)
RATE_UNITS: Mapping[str, float] = dict(zip(get_args(RateUnit), _BITS, strict=True))
"""Bits per second of each unit."""


@dataclass(frozen=True)
class Number:
    """A column or field of numbers.

    Args:
        name: its name in the source.
        unit: unit of the values, for messages.
        bounds: range of valid numbers.
        missing: values that mean an unknown number, such as ``""`` in text and ``None`` in JSON.
        whole: whether only integers are valid.
    """

    name: str
    unit: str = ""
    bounds: Bounds = NOT_NEGATIVE
    missing: tuple[str | None, ...] = ()
    whole: bool = False

    def read(self, values: Sequence[Any], where: Callable[[int], str]) -> Floats:
        """``values``, numbers or strings, as float64; NaN if missing. Shape of ``values``.

        ``where`` returns the location of the cell with an index, for messages.
        """
        plain = not self.whole and len(values) and not isinstance(values[0], str)
        cells = values if plain else map(self._parsed, values)
        try:
            numbers = np.fromiter(cells, np.float64, len(values))
        except (TypeError, ValueError, OverflowError):
            numbers = np.array([self._parsed_or_nan(value) for value in values], np.float64)
        good = self.bounds.contain(numbers)
        for row in np.flatnonzero(~good).tolist():
            if values[row] not in self.missing:
                raise UserError(
                    f"{self.name} is {_shown(values[row])}", where=where(row), hint=self.rule
                )
        return numbers

    @property
    def rule(self) -> str:
        """The values that a cell may have, as a hint."""
        kind = "whole number" if self.whole else "number"
        bounds = f" {'' if self.bounds.words else 'of '}{self.bounds}"
        unit = f" (in {self.unit})" if self.unit else ""
        unknown = " or ".join(repr(word) if word else "empty" for word in self.missing)
        alternative = f", or {unknown} if unknown" if unknown else ""
        return f"it must be a {kind}{unit}{bounds}{alternative}"

    def _parsed(self, value: Any) -> float:
        if self.missing and value in self.missing:
            return np.nan
        if self.whole:
            return int(value) if isinstance(value, str | int) else _no_number()
        if isinstance(value, str) and "_" in value:
            return _no_number()
        return float(value)

    def _parsed_or_nan(self, value: Any) -> float:
        try:
            return self._parsed(value)
        except (TypeError, ValueError, OverflowError):
            return np.nan


def _no_number() -> float:
    raise ValueError


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def microseconds(seconds: Floats) -> Ints:
    """``seconds`` rounded to integer microseconds; they must be finite and within 146,000 years."""
    return np.asarray(np.rint(seconds * 1e6).astype(np.int64))
