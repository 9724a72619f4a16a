"""Rows of the table of dispatches, for comparison."""

from __future__ import annotations

import math
from typing import Any

from tests.simulation.harness import Book


def table(book: Book, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the rows in order of dispatching, NaN as None, the outcome last."""
    outcomes = book.outcomes()
    rows = sorted(book.rows, key=lambda row: int(row["dispatch_id"]))
    return [
        (
            *(None if math.isnan(row[name]) else row[name] for name in columns),
            outcomes[row["dispatch_id"]],
        )
        for row in rows
    ]
