"""Reading a run: damage is named with the file and a way out, targets are found, and diverged models are seen."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from fedsim.analysis.run import load_run
from fedsim.errors import UserError
from fedsim.files.checksums import file_sha256
from fedsim.runs import RunFolder
from fedsim.runs.run import (
    Lost,
    has_diverged,
    last_metrics,
    lost_metrics,
    lost_since,
    own_metrics,
)
from fedsim.vocabulary.metrics import METRICS
from tests.runs.synthetic_runs import build_run
from tests.runs.written import started

NAN = math.nan


def read_everything(path: Path) -> None:
    run = load_run(path)
    _ = run.dispatches, run.aggregations, run.metrics, run.scenario, run.model()


def edited(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    ("file", "change", "where"),
    [
        ("run.json", None, "run.json"),
        ("run.json", lambda content: b'{"status": ', "run.json"),
        ("run.json", lambda content: b'{"format": 99}', "run.json"),
        ("run.json", edited('"complete"', '"running"'), "run.json"),
        ("dispatches.parquet", lambda content: content[:-20], "dispatches.parquet"),
        ("metrics.parquet", None, "metrics.parquet"),
        ("scenario.yaml", lambda content: b"a: [1\n", "scenario.yaml"),
        ("scenario.yaml", edited("night", "day"), "scenario.yaml"),
        ("notes.txt", None, "model.safetensors"),
        ("model.safetensors", lambda content: b"\x00" * 20, "model.safetensors"),
    ],
)
def test_damage_is_named_with_the_file_and_a_way_out(
    tmp_path: Path, file: str, change: Callable[[bytes], bytes] | None, where: str
) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3)
    path = tmp_path / "run" / file
    content = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    if change is not None:
        path.write_bytes(change(content))
    with pytest.raises(UserError) as caught:
        read_everything(tmp_path / "run")
    assert Path(str(caught.value.where)).name == where
    assert caught.value.hint


@pytest.mark.parametrize(
    ("table", "column", "value", "problem"),
    [
        ("dispatches", "client_id", 2**63 - 1, "outside 0 to 4"),
        ("dispatches", "client_id", -(2**63), "outside 0 to 4"),
        ("dispatches", "client_id", 5, "outside 0 to 4"),
        ("dispatches", "dispatch_id", 0, "has a value twice"),
        ("dispatches", "aggregated_version", 2**40, "outside 0 to"),
        ("dispatches", "steps_done", -7, "outside 0 to"),
        ("dispatches", "bytes_down", 2**63 - 1, "outside 0 to"),
        ("dispatches", "arrived_s", -5.0, "outside 0 to"),
        ("dispatches", "arrived_s", 0.0, "arrived_s is less than their dispatched_s"),
        ("dispatches", "steps_done", 10**9, "steps_assigned is less than their steps_done"),
        ("dispatches", "staleness", 10**12, "outside 0 to"),
        ("critical", "to_s", 0.0, "to_s is less than their from_s"),
        ("presence", "from_s", 1e12, "to_s is less than their from_s"),
        ("partition", "label", -5, "outside 0 to"),
        ("aggregations", "time_s", NAN, "lacks values"),
        ("aggregations", "version", None, "lacks values"),
        ("aggregations", "attributes", None, "lacks values"),
        ("aggregations", "contributor_ids", None, "lacks values"),
        ("dispatches", "bytes_up", None, "lacks values"),
        ("dispatches", "outcome", None, "lacks values"),
        ("online", "online", None, "lacks values"),
        ("metrics", "version", None, "lacks values"),
        ("aggregations", "contributor_ids", [-1], "outside 0 to"),
        ("aggregations", "time_s", 0.0, "runs backward"),
        ("metrics", "time_s", math.inf, "outside 0 to"),
        ("clients", "online_fraction", 7.0, "outside 0 to 1"),
        ("metrics", "accuracy", 7.5, "is not 0 to 1"),
        ("metrics", "class_accuracy_3", 1.7e308, "is not 0 to 1"),
        ("clients", "client_id", 0, "has a value twice"),
        ("clients", "kind", None, "has 0 rows, but run.json has clients: 5"),
        ("clients", "kind", b"\xff\xfe", "Invalid UTF8"),
    ],
)
def test_values_that_no_run_has_are_refused(
    tmp_path: Path, table: str, column: str, value: Any, problem: str
) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3)
    versions = pq.read_metadata(tmp_path / "run" / "aggregations.parquet").num_rows
    path = tmp_path / "run" / f"{table}.parquet"
    data = pq.read_table(path)
    if table == "metrics" and column not in data.column_names:
        data = data.append_column(column, pa.array([0.5] * len(data)))
    index, kind = data.column_names.index(column), data.schema.field(column).type
    if isinstance(value, bytes):
        changed = pa.array([value] * len(data)).view(pa.string())
    else:
        changed = pa.array([*data.column(column).to_pylist()[:-1], value], kind)
    data = data.replace_schema_metadata(None)
    data = data.set_column(index, column, changed)
    pq.write_table(data[:0] if "rows" in problem and value is None else data, path)
    folder = RunFolder(tmp_path / "run")
    files = {**folder.read_info()["files"], path.name: file_sha256(path)}
    definition = {"higher_is_better": True, "unit": "share"}
    definitions = dict.fromkeys(("accuracy", "class_accuracy_3"), definition)
    folder.update_info(
        files=files, clients=5, versions_made=versions, metric_definitions=definitions
    )
    with pytest.raises(UserError, match=problem) as caught:
        _ = getattr(load_run(folder.path), table)
    assert caught.value.where == str(path)


def test_a_stream_of_metrics_without_a_column_is_damaged(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3, finish=False)
    path = RunFolder(tmp_path / "run").stream("metrics")
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        table = reader.read_all()
    values = pa.nulls(len(table), table.schema.field("values").type)
    for changed, problem in (
        (table.drop_columns(["version"]), "lacks the column 'version'"),
        (table.set_column(3, "values", values), None),
    ):
        with pa.ipc.new_stream(path, changed.schema) as writer:
            writer.write_table(changed)
        if problem is None:
            assert len(load_run(tmp_path / "run").metrics) == len(table)
            return
        with pytest.raises(UserError, match=problem):
            _ = load_run(tmp_path / "run").metrics


def test_a_killed_run_copied_over_an_older_one_shows_its_own_rows(tmp_path: Path) -> None:
    old = build_run(tmp_path / "both", clients=5, hours=6, cohort=3)
    new = build_run(tmp_path / "new", clients=5, hours=6, cohort=3, seed=1, finish=False)
    shutil.copytree(new.path, old.path, dirs_exist_ok=True)
    both = load_run(old.path)
    for table in ("dispatches", "aggregations", "metrics"):
        assert_frame_equal(getattr(both, table), getattr(new, table))
    assert (both.has_clients, both.online, both.info["seed"]) == (False, None, 1)


def test_a_file_missing_from_a_complete_run_is_not_to_be_had_by_resuming(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3)
    folder = RunFolder(tmp_path / "run")
    for name in ("clients", "metrics", "dispatches"):
        folder.parquet(name).unlink()
        for status, hint in (("complete", "repeat the run: fedsim run"), ("failed", "resume")):
            folder.update_info(status=status)
            is_stream = status == "failed" and name != "clients"
            file = f"{name}.arrows" if is_stream else f"{name}.parquet"
            with pytest.raises(UserError, match=re.escape(file)) as caught:
                _ = getattr(load_run(folder.path), name)
            assert hint in str(caught.value)
            assert ("resume" in str(caught.value)) == (status == "failed")
    wrong = pa.table({"time_s": [0.0]})
    with pa.ipc.new_stream(folder.stream("metrics"), wrong.schema) as writer:
        writer.write_table(wrong)
    with pytest.raises(UserError, match=r"metrics\.arrows: lacks the column"):
        _ = load_run(folder.path).metrics
    folder.stream("metrics").unlink()
    folder.stream("metrics").mkdir()
    with pytest.raises(UserError, match=r"metrics\.arrows: cannot be read"):
        _ = load_run(folder.path).metrics
    folder.update_info(status="complete", timing_only=True)
    with pytest.raises(UserError, match=r"--overwrite --timing-only$"):
        _ = load_run(folder.path).clients
    with pytest.raises(UserError, match="simulated time only"):
        load_run(folder.path).model()
    folder.scenario.unlink()
    again = f"repeat the run: fedsim run SCENARIO -o {folder.path} --overwrite --timing-only"
    assert again in str(folder.missing(folder.read_info(), folder.scenario))


def test_time_to_target(tmp_path: Path) -> None:
    folder, writer = started(tmp_path / "run")
    for time_s, accuracy, loss in [(0.0, 0.1, 2.0), (5.0, 0.8, NAN), (9.0, 0.7, 0.4)]:
        writer.append_metrics(time_s, 0, 0, {"accuracy": accuracy, "loss": loss})
    writer.finish()
    run = load_run(folder.path)
    assert run.time_to("accuracy", 0.8) == run.time_to("accuracy", "80%") == 5.0
    assert run.time_to("loss", 0.5) == 9.0
    assert math.isnan(run.time_to("accuracy", 0.9))
    with pytest.raises(UserError, match="accuracy, loss"):
        run.time_to("f1", 0.5)
    html = run._repr_html_()
    assert "tiny" in html
    assert "70.0%" in html


def run_of(columns: dict[str, list[float]], *metrics: Any, **info: Any) -> Any:
    """A run with evaluations of versions 0, 1, ... at 0 s, 10 s, ..., and metrics of its scenario."""
    rows = range(len(next(iter(columns.values()))))
    whens = {"time_s": [10.0 * row for row in rows], "version": rows, "round": rows}
    return SimpleNamespace(
        metrics=pd.DataFrame({**whens, **columns}),
        info=info,
        scenario={
            "evaluation": {"metrics": list(metrics)},
            "server": {"method": {"name": "fedavg"}},
        },
        metric_definition=METRICS.__getitem__,
    )


SHARE = {"loss": [1.0, 1.0], "share": [0.5, NAN]}


@pytest.mark.parametrize(
    ("run", "lost", "diverged"),
    [
        # A metric is lost from the evaluation after its last finite value.
        (
            run_of({"accuracy": [0.1, 0.2, 0.3, NAN], "loss": [2.0, NAN, 3.0, math.inf]}),
            [Lost("accuracy", 3, 30.0), Lost("loss", 3, 30.0)],
            True,
        ),
        (run_of({"loss": [1.0, NAN, NAN]}), [Lost("loss", 1, 10.0)], True),
        # A run that recovers has not diverged.
        (run_of({"loss": [1.0, NAN, 2.0]}), [], False),
        # A metric of the user may be undefined.
        (run_of(SHARE, "rare.py:share", "accuracy"), [Lost("share", 1, 10.0)], False),
        (run_of(SHARE, {"name": "rare.py:share"}), [Lost("share", 1, 10.0)], False),
    ],
)
def test_a_model_has_diverged_if_its_last_values_are_not_finite(
    run: Any, lost: list[Lost], diverged: bool
) -> None:
    assert lost_metrics(run) == [each.metric for each in lost]
    assert lost_since(run) == lost
    assert has_diverged(run) == diverged
    own = ["rare.py:share"] if run.scenario["evaluation"]["metrics"] else []
    assert own_metrics(run.scenario) == own


def test_the_record_of_a_finished_run_decides() -> None:
    values = {"loss": [1.0, 2.0]}
    assert last_metrics(run_of(values)) == {"loss": 2.0}
    # What is not finite is null in run.json.
    assert lost_metrics(run_of(values, metrics={"loss": None})) == ["loss"]
    assert math.isnan(last_metrics(run_of(values, metrics={"loss": None}))["loss"])
