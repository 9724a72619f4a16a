"""A run as CSV files, one per table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from fedsim.runs import Run
from fedsim.runs.tables import csv_text


def write_csv(run: Run, path: Path) -> None:
    """Write every table that the run has.

    Absent values are empty. Lists (``contributor_ids``) are numbers with spaces between, ``attributes`` is JSON.
    """
    path.mkdir(parents=True)
    tables: dict[str, pd.DataFrame | None] = {
        "dispatches": run.dispatches,
        "aggregations": run.aggregations,
        "metrics": run.metrics,
        "clients": run.clients if run.has_clients else None,
        "online": run.online,
        "presence": run.presence,
        "pauses": run.pauses,
        "partition": run.partition,
        "messages": run.messages,
    }
    for name, table in tables.items():
        if table is not None:
            (path / f"{name}.csv").write_text(csv_text(_plain(table)), encoding="utf-8")


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    table = table.copy(deep=False)
    for name in ("contributor_ids", "multiplicities"):
        if name in table:
            table[name] = [
                None if values is None else " ".join(map(str, values)) for values in table[name]
            ]
    if "attributes" in table:
        table["attributes"] = [json.dumps(values) for values in table["attributes"]]
    return table
