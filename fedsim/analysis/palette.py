"""The looks of variants: one color, dash and marker each, the same on a page, in a PDF and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """How the line of one variant is drawn.

    Attributes:
        light, dark: its color on white and on black.
        dash: lengths drawn and left out, in line widths; empty for a solid line.
        marker: its marker in Matplotlib.
        symbol: the same marker on a page, for ECharts.
    """

    light: str
    dark: str
    dash: tuple[float, ...]
    marker: str
    symbol: str


_PLUS = "path://M-1.5-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z"
LOOKS = (
    # After Okabe and Ito, each with a contrast of at least 3:1 to its background.
    Look("#0067a3", "#4aa3e0", (), "o", "circle"),
    Look("#c44f00", "#ff8a4c", (3.5, 2), "s", "rect"),
    Look("#007f5c", "#2fc69c", (1, 1.5), "^", "triangle"),
    Look("#b0568f", "#e59cc6", (4.5, 1.5, 1, 1.5), "D", "diamond"),
    Look("#9a6a00", "#f0b429", (6, 2), "v", "path://M0 5L5-4H-5Z"),
    Look("#3f8fc9", "#7cc8f5", (2, 1), "P", _PLUS),
    Look("#5d4a9c", "#b3a3ee", (0.8, 2), "p", "path://M-5-1.5L0-5L5-1.5L3 4.5H-3Z"),
    Look("#525d69", "#a9b4bf", (4.5, 1.5, 1, 1.5, 1, 1.5), "X", "roundRect"),
)


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """The look of each variant, in their order; colors that repeat have different dashes and markers."""
    count = len(LOOKS)

    def look(number: int) -> Look:
        color, line = LOOKS[number % count], LOOKS[(number + number // count) % count]
        return Look(color.light, color.dark, line.dash, line.marker, line.symbol)

    return {label: look(number) for number, label in enumerate(dict.fromkeys(labels))}
