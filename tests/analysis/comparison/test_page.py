"""The comparison page."""

import pytest

from fedsim.analysis.comparison import Comparison, compare, page
from fedsim.analysis.comparison.page import curves_document, title
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import VARIANTS, folders


def test_the_title_names_up_to_three_in_their_order() -> None:
    titles = [title(list(names)) for names in ("b", "ba", "cba", "dcba")]
    assert titles == ["b", "b and a", "c, b and a", "4 variants compared"]


def test_dashes_are_explained_where_there_are_any(
    comparison: Comparison, comparison_page: str
) -> None:
    missed = comparison.targets[comparison.targets["time_s"].isna()]["target"].nunique()
    assert 0 < missed < len(comparison.goals)
    assert comparison_page.count("A dash means that fewer than half of the runs did.") == missed


@pytest.mark.parametrize("seeds", [2, 3])
def test_the_median_is_explained_where_a_table_has_it(sweep: Sweep, seeds: int) -> None:
    """The median of two runs would be the faster one."""
    chosen = [folder for v in VARIANTS for folder in folders(sweep, "alpha=5", v)[:seeds]]
    text = page.render(compare(chosen, targets=["accuracy=0.5"]))
    table = text.split('id="figure-target-0"')[1].split("</figure>")[0]
    assert ("The median is the time" in table) == (">median</th>" in table) == (seeds == 3)


def test_a_page_of_too_many_runs_has_their_medians_and_bands(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, has_runs in ((page._MOST_NUMBERS, True), (5000, False)):
        monkeypatch.setattr(page, "_MOST_NUMBERS", most)
        (fedavg, _) = curves_document(comparison)["series"]["loss"]["time_s"]["alpha=5"]["groups"]
        assert ("runs" in fedavg) == has_runs
        assert {"median", "low", "high"} <= fedavg.keys()
