"""The look of a comparison's figure: its metrics and ranges, and its size and fonts for a venue."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

from fedsim.analysis.comparison.facts import COSTS, require_cost
from fedsim.errors import UserError, nearest_or_all, similar
from fedsim.units import parse_duration_s, parse_size_bytes, share_of, without_comma
from fedsim.vocabulary.formatting import Kind

Limits = tuple[float | None, float | None]
"""Ends of an axis; None if they follow from the data."""
Log = Literal["x", "y", "xy", "logit"]
LOGS: tuple[str, ...] = get_args(Log)

_TIMES = ("Times New Roman", "Times", "Nimbus Roman", "TeX Gyre Termes", "STIXGeneral")
_LIBERTINE = ("Linux Libertine O", "Linux Libertine", "Libertinus Serif", *_TIMES)
_HELVETICA = ("Helvetica", "Arial", "Nimbus Sans", "TeX Gyre Heros", "DejaVu Sans")


class Venue(NamedTuple):
    """Widths of a column and of the text in inches, the fonts, and the size of a figure's text in points."""

    column: float
    text: float
    fonts: tuple[str, ...]
    size: float


VENUES = {
    "acm": Venue(3.33, 7.0, _LIBERTINE, 8),
    "iclr": Venue(5.5, 5.5, _TIMES, 8),
    "icml": Venue(3.25, 6.75, _TIMES, 8),
    "ieee": Venue(3.5, 7.16, _TIMES, 8),
    "lncs": Venue(4.8, 4.8, _TIMES, 8),
    "mlsys": Venue(3.25, 6.75, _TIMES, 8),
    "nature": Venue(3.5, 7.2, _HELVETICA, 7),
    "neurips": Venue(5.5, 5.5, _TIMES, 8),
    "usenix": Venue(3.33, 7.0, _TIMES, 8),
}
"""Sizes and fonts from the venues' templates; ``ieee`` is the width of a column, ``ieee-text`` that of the text."""
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}


