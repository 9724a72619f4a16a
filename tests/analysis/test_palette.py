"""The looks of variants."""

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.palette import LOOKS, looks
from tests.analysis.comparison.compared import VARIANTS
from tests.analysis.comparison.made import of, run


def test_a_variant_has_one_color_on_the_page_and_in_print(comparison: Comparison) -> None:
    shown = looks(VARIANTS)
    lines = comparison.plot("accuracy").axes[0].get_lines()
    medians = [line for line in lines if str(line.get_label()) in shown]
    assert len(medians) == len(shown)
    for line in medians:
        look = shown[str(line.get_label())]
        assert (line.get_color(), line.get_marker()) == (look.light, look.marker)
    assert (
        len({(look.light, look.dash, look.marker) for look in looks(map(str, range(64))).values()})
        == 64
    )
    assert len({look.light for look in LOOKS}) == len(LOOKS)


def test_a_dozen_variants_are_told_apart_in_print() -> None:
    runs = [run(f"method{number}", seed) for number in range(12) for seed in (0, 1)]
    lines = [
        line
        for axes in of(*runs).plot().axes
        for line in axes.get_lines()
        if str(line.get_label()).startswith("method")
    ]
    drawn = {(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in lines}
    assert len(drawn) == 12
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines[:8]}) == 8
