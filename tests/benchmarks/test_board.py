"""The page of the board."""

import pandas as pd
import pytest

from benchmarks import board
from fedsim.board.results import SHIPPED


def test_the_page_is_that_of_the_shipped_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "draw", lambda *_: None)
    _, _, page = board.PAGE.read_text(encoding="utf-8").partition(board.MARK)
    assert page.strip() == board.written(pd.read_parquet(SHIPPED)).strip()
