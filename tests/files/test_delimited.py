"""Comma-separated text with a header that fits its rows."""

import re

import pytest

from fedsim.errors import UserError
from fedsim.files.delimited import checked_rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b, a\n1,2,3\n", "f.csv:1: has the column 'a' twice\n  remove or rename"),
        ("a,b\n1,2\n3\n", "f.csv:3: has 1 cell, but the header has 2\n  every row needs"),
        ("a,b\n1,2,3\n", "f.csv:2: has 3 cells, but the header has 2\n"),
        (f"a,b\n{'x' * 20_000_000},2\n", "f.csv:2: is not CSV: field larger than field limit"),
        ("a;b\n1,5;2,5\n", "f.csv:2: has 3 cells, but the header has 1\n  separate the columns by"),
    ],
)
def test_text_that_does_not_fit_its_header_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        list(checked_rows(text.splitlines(keepends=True), "f.csv"))
