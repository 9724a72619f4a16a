"""The numbers embedded in a report page, and the tables of the run that it shows."""

import json
import re
from typing import Any

import pandas as pd

from fedsim.analysis.figures.base import Figure
from fedsim.runs import Run


def embedded(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match
    data: dict[str, Any] = json.loads(match.group(1))
    return data


def columns(document: dict[str, Any], figure: str) -> dict[str, list[Any]]:
    return {column["key"]: column["values"] for column in document[figure]["columns"]}


def drawn(figure: Figure | None) -> Figure:
    """A figure that a run must have."""
    assert figure is not None
    return figure


def values_of(figure: Figure | None) -> dict[str, list[Any]]:
    """The values of a figure's columns, by key."""
    return {column.key: list(column.values) for column in drawn(figure).columns}


def parquet(run: Run, table: str) -> pd.DataFrame:
    return pd.read_parquet(run.path / f"{table}.parquet")
