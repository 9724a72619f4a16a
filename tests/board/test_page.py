"""The pages of the board, from rows made by hand."""

from dataclasses import replace

from fedsim.board import results
from fedsim.board.page import cells, grid, headline, repeat, write
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


def test_entries_of_too_few_scenarios_are_not_ranked(rows, question):
    table = results.table(rows, question)
    only_fedavg = [one for one in table.standings if one.entry == "FedAvg"]
    others = [replace(table, standings=only_fedavg)] * 2
    names = [name for name, _ in grid([table, *others])]
    assert names[0] == "FedAvg"
    assert headline([table, *others], "FedBuff") == (
        "No entry is faster than FedAvg on average over 3 scenarios; "
        "FedBuff is faster than FedAvg in 1 of its 1 scenario"
    )