@dataclass(frozen=True)
class FigureStyle:
    """The content and the look of a figure.

    Attributes:
        metrics: one panel each; the first metric if empty.
        against: one of :data:`~fedsim.analysis.comparison.facts.COSTS`.
        xlim: ends of the horizontal axis, ``"0:2d"`` or a pair of numbers; those of the data if None.
        ylim: ends of the vertical axis of the first metric, ``"85%:95%"`` or a pair of numbers; or several texts,
            each of which may name its metric: ``["accuracy=85%:95%", "loss=0:1"]``; by default, the late part of the
            curves if the rest would compress it.
        log: which axes are logarithmic, or ``logit`` for a vertical axis that spreads shares near 0 and 1.
        width, height: size of the whole figure, in inches or as ``"84mm"``; the width also as a key of :data:`VENUES`.
        inset: the part of the first metric's panels to enlarge in the corner, ``"1d:2d"`` or ``"1d:2d,90%:94%"``.
    """

    metrics: tuple[str, ...] = ()
    against: str = "time_s"
    xlim: str | Limits | None = None
    ylim: str | Limits | Sequence[str] | None = None
    log: Log | None = None
    width: str | float | None = None
    height: str | float | None = None
    inset: str | tuple[Limits, Limits | None] | None = None

    def __post_init__(self) -> None:
        require_cost(self.against, where="against")
        if self.log not in (None, *LOGS):
            raise UserError(
                f"there is no scale '{self.log}'",
                where="log",
                hint=nearest_or_all(str(self.log), LOGS, f"choose one of {', '.join(LOGS)}"),
            )

    def resolved(self, kind: Kind, metric: str | None = None) -> ResolvedStyle:
        """The style of a metric's panels, with ranges and lengths as numbers.

        Args:
            kind: kind of the metric's values.
            metric: the metric; the first one if None.

        Raises:
            UserError: a range or a length cannot be read, or a range does not fit its axis or any metric of the figure.
        """
        metric = metric or self._first
        x_kind = COSTS[self.against][1]
        inset = self._enlarged(x_kind, kind) if metric == self._first else None
        xlim = limits(self.xlim, x_kind, "xlim", self._x_axis)
        self._require_on_axis("x", xlim, "xlim", "--xlim ", self.xlim)
        stated = self._ylims().get(metric)
        ylim = limits(stated, kind, "ylim")
        name = f"{metric}=" if metric != self._first else ""
        self._require_on_axis("y", ylim, "ylim", f"--ylim {name}", stated)
        return ResolvedStyle(xlim, ylim, *self.size, inset)

    @property
    def venue(self) -> Venue | None:
        """The venue that the width names."""
        return VENUES.get(self.width.removesuffix("-text")) if isinstance(self.width, str) else None

    @property
    def size(self) -> tuple[float | None, float | None]:
        """Width and height in inches.

        Raises:
            UserError: one of them is not a length.
        """
        width, venue = self.width, self.venue
        if venue is not None:
            width = venue.text if str(width).endswith("-text") else venue.column
        return inches(width, "width"), inches(self.height, "height")

    @property
    def _x_axis(self) -> str:
        """The horizontal axis in words."""
        return f"{COSTS[self.against][0]} (--against {self.against})"

    @property
    def _first(self) -> str | None:
        """The metric to which a range without a name, and the inset, belong."""
        return self.metrics[0] if self.metrics else None

    def _enlarged(self, x_kind: Kind, kind: Kind) -> tuple[Limits, Limits | None] | None:
        """The region of the inset."""
        region, before = self.inset, "--inset "
        stated: str | None = None
        if isinstance(region, str):
            across, _, up = region.partition(",")
            x = limits(across, x_kind, "inset", self._x_axis)
            region = (x, limits(up, kind, "inset") if up else None)
            before, stated = f"--inset {across},", up
        if region is not None and region[1] is not None:
            self._require_on_axis("y", region[1], "inset", before, stated)
        return region

    def _ylims(self) -> dict[str | None, str | Limits]:
        """The stated ranges of the vertical axis by metric; a range without a name belongs to the first one."""
        ranges: dict[str | None, str | Limits] = {}
        for value in _each(self.ylim):
            metric = self._first
            if isinstance(value, str) and "=" in value:
                metric, _, value = value.partition("=")
                if metric not in self.metrics:
                    shown = ", ".join(self.metrics)
                    raise UserError(
                        f"the figure has no panel of '{metric}'",
                        where="ylim",
                        hint=nearest_or_all(
                            metric or "",
                            self.metrics,
                            f"metrics of the figure: {shown}; others are added with --metric",
                        ),
                    )
            if metric in ranges:
                raise UserError(
                    f"two ranges for '{metric}'",
                    where="ylim",
                    hint="name the metric of each: --ylim accuracy=60%:95% --ylim loss=0:1",
                )
            ranges[metric] = value
        return ranges

    def _require_on_axis(
        self,
        axis: Literal["x", "y"],
        ends: Limits,
        where: str,
        before: str,
        stated: str | Limits | None,
    ) -> None:
        """Refuse a range that a logarithmic or logit axis cannot show.

        Args:
            axis: the axis.
            ends: the range.
            where: the setting that gives it.
            before: the part of the command line before the range.
            stated: the range as given.
        """
        logit = self.log == "logit" and axis == "y"
        top = 1.0 if logit else math.inf
        shows = [end is None or 0 < end < top for end in ends]
        if all(shows) or not (logit or axis in (self.log or "")):
            return
        end = next(end for end, shown in zip(ends, shows, strict=True) if not shown)
        scale = "a logit axis, which ends before 0 and 1" if logit else "a logarithmic axis"
        texts = stated.split(":") if isinstance(stated, str) else ["", ""]
        rest = ":".join(text if shown else "" for text, shown in zip(texts, shows, strict=True))
        raise UserError(
            f"{end:g} cannot be shown on {scale}",
            where=where,
            hint=f"leave out that end: {before}{rest}" if rest != ":" else "leave out the range",
        )

    def for_metrics(self, *metrics: str) -> FigureStyle:
        """The same style with other metrics."""
        return dataclasses.replace(self, metrics=metrics)


class ResolvedStyle(NamedTuple):
    """Ranges in the data's units, lengths in inches."""

    xlim: Limits
    ylim: Limits
    width: float | None
    height: float | None
    inset: tuple[Limits, Limits | None] | None


