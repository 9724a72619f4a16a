"""The pages of the board, from rows made by hand."""

from fedsim.board import results
from fedsim.board.page import grid, markdown, write
from fedsim.board.suite import suite


def test_the_map_puts_the_best_entry_first(rows, question):
    first, *_ = grid([results.table(rows, question)])
    assert first[0] == "FedBuff"


def test_the_page_shows_ratios_and_misses_and_how_to_repeat_a_run(rows, question, tmp_path):
    table = results.table(rows, question)
    text = markdown([table], suite().limited(["silos"], suite().entries, 2))
    assert "| FedBuff * | 0.50 |" in text
    assert "| ACE | never |" in text
    assert "| FedAsync | rarely |" in text
    assert "fedsim run board/silos -s 'server.method={name: fedbuff}'" in text
    page = write(tmp_path, [table], suite(), "FedBuff").read_text()
    assert '<tr class="marked"><th scope="row">FedBuff</th>' in page.replace("\n", "")
    assert "cannot" in page
