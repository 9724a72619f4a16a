"""Figures: columns of numbers with a sentence about them.

The page draws the chart of a figure from its columns and shows the same columns as its table, so that chart and table
cannot differ. Titles and explanations are in the page's template.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis import statistics
from fedsim.errors import printable
from fedsim.runs import Run
from fedsim.vocabulary.arrays import Array, Floats, Ints
from fedsim.vocabulary.formatting import ABSENT, Kind, format_duration, format_value

MAX_POINTS, _SAMPLED = 1000, 25
_NUMBER = re.compile(r"[−+±]?[\d.]+|–$")
MAX_BINS = 96
_MAX_INTEGER_BINS = 40
LATE = 0.15
"""Where the late part of a curve begins, as a share of its length."""
COMPRESSED = 0.6
"""The largest share of a curve's range that its late part covers if the early part compresses it."""


@dataclass(frozen=True)
class Column:
    """One column of a figure's table: ``kind`` says how its values are written."""

    key: str
    label: str
    kind: Kind
    values: Sequence[Any] | Array

    @functools.cached_property
    def numeric(self) -> bool:
        """Whether it holds numbers, perhaps written out with units, so that it is aligned to the right."""
        return self.kind != "text" or all(
            isinstance(value, str) and _NUMBER.match(value) for value in self.values
        )


Columns = Sequence[tuple[str, str, Kind]]
"""Columns of a table to show: key, label and kind."""


