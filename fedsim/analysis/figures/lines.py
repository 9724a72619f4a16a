"""Figures of lines over one axis: distribution functions, shares by hour, bands of predictions."""

from __future__ import annotations

import contextlib
import io
import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedsim.analysis.figures.base import Column, Figure, drawn_as_lines, shortened
from fedsim.analysis.palette import LOOKS
from fedsim.errors import refused
from fedsim.files.durable import replacing
from fedsim.vocabulary.arrays import Array, Floats
from fedsim.vocabulary.formatting import Kind, format_duration

_POINTS = 200
_SHORTEST_S = 0.5
"""Shortest time shown: on a logarithmic axis, shorter ones would take up most of the space."""


class Line(NamedTuple):
    """Values at the x values of a figure.

    Attributes:
        look: number of its color and dash in the palette.
        label: its name in the legend.
        values: one per x value.
        thin: whether it is a second line of the same quantity, such as an uplink; dashed.
        fit: whether it is a fitted distribution; dotted.
        band: the values between which it is shaded, by label; empty without.
    """

    look: int
    label: str
    values: Array
    thin: bool = False
    fit: bool = False
    band: Mapping[str, Array] = MappingProxyType({})


def line_figure(
    id: str,
    title: str,
    finding: str,
    x: Column,
    lines: Sequence[Line],
    *,
    unit: str = "share at most this",
    kind: Kind = "share",
    **more: Any,
) -> Figure:
    """A figure of lines, which :func:`~fedsim.analysis.figures.base.drawn_as_lines` describes."""
    every = ({line.label: line.values, **line.band} for line in lines)
    columns = [
        Column(label, label, kind, shortened(values, 4))
        for each in every
        for label, values in each.items()
    ]
    series = [
        {
            "key": line.label,
            # In the color of its data, a good fit could not be seen.
            "color": "text" if line.fit else f"g{line.look % len(LOOKS)}",
            "dash": (1, 1.5)
            if line.fit
            else (4, 2)
            if line.thin
            else LOOKS[line.look % len(LOOKS)].dash,
            "plain": line.fit or line.thin,
            "look": line.look,
            "fit": line.fit,
            "band": list(line.band),
        }
        for line in lines
    ]
    extra = {"title": title, **drawn_as_lines(*series, unit=unit, **more)}
    return Figure(id, finding, (x, *columns), extra)


def places(samples: Sequence[Array], *, log: bool, times: bool) -> Array:
    """The x values at which distribution functions of samples are drawn: over their range, or 0 to 1 for shares."""
    every = np.concatenate(samples)
    if not log:
        return np.linspace(0.0, 1.0, _POINTS // 2 + 1)
    positive = every[every > 0]
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 10.0)
    if times and low < _SHORTEST_S < high and high > 60:
        low = _SHORTEST_S
    high = max(high, low * 1.01)
    # Rounded down, the last value would leave the largest sample out.
    return np.append(shortened(np.geomspace(low, high, _POINTS), 5)[:-1], high)


def cumulative(samples: Array, x: Array) -> Floats:
    """The share of the samples that are at most x, for each x."""
    shares: Floats = np.searchsorted(np.sort(samples), x, side="right") / len(samples)
    return shares


@contextlib.contextmanager
def drawing(*sheets: Path) -> Iterator[None]:
    """Draw and save with Matplotlib's defaults and these style sheets, whatever the user's settings are."""
    hint = "correct or remove the file matplotlibrc and the environment variable MPLBACKEND"
    with refused("Matplotlib cannot read its settings", hint=hint, kinds=ValueError):
        import matplotlib.style
    # Files have no dates.
    epoch = os.environ.pop("SOURCE_DATE_EPOCH", None)
    try:
        with matplotlib.style.context([*sheets], after_reset=True):
            yield
    finally:
        if epoch is not None:
            os.environ["SOURCE_DATE_EPOCH"] = epoch


def save_picture(figure: Any, path: Path, **settings: Any) -> None:
    """Save a figure of Matplotlib, whose own writer of a PDF hides the error of a full disk behind another."""
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:], **settings)
    with replacing(path) as temporary:
        temporary.write_bytes(picture.getvalue())


def _width(text: str, size: float) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path as measured

    font = FontProperties(size=size)
    every = (measured.get_text_width_height_descent(s, font, False) for s in text.split("\n"))
    return float(max(width for width, *_ in every))


def filled(text: str, points: float, size: float) -> str:
    """Text of a size, broken into lines that are drawn at most this wide, if eight letters are."""
    every = (textwrap.fill(text, letters) for letters in range(max(8, len(text)), 8, -1))
    fits = (broken for broken in every if _width(broken, size) <= points)
    return next(fits, textwrap.fill(text, 8))


def legend_names(names: Sequence[str], points: float) -> tuple[list[str], int]:
    """Names broken so that a legend of a width holds them, and the number of its columns."""
    from matplotlib import rcParams

    size = rcParams["font.size"]
    room = 6.5 * size  # Of the sample of a line, and gaps.
    texts = [filled(name, points - room, size) for name in names]
    widest = max((_width(text, size) for text in texts), default=0.0)
    return texts, max(1, min(len(texts), int(points / (room + widest))))


def label_plainly(axes: Any, *, times: bool = False) -> None:
    """Label the ticks of Matplotlib's logarithmic axes as plain numbers, on short axes at 1, 2 and 5; those of
    ``times`` in seconds, on the horizontal axis, as durations."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() != "log":
            continue
        axis.set_minor_formatter(NullFormatter())
        if times and axis is axes.xaxis:
            inches = axes.figure.get_figwidth() / axes.get_gridspec().ncols - 0.5
            seconds = round_times(low, high, 0.5 / inches)
            axis.set_ticks(seconds, list(map(format_duration, seconds)))
            axes.minorticks_off()
        elif high < 1e4 * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
            axis.set_major_formatter("{x:g}")


_MULTIPLES = (
    (*range(1, 10), 10, 12, 15, 20, 30, 40, 50),
    (1, 2, 3, 5, 7, 10, 14, 20, 30),
    (1, 2, 5, 10, 30),
    (1, 3, 10),
    (1, 10),
    (1,),
)


def round_times(low: float, high: float, gap: float) -> list[float]:
    """Times in seconds for the ticks of a logarithmic axis: the densest multiples of units of time that are ``gap``, a
    share of the axis, apart; without two of them, almost its ends, if they are apart."""
    units, whole = (0.001, 0.01, 0.1, 1.0, 60.0, 3600.0, 86400.0), math.log(high / low)
    lists = ({round(each * unit, 6) for unit in units for each in some} for some in _MULTIPLES)
    marks = [sorted(s for s in each if low <= s <= high) for each in lists]
    apart = (each for each in marks if np.diff(np.log(each)).min(initial=whole) > gap * whole)
    shown = next(apart, marks[-1])
    if len(shown) > 1:  # A logarithmic axis needs two; the times themselves are long words.
        return shown
    ends = [low * 1.1, high / 1.1]
    is_wide = math.log(ends[1] / ends[0]) > 2 * gap * whole
    return ends if is_wide else shown or [math.sqrt(low * high)]
