"""CSV files hold every table of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from fedsim.analysis.export import export
from fedsim.runs import Run
from fedsim.runs.schema import LABELS
from tests.analysis.documents import parquet


def test_csv_holds_every_table(run: Run, tmp_path: Path) -> None:
    folder = export(run, "csv", tmp_path / "tables")
    for name in ("dispatches", "aggregations", "metrics", "clients", "online", "partition"):
        exported, known = pd.read_csv(folder / f"{name}.csv"), parquet(run, name)
        assert list(exported) == list(known)
        plain = [
            column
            for column in known
            if column not in ("contributor_ids", "multiplicities", "attributes", *LABELS)
        ]
        pd.testing.assert_frame_equal(exported[plain], known[plain], check_dtype=False)
    exported, known = pd.read_csv(folder / "aggregations.csv"), parquet(run, "aggregations")
    ids = [list(map(int, text.split())) for text in exported["contributor_ids"]]
    assert ids == known["contributor_ids"].map(list).tolist()
    assert [json.loads(text) for text in exported["attributes"]] == known["attributes"].map(
        dict
    ).tolist()
    exported, known = pd.read_csv(folder / "dispatches.csv"), parquet(run, "dispatches")
    for name in LABELS:
        assert exported[name].fillna("").tolist() == known[name].astype(str).fillna("").tolist()
