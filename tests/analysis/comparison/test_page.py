"""The comparison page."""

from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.page import render, title
from fedsim.sweeps import Sweep


def test_the_title_names_up_to_three_in_their_order() -> None:
    assert title(["b"]) == "b"
    assert title(["b", "a"]) == "b and a"
    assert title(["c", "b", "a"]) == "c, b and a"
    assert title(["d", "c", "b", "a"]) == "4 variants compared"


def test_dashes_are_explained_where_there_are_any(sweep: Sweep) -> None:
    words = "A dash means that fewer than half did."
    assert words not in render(compare(sweep.path, targets=["accuracy=0.3"]))
    assert words in render(compare(sweep.path, targets=["accuracy=0.99"]))
