"""Tables carry the units of their columns."""

from pathlib import Path

import pyarrow.parquet as pq

from fedsim.learning.metrics.base import TABLE_COLUMNS
from fedsim.runs.schema import MESSAGES, METRICS_FIXED, TABLES
from tests.runs.synthetic_runs import build_run


def test_schema_metadata_carries_units(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=5, hours=2, cohort=3)
    for table in (one for one in TABLES if not one.name.startswith("edge")):
        path = tmp_path / "run" / f"{table.name}.parquet"
        # The run of a scenario has no messages.
        for field in MESSAGES.schema if table is MESSAGES else pq.read_schema(path):
            if field.name in ("accuracy", "loss"):
                continue
            assert field.metadata[b"description"], (table.name, field.name)
            if field.name.endswith("_s"):
                assert field.metadata[b"unit"] == b"s"


def test_no_metric_may_have_the_name_of_another_column() -> None:
    assert tuple(field.name for field in METRICS_FIXED) == TABLE_COLUMNS
