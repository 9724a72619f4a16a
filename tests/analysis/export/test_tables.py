"""CSV files hold every table of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from fedsim.analysis.export import export
from fedsim.runs import Run
from fedsim.runs.schema import LABELS
from tests.analysis.export.reading import parquet


def test_csv_holds_every_table(run: Run, tmp_path: Path) -> None:
    folder = export(run, "csv", tmp_path / "tables")
    for name in ("dispatches", "aggregations", "metrics", "clients", "online", "partition"):
        found, known = pd.read_csv(folder / f"{name}.csv"), parquet(run, name)
        assert list(found) == list(known)
        plain = [
            column
            for column in known
            if column not in ("contributor_ids", "multiplicities", "attributes", *LABELS)
        ]
        pd.testing.assert_frame_equal(found[plain], known[plain], check_dtype=False)
    found, known = pd.read_csv(folder / "aggregations.csv"), parquet(run, "aggregations")
    ids = [list(map(int, text.split())) for text in found["contributor_ids"]]
    assert ids == known["contributor_ids"].map(list).tolist()
    assert [json.loads(text) for text in found["attributes"]] == known["attributes"].map(
        dict
    ).tolist()
    found, known = pd.read_csv(folder / "dispatches.csv"), parquet(run, "dispatches")
    for name in LABELS:
        assert found[name].fillna("").tolist() == known[name].astype(str).fillna("").tolist()