def columns_of(table: pd.DataFrame, columns: Columns) -> tuple[Column, ...]:
    """The columns of a table that a figure shows, with :func:`printable` text."""
    shown = {key: printable(table[key].tolist(), lines=False) for key, _, _ in columns}
    return tuple(Column(key, label, kind, shown[key]) for key, label, kind in columns)


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        id: name in the page.
        finding: one sentence about its numbers.
        columns: its numbers.
        extra: further values for the chart or the template.
    """

    id: str
    finding: str
    columns: tuple[Column, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For the page's JSON: absent numbers become null."""
        columns = [
            {"key": c.key, "label": c.label, "kind": c.kind, "values": plain(c.values)}
            for c in self.columns
        ]
        return {"columns": columns, **{name: plain(value) for name, value in self.extra.items()}}

    def has_dashes(self, key: str = "") -> bool:
        """Whether the table has absent values, in the column of this key if it is given."""
        return any(
            format_value(value, column.kind) == ABSENT
            for column in self.columns
            if key in ("", column.key)
            for value in column.values
        )

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the table."""
        return list(zip(*(c.values for c in self.columns), strict=True))

    @property
    def sample(self) -> list[tuple[Any, ...]]:
        """Some evenly spaced rows, for readers without scripts."""
        rows = self.rows
        return [rows[row] for row in thin(len(self.columns[0].values), _SAMPLED)]


_READY = (int, str, bool, type(None))


def plain(value: Any) -> Any:
    """A value for JSON: arrays, also inside mappings and lists, become lists; NaN and infinity become None."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        finite = np.isfinite(value)
        if not finite.all():
            value = value.astype(object)
            value[~finite] = None
        return value.tolist()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [item if type(item) in _READY else plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return value


def shortened(values: Floats, digits: int) -> Floats:
    """The numbers rounded to this many significant digits, so that they take less space in a page."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(values)))
    step = 10.0 ** np.clip(digits - 1 - np.where(np.isfinite(size), size, 0.0), -300, 300)
    rounded: Floats = np.round(values * step) / step
    return rounded


def sentence(text: str) -> str:
    """The text with its first letter capitalized and the rest unchanged: ``Macro F1``."""
    return text[:1].upper() + text[1:]


def shares_within(seconds: Floats, subject: str, since: str) -> str:
    """The median and the 90% quantile of durations in words, without a period; one of them if both have one text.

    For example ``Half of the updates arrived within 5 s of their dispatch, nine in ten within 9 s``, with the subject
    ``of the updates arrived`` and ``of their dispatch``.
    """
    half, most, longest = (
        format_duration(float(value)) for value in np.quantile(seconds, (0.5, 0.9, 1))
    )
    if half == most:
        return f"{'All' if most == longest else 'Nine in ten'} {subject} within {most} {since}"
    return f"Half {subject} within {half} {since}, nine in ten within {most}"


def section(run: Run, *keys: str) -> dict[str, Any]:
    """A section of a run's scenario; empty if it is absent or damaged."""
    value: Any = run.scenario
    for key in keys:
        value = value.get(key)
        if not isinstance(value, dict):
            return {}
    return dict(value)


def population(run: Run) -> int:
    """Number of clients; if an earlier version began the run and it has not ended, as far as its files show."""
    if run.has_clients:
        return len(run.clients)
    if clients := run.info.get("clients"):
        return int(clients)
    stated = section(run, "task", "partition").get("clients")
    seen = int(run.dispatches["client_id"].max()) + 1 if len(run.dispatches) else 0
    return max(seen, stated) if isinstance(stated, int) else seen


def costs_by(run: Run, times_s: Floats) -> dict[str, Floats]:
    """``bytes`` moved and ``compute_s`` spent by each instant, over the work that had ended."""
    table = run.work
    moved = table["bytes_down"].to_numpy() + table["bytes_up"].to_numpy()
    return {
        "bytes": statistics.spent_by(table, moved, times_s),
        "compute_s": statistics.spent_by(table, run.work_phases["compute_s"].to_numpy(), times_s),
    }


def names_of(run: Run, clients: Ints) -> list[str] | None:
    """Names of clients: those in the data set, otherwise those of their devices; None if they would only be numbers."""
    if not run.has_clients:
        return None
    table = run.clients.iloc[clients]
    names = table["name"].fillna(table["device"]).fillna("")
    if names.str.fullmatch(r"\D?\d*").all():
        return None
    # Several clients may replay the same device.
    shared = names.duplicated(keep=False) | (names == "")
    return list(np.where(shared, (names + " #" + clients.astype(str)).str.strip(), names))


def thin(count: int, limit: int = MAX_POINTS, keep: Sequence[int] = ()) -> Ints:
    """Row numbers of about ``limit`` evenly spaced rows, including the first, the last and ``keep``."""
    if count <= limit:
        return np.arange(count)
    return np.unique(
        np.r_[np.linspace(0, count - 1, limit).round().astype(np.int64), list(keep)].astype(
            np.int64
        )
    )


_BIN_WIDTHS_S = (
    [1, 2, 5, 10, 15, 30]
    + [60 * m for m in (1, 2, 5, 10, 15, 30)]
    + [3600 * h for h in (1, 2, 3, 6, 12)]
    + [86400 * d for d in (1, 2, 5, 7, 14, 28)]
)


def time_bins(duration_s: float, limit: int = MAX_BINS) -> Floats:
    """Edges of bins of a round width that cover ``[0, duration_s]``, at most ``limit`` bins."""
    if not 0 < duration_s < math.inf:
        return np.array([0.0, 1.0])
    width: float = next((w for w in _BIN_WIDTHS_S if duration_s / w <= limit), 0)
    if duration_s < 10 or not width:
        width = 10.0 ** math.ceil(math.log10(duration_s / limit))
    return np.arange(math.ceil(duration_s / width) + 1, dtype=np.float64) * width


def integer_bins(values: Ints) -> Ints:
    """Edges of equal bins of whole numbers that cover 0 to the largest value."""
    top = int(values.max(initial=0))
    width = 1
    while math.ceil((top + 1) / width) > _MAX_INTEGER_BINS:
        width = next(w for w in (10**k * m for k in range(19) for m in (1, 2, 5)) if w > width)
    return np.arange(math.ceil((top + 1) / width) + 1) * width


def counts_in(values: Array, edges: Array) -> Ints:
    """Number of values in each bin; values beyond the last bin are counted in it."""
    counted: Ints = np.histogram(np.minimum(values, edges[-1]), edges)[0]
    return counted


def histogram(
    id: str,
    finding: str,
    values: Array,
    edges: Array,
    kind: Kind,
    key: str,
    label: str,
    start: str = "from",
) -> Figure:
    """A figure of the numbers of values in bins; those of counts end with their last whole number.

    Args:
        id, finding: as for :class:`Figure`.
        values, kind: the values.
        edges: edges of the bins.
        key: what the values are counted as.
        label, start: what the axis, and the column of the starts of the bins, are called.
    """
    suffix = "_s" if kind == "time" else ""
    ends = edges[1:] - 1 if kind == "count" else edges[1:]
    columns = (
        Column(f"from{suffix}", start, kind, edges[:-1]),
        Column(f"to{suffix}", "to", kind, ends),
        Column(key, key, "count", counts_in(values, edges)),
    )
    return Figure(id, finding, columns, {"bins": label})


def drawn_as_lines(
    *series: Mapping[str, Any], unit: str, log: bool = False, **more: Any
) -> dict[str, Any]:
    """How a page draws columns of a figure as lines over its first column, for ``extra``.

    Args:
        series: per line the ``key`` of its column, and ``color``, ``dash``, ``symbol``, ``plain`` (thinner), ``step``
            (a value holds until the next one), ``fill``, ``points``, ``bare`` (points without a line), ``band`` (keys
            of the two columns between which it is shaded).
        unit: label of the vertical axis.
        log: whether the horizontal axis is logarithmic.
        more: ``label`` of the horizontal axis, ``names`` or ``ticks`` of its values, and whether it goes ``from_zero``;
            ``kind`` of the vertical axis, whether it has a ``zero``, by default if it is one of shares, and ``ylim``;
            ``shades`` from one value to another.
    """
    return {"series": series, "unit": unit, "log": log, **more}