def _each(ylim: str | Limits | Sequence[str] | None) -> Sequence[str | Limits]:
    """The ranges of one or several metrics."""
    if ylim is None:
        return ()
    if isinstance(ylim, str):
        return (ylim,)
    if not isinstance(ylim, Sequence):
        return (ylim,)
    texts = [value for value in ylim if isinstance(value, str)]
    if len(texts) == len(ylim):
        return texts
    return (cast(Limits, tuple(ylim)),)


def limits(value: str | Limits | None, kind: Kind, where: str, axis: str = "") -> Limits:
    """A range such as ``0:2d``, ``85%:95%`` or ``0.9:``.

    Args:
        value: the range.
        kind: kind of the axis' values.
        where: the setting that gives it.
        axis: the axis in words, for messages.

    Raises:
        UserError: it is not two values of the axis' kind, the lower first.
    """
    if value is None:
        return None, None
    example = {"time": "0:2d", "bytes": "0:500MB", "share": "85%:95%"}.get(kind, "0:100")
    hint = f"write two values, the lower first: {example}" + (f"; the axis is {axis}" * bool(axis))
    lower: float | None
    upper: float | None
    try:
        ends = map(str.strip, value.split(":")) if isinstance(value, str) else value
        lower, upper = (None if end in (None, "") else _number(end, kind) for end in ends)
    except (ValueError, TypeError) as error:
        if isinstance(value, str) and value.count(":") == 1:
            raise UserError(str(error), where=where, hint=hint) from error
        lower = upper = math.inf
    if lower is not None and upper is not None and not lower < upper:
        raise UserError(f"'{value}' is not a range", where=where, hint=hint)
    # A little above 1 is room above the curves.
    if kind == "share" and max(lower or 0.0, upper or 0.0) >= 2:
        percents = [end if end is None or end >= 1 else 100 * end for end in (lower, upper)]
        meant = ":".join("" if end is None else f"{end:g}%" for end in percents)
        beyond = "%" in str(value) or max(end or 0.0 for end in percents) > 100
        raise UserError(
            f"'{value}' is not a range of shares",
            where=where,
            hint=f"shares end at 100%: for example {example}" if beyond else f"write {meant}",
        )
    return lower, upper


def _number(end: str | float | None, kind: Kind) -> float:
    """An end of a range.

    Raises:
        ValueError: it is not a value of the axis.
    """
    if not isinstance(end, str):
        return float(cast(float, end))
    if kind not in ("time", "bytes"):
        try:
            return float(share_of(end) or end)
        except ValueError:
            comma = without_comma(end)
            raise ValueError(f"'{end}' is not a number{comma and f': {comma}'}") from None
    number = parse_duration_s(end) if kind == "time" else parse_size_bytes(end)
    if number and not end[-1].isalpha():
        # The axis is labeled in minutes, days or megabytes, and would seem to be meant.
        unit = "min" if kind == "time" else "MB"
        raise ValueError(f"'{end}' has no unit, as {end}{unit} has")
    return number


def inches(value: str | float | None, where: str) -> float | None:
    """A length in inches: a number, or text with its unit.

    Raises:
        UserError: it is not a length from 0.5 to 100 inches.
    """
    if value is None:
        return None
    text = value.strip() if isinstance(value, str) else f"{value}in"
    match = re.fullmatch(r"([\d.]+)\s*(in|cm|mm|pt)", text)
    try:
        length = float(match[1]) * _INCHES[match[2]] if match else math.nan
    except ValueError:
        length = math.nan
    if 0.5 <= length <= 100:
        return length
    is_width = where == "width"
    venue = similar(text.removesuffix("-text"), VENUES) if is_width and text[:1].isalpha() else None
    if venue is not None:
        suffix = "-text" if text.endswith("-text") else ""
        raise UserError(
            f"there is no venue '{value}'", where=where, hint=f"did you mean '{venue}{suffix}'?"
        )
    limits = " from 0.5 to 100 inches" * math.isfinite(length)
    venues = f", or name a venue: {', '.join(VENUES)}; ieee-text is the width of its text"
    raise UserError(
        f"'{value}' is not a length{limits}{' or a known venue' * (is_width and not limits)}",
        where=where,
        hint=without_comma(text)
        or f"write a number and a unit, such as 84mm, 8.4cm, 3.25in or 240pt{venues * is_width}",
    )
