"""CSV that a spreadsheet cannot take for formulas, and tables that would fill the memory."""

import csv
import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.errors import UserError
from fedsim.runs.tables import csv_text, read_parquet


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


def test_a_table_made_to_fill_the_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "online.parquet", 20_000_000
    pq.write_table(pa.table({name: pa.repeat(0.0, rows) for name in ("time_s", "online")}), path)
    with pytest.raises(UserError, match=r"20,000,000 rows in only .*\n.*FEDSIM_MAX_UNPACKED"):
        read_parquet(path)
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "1GiB")
    assert len(read_parquet(path)) == rows
