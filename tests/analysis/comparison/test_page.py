"""The comparison page."""

from __future__ import annotations

from fedsim.analysis.comparison.page import title


def test_the_title_names_up_to_three_in_their_order() -> None:
    assert title(["b"]) == "b"
    assert title(["b", "a"]) == "b and a"
    assert title(["c", "b", "a"]) == "c, b and a"
    assert title(["d", "c", "b", "a"]) == "4 variants compared"
