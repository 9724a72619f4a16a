"""The comparison page."""

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.page import title


def test_the_title_names_up_to_three_in_their_order() -> None:
    titles = [title(list(names)) for names in ("b", "ba", "cba", "dcba")]
    assert titles == ["b", "b and a", "c, b and a", "4 variants compared"]


def test_dashes_are_explained_where_there_are_any(
    comparison: Comparison, comparison_page: str
) -> None:
    missed = comparison.targets[comparison.targets["time_s"].isna()]["target"].nunique()
    assert 0 < missed < len(comparison.goals)
    assert comparison_page.count("A dash means that fewer than half did.") == missed
