"""All exports: killed and timing-only runs, files that exist; CSV and TensorBoard against the tables of the run."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsim.analysis.export import FORMATS, export
from fedsim.errors import UserError
from fedsim.runs import Run
from fedsim.runs.schema import LABELS
from tests.analysis.documents import parquet
from tests.analysis.test_perfetto import check_format, read_trace
from tests.composition.test_run import file_size_limit
from tests.runs.synthetic_runs import build_run
from tests.tracking.listening import needs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("export") / "run"
    return build_run(path, clients=25, hours=12, asynchronous=True, seed=3)


@pytest.mark.parametrize("name", FORMATS)
def test_runs_that_were_killed_or_only_timed_are_exported_too(name: str, tmp_path: Path) -> None:
    killed = build_run(tmp_path / "killed", hours=3, finish=False)
    timed = build_run(tmp_path / "timed", hours=3, learning=False)
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    for run in (killed, timed):
        path = export(run, name)
        assert path.exists()
        if name == "perfetto":
            assert check_format(read_trace(path))


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UserError, match="already exists"):
        export(run, "csv", tmp_path / "taken")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"exists\n  choose another path: this is not a regular"):
        export(run, "perfetto", tmp_path / "pipe")
    with pytest.raises(UserError, match="there is no format 'xlsx'"):
        export(run, "xlsx", tmp_path / "x")


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


@needs("tensorboard")
def test_tensorboard_reads_it(run: Run, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(export(run, "tensorboard", tmp_path / "events")))
    events.Reload()
    shown = [(event.wall_time, event.step, event.value) for event in events.Scalars("accuracy")]
    metrics, updates = parquet(run, "metrics"), parquet(run, "aggregations")
    values = map(float, np.float32(metrics["accuracy"]))
    assert shown == list(zip(metrics["time_s"], metrics["version"], values, strict=True))
    contributors = events.Scalars("server/contributors")
    assert [event.step for event in contributors] == updates["version"].tolist()
    assert [event.value for event in contributors] == updates["contributors"].tolist()


@needs("tensorboard")
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_is_one_error(run: Run, tmp_path: Path) -> None:
    with file_size_limit(4_000), pytest.raises(UserError, match="the disk is full"):
        export(run, "tensorboard", tmp_path / "events")
    assert not any(tmp_path.iterdir())
