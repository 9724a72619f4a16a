"""The comparison page."""

import pytest

from fedsim.analysis.comparison import Comparison, page
from fedsim.analysis.comparison.page import curves_document, title


def test_the_title_names_up_to_three_in_their_order() -> None:
    titles = [title(list(names)) for names in ("b", "ba", "cba", "dcba")]
    assert titles == ["b", "b and a", "c, b and a", "4 variants compared"]


def test_dashes_are_explained_where_there_are_any(
    comparison: Comparison, comparison_page: str
) -> None:
    missed = comparison.targets[comparison.targets["time_s"].isna()]["target"].nunique()
    assert 0 < missed < len(comparison.goals)
    assert comparison_page.count("A dash means that fewer than half did.") == missed


def test_a_page_of_too_many_runs_has_their_medians_and_bands(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, has_runs in ((page._MOST_NUMBERS, True), (5000, False)):
        monkeypatch.setattr(page, "_MOST_NUMBERS", most)
        (fedavg, _) = curves_document(comparison)["series"]["loss"]["time_s"]["alpha=5"]["groups"]
        assert ("runs" in fedavg) == has_runs
        assert {"median", "low", "high"} <= fedavg.keys()
