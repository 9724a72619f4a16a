"""The page of what others measured has the figures of its record, and nothing else."""

import json
import re

import pytest

from benchmarks.measured import PAGE, RECORD, SOURCES, data, page, row


def test_the_page_is_that_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert set(record) == {*SOURCES, "ring"}
    assert PAGE.read_text(encoding="utf-8") == page(record)


def test_a_changed_record_changes_the_page() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    record["phones"][0]["predicted"] = 987.6
    assert "987.6 s" in page(record)
    assert "987.6 s" not in PAGE.read_text(encoding="utf-8")


def test_errors_of_repeats() -> None:
    one = row("case", 11.0, [10.0, 11.0, 22.0])
    assert (one["measured"], one["error"], one["repeats"]) == (11.0, 0.0, 3)
    assert (one["error_low"], one["error_high"]) == (-0.5, pytest.approx(0.1))


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["jetsons", "phones", "elastic"])
def test_the_predictions_of_the_record_are_made_again(name: str) -> None:
    if data("g5k_jetson_xavier_runs.csv") is None:
        pytest.skip("FEDSIM_DATA/measured is not on this machine")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    again = {one["case"]: one["predicted"] for one in SOURCES[name][2](record) if "case" in one}
    assert again == pytest.approx(
        {one["case"]: one["predicted"] for one in record[name] if "case" in one}
    )
    assert re.search("round", " ".join(again))
