"""The pages of the board, from rows made by hand."""

from dataclasses import replace

import pytest

from fedsim.board import results
from fedsim.board.page import cells, grid, headline, repeat, shade, write
from fedsim.board.suite import MEASURED, Cell, suite


def test_the_map_puts_the_best_entry_first(rows, question):
    first, *_ = grid([results.table(rows, question)])
    assert first[0] == "FedBuff"


def test_the_page_shows_ratios_and_misses_and_how_to_repeat_a_run(rows, question, tmp_path):
    table = results.table(rows, question)
    ratios = {row[0]: row[1] for row in cells(table)}
    assert (ratios["FedBuff *"], ratios["ACE"], ratios["FedAsync"]) == ("0.50", "never", "rarely")
    command = repeat(suite(), Cell("silos", "FedBuff", MEASURED, 1, 0))
    assert command.startswith("fedsim run board/silos -s 'server.method={name: fedbuff}'")
    page = write(tmp_path, [table], suite(), "FedBuff").read_text()
    assert '<tr class="marked"><th scope="row">FedBuff</th>' in page.replace("\n", "")
    assert "cannot" in page
    # The map has the words of the table.
    assert page.count(">rarely</td>") == page.count(">never</td>") == 2


def test_entries_of_too_few_scenarios_are_not_ranked(rows, question):
    table = results.table(rows, question)
    only_fedavg = [one for one in table.standings if one.entry == "FedAvg"]
    others = [replace(table, standings=only_fedavg)] * 2
    names = [name for name, _ in grid([table, *others])]
    assert names[0] == "FedAvg"
    assert headline([table, *others], "FedBuff") == [
        "No entry is faster than FedAvg on average",
        "FedBuff is faster than FedAvg in 1 of its 1 scenario",
    ]


@pytest.mark.parametrize(
    ("ratios", "sentence"),
    [
        # The other takes 10% longer in all scenarios, then on average.
        ([0.5, 0.6, 0.7], "FedBuff ranks first"),
        ([0.7, 0.6, 0.5], "No clear first among FedBuff and FedCompass"),
    ],
)
def test_an_entry_is_first_if_the_scenarios_separate_it_from_all_others(
    rows, question, ratios, sentence
):
    table = results.table(rows, question)
    tables = []
    for own, other in zip([0.5, 0.6, 0.7], ratios, strict=True):
        values = {"FedBuff": own, "FedCompass": 1.1 * other, "FedAvg": 1.0}
        standings = [
            replace(table.of(name), ratio=results.Ratio(value, value, value))
            for name, value in values.items()
        ]
        tables.append(replace(table, standings=standings))
    assert headline(tables[:2], "FedAvg")[0] == "Too few scenarios to name a first"
    assert headline(tables, "FedAvg") == [
        sentence,
        "FedBuff is 1.7 times as fast as FedAvg on average over 3 scenarios (95% interval 1.1 to 2.6)",
    ]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (results.Ratio(0.5, 0.3, 0.9), "fast"),
        (results.Ratio(0.5, 0.2, 1.2), "same"),
        (results.Ratio(0.95, 0.93, 0.97), "same"),
        (results.Ratio(2.0, 0.9, 4.0), "same"),
        (results.Ratio(2.0, 1.5, 3.0), "slow"),
        (None, "slow"),
    ],
)
def test_a_cell_is_no_darker_than_its_interval(rows, question, ratio, expected):
    assert shade(replace(results.table(rows, question).of("FedBuff"), ratio=ratio)) == expected


def test_the_baseline_is_not_compared_with_itself(rows, question, tmp_path):
    page = write(tmp_path, [results.table(rows, question)], suite(), "FedAvg").read_text()
    assert "<b>FedAvg" not in page
