"""The looks of variants."""

from __future__ import annotations

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.figure import FigureStyle
from fedsim.analysis.comparison.plots import plot_curves
from fedsim.analysis.palette import LOOKS, looks
from tests.analysis.comparison.compared import VARIANTS
from tests.analysis.comparison.made import of, run


def test_a_variant_has_one_color_on_the_page_and_in_print(comparison: Comparison) -> None:
    shown = looks(VARIANTS)
    for line in comparison.plot("accuracy").axes[0].get_lines():
        look = shown[str(line.get_label())]
        assert (line.get_color(), line.get_marker()) == (look.light, look.marker)
    assert (
        len({(look.light, look.dash, look.marker) for look in looks(map(str, range(64))).values()})
        == 64
    )
    assert len({look.light for look in LOOKS}) == len(LOOKS)


def test_a_dozen_variants_are_told_apart_in_print() -> None:
    runs = [run(f"method{number}", seed) for number in range(12) for seed in (0, 1)]
    figure = plot_curves(of(*runs), FigureStyle(("accuracy",)))
    lines = figure.axes[0].get_lines()
    assert (
        len({(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in lines})
        == 12
    )
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines[:8]}) == 8
    assert not figure.axes[0].collections
    few = plot_curves(of(*runs[:10]), FigureStyle(("accuracy",)))
    assert len(few.axes[0].collections) == 5
