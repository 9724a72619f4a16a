"""CSV that a spreadsheet cannot take for formulas."""

import csv
import errno
import io
import os
from pathlib import Path

import pandas as pd
import pytest

from fedsim.errors import Unreadable
from fedsim.runs.records import RUN
from fedsim.runs.tables import csv_text


def test_text_that_a_spreadsheet_would_run_begins_with_a_quote() -> None:
    cells = ["=HYPERLINK(1)", "+1", "-x", "@SUM(A1)", "\ta", "plain, text", 'say "=1"', None]
    table = pd.DataFrame({"=name": cells, "number": [-1.5, *range(7)]})
    table["kind"] = pd.Categorical(["=1", "b"] * 4)
    rows = list(csv.reader(io.StringIO(csv_text(table))))
    assert rows[0] == ["'=name", "number", "kind"]
    quoted = ["'=HYPERLINK(1)", "'+1", "'-x", "'@SUM(A1)", "'\ta", "plain, text", 'say "=1"', ""]
    assert [row[0] for row in rows[1:]] == quoted
    assert [float(row[1]) for row in rows[1:]] == [-1.5, *range(7)]
    assert {row[2] for row in rows[1:]} == {"'=1", "b"}


def test_what_controls_a_terminal_or_ends_a_row_is_escaped() -> None:
    table = pd.DataFrame({"error": ["10%\r20%\x1b[31m\u202e", "two\nlines"]})
    assert csv_text(table) == 'error\n10%\\r20%\\x1b[31m\\u202e\n"two\nlines"\n'


def test_a_table_for_which_no_thread_can_be_started_is_not_damaged() -> None:
    error = OSError(f"Failed to launch worker thread: {os.strerror(errno.EAGAIN)}")
    with pytest.raises(Unreadable, match="ulimit -u"), RUN.reading(Path("t.parquet")):
        raise error
