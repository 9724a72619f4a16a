"""The run folder: what is written is what is read, whenever the writing stops."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from synthetic_runs import build_run

from fedsim.analysis.run import load_run
from fedsim.errors import UserError
from fedsim.learning.memory import Tensors
from fedsim.outcomes import OUTCOME_LABELS, Outcome
from fedsim.runs import Checkpoints, RunFolder, RunWriter, Status
from fedsim.runs.checkpoint import save_tensors
from fedsim.runs.environment import environment
from fedsim.runs.schema import DISPATCHES, TABLES
from fedsim.timeline import Aggregate, Contribution

NAN = math.nan
FIRST = (0, 4, 0, 0, 1.5, 2.25, 3.0, 4.0, 9, 9, Outcome.AGGREGATED, 0, 1, 80, 40, 0.5, 0, 2, 4.0)
SECOND = (1, 5, 0, 0, 1.5, 2.25, NAN, NAN, 9, 3, Outcome.DROPPED, -1, -1, 80, 0, 0.25, 0, 0, 2.75)


def started(path: Path, clients: int = 6) -> tuple[RunFolder, RunWriter]:
    folder = RunFolder(path)
    folder.path.mkdir()
    folder.begin("name: tiny\nseed: 3\n", {"versions": {"fedsim-des": "0.0.0"}})
    writer = RunWriter(folder, clients=clients)
    return folder, writer


def claim(path: Path, *, overwrite: bool = False) -> None:
    with RunFolder(path).claimed(overwrite=overwrite):
        pass


def test_rows_read_back_from_stream_and_parquet_alike(tmp_path: Path) -> None:
    folder, writer = started(tmp_path / "run")
    writer.append_dispatch(*SECOND)
    writer.append_dispatch(*FIRST)
    contributions = (Contribution(0, 4, 0),)
    writer.append_aggregation(Aggregate(1, 4.0, 0, contributions, {"online": 6.0}))
    writer.append_aggregation(Aggregate(2, 5.0, 1, ()))
    writer.append_metrics(0.0, 0, 0, {"accuracy": 0.1, "loss": 2.3})
    writer.append_metrics(4.0, 1, 0, {"accuracy": 0.5, "client_accuracy": 0.6})
    writer.flush()
    streamed = load_run(folder.path)
    names = [field.name for field in DISPATCHES.schema]
    assert list(streamed.dispatches) == names
    first = streamed.dispatches.iloc[0]
    for name, expected in zip(names, FIRST, strict=True):
        assert first[name] == ("aggregated" if name == "outcome" else expected), name
    second = streamed.dispatches.iloc[1]
    assert second["outcome"] == "dropped"
    assert second["staleness"] is pd.NA
    assert second["aggregated_version"] is pd.NA
    assert math.isnan(second["computed_s"])
    assert streamed.aggregations["contributor_ids"].map(list).tolist() == [[0], []]
    assert streamed.aggregations["attributes"].tolist() == [{"online": 6.0}, {}]
    assert streamed.aggregations["staleness_max"].isna().tolist() == [False, True]
    assert list(streamed.metrics) == [
        "time_s",
        "version",
        "round",
        "accuracy",
        "loss",
        "client_accuracy",
    ]
    assert streamed.simulated_s == 5.0

    writer.finish()
    assert not list(folder.path.glob("*.arrows"))
    finished = load_run(folder.path)
    for table in ("dispatches", "aggregations", "metrics"):
        pd.testing.assert_frame_equal(getattr(streamed, table), getattr(finished, table))


def test_outcomes_keep_all_six_categories(tmp_path: Path) -> None:
    _, writer = started(tmp_path / "run")
    writer.append_dispatch(*SECOND)
    writer.finish()
    outcome = load_run(tmp_path / "run").dispatches["outcome"]
    assert tuple(outcome.cat.categories) == OUTCOME_LABELS
    assert outcome.cat.codes.tolist() == [Outcome.DROPPED]


def test_delay_is_that_of_the_client_absent_for_longest(tmp_path: Path) -> None:
    # The log oracle of the FedSUM card, section 3.
    _, writer = started(tmp_path / "run", clients=3)
    for version, active in enumerate([[0], [1], [0, 1], [2], [0], [1, 2]], start=1):
        contributions = tuple(Contribution(10 * version + c, c, 0) for c in active)
        writer.append_aggregation(Aggregate(version, float(version), version - 1, contributions))
    writer.finish()
    assert load_run(tmp_path / "run").aggregations["delay_max"].tolist() == [1, 2, 3, 1, 2, 1]


def test_schema_metadata_carries_units(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=5, hours=2, cohort=3)
    for table in TABLES:
        schema = pq.read_schema(tmp_path / "run" / f"{table.name}.parquet")
        for field in schema:
            if field.name in ("accuracy", "loss"):
                continue
            assert field.metadata[b"description"], (table.name, field.name)
            if field.name.endswith("_s"):
                assert field.metadata[b"unit"] == b"s"


def test_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        build_run(tmp_path / name, clients=10, hours=4, cohort=5)
    for table in TABLES:
        one, two = (
            (tmp_path / name / f"{table.name}.parquet").read_bytes() for name in ("one", "two")
        )
        assert one == two, table.name


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from test_run_folder import FIRST, started
from fedsim.timeline import Aggregate
folder, writer = started(sys.argv[1])
number = 0
while True:
    writer.append_dispatch(number, *FIRST[1:])
    number += 1
    if number == 100_000:
        writer.append_aggregation(Aggregate(1, 4.0, 0, ()))
        writer.append_metrics(4.0, 1, 0, {"accuracy": 0.5})
        writer.flush()
        print("ready", flush=True)
"""


def test_killed_run_is_readable_up_to_its_last_flush(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), str(Path(__file__).parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    run = load_run(tmp_path / "run")
    assert run.status is Status.RUNNING
    assert len(run.dispatches) >= 100_000
    assert (run.dispatches["dispatch_id"] == np.arange(len(run.dispatches))).all()
    assert run.metrics["accuracy"].tolist() == [0.5]
    assert len(run.aggregations) == 1


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_stream_cut_anywhere_gives_its_whole_batches(tmp_path: Path, kept: float) -> None:
    folder, writer = started(tmp_path / "run")
    for number in range(40):
        writer.append_dispatch(number, *FIRST[1:])
        writer.flush()
    writer.close()
    stream = folder.stream("dispatches")
    content = stream.read_bytes()
    stream.write_bytes(content[: int(kept * len(content))])
    found = load_run(folder.path).dispatches["dispatch_id"].tolist()
    assert found == list(range(len(found)))
    assert kept * 40 - 5 <= len(found) <= 40


def test_existing_folder_is_refused_and_overwriting_spares_the_users_files(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists"):
        claim(tmp_path / "run")
    claim(tmp_path / "run", overwrite=True)
    left = sorted(p.name for p in (tmp_path / "run").iterdir())
    assert left == [".lock", "notes.txt"]


def test_folder_that_is_no_run_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "model.safetensors").write_text("mine")
    for manifest in ("", "{}", '{"format": 3, "name": "my extension"}'):
        (tmp_path / "thesis" / "run.json").write_text(manifest)
        with pytest.raises(UserError, match="not written by fedsim"):
            claim(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "model.safetensors").read_text() == "mine"


@pytest.mark.parametrize("beneath", [True, False])
def test_unwritable_place_is_the_users_error(tmp_path: Path, beneath: bool) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "run" if beneath else tmp_path / "file"
    with pytest.raises(UserError):
        claim(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_read_only_folder_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(UserError, match="cannot write"):
        claim(tmp_path / "locked" / "run")


def test_resume_writes_the_tables_anew_and_keeps_the_rest(tmp_path: Path) -> None:
    folder, writer = started(tmp_path / "run")
    writer.append_dispatch(*FIRST)
    writer.close()
    with RunWriter(folder, clients=6) as writer:
        writer.append_dispatch(*SECOND)
        writer.finish()
    assert load_run(folder.path).dispatches["dispatch_id"].tolist() == [1]


def read_everything(path: Path) -> None:
    run = load_run(path)
    _ = run.dispatches, run.aggregations, run.metrics, run.scenario, run.model()


def damage(folder: RunFolder, what: str) -> None:
    if what == "no run.json":
        folder.info.unlink()
    elif what == "broken run.json":
        folder.info.write_text('{"status": ')
    elif what == "later format":
        folder.info.write_text(json.dumps({"format": 99}))
    elif what == "truncated parquet":
        path = folder.parquet("dispatches")
        path.write_bytes(path.read_bytes()[:-20])
    elif what == "other parquet":
        path = folder.parquet("aggregations")
        path.write_bytes(folder.parquet("clients").read_bytes())
    elif what == "no table":
        folder.parquet("metrics").unlink()
    elif what == "broken scenario":
        folder.scenario.write_text("a: [1\n")
    elif what == "edited run.json":
        folder.info.write_text(folder.info.read_text().replace('"complete"', '"running"'))
    elif what == "edited scenario":
        folder.scenario.write_text(folder.scenario.read_text() + "\n")
    elif what == "no model":
        assert not folder.model.exists()
    elif what == "broken model":
        folder.model.write_bytes(b"\x00" * 20)


@pytest.mark.parametrize(
    ("what", "file"),
    [
        ("no run.json", "run"),
        ("broken run.json", "run.json"),
        ("later format", "run.json"),
        ("truncated parquet", "dispatches.parquet"),
        ("other parquet", "aggregations.parquet"),
        ("no table", "metrics.parquet"),
        ("broken scenario", "scenario.yaml"),
        ("edited run.json", "run.json"),
        ("edited scenario", "scenario.yaml"),
        ("no model", "model.safetensors"),
        ("broken model", "model.safetensors"),
    ],
)
def test_damage_is_named_with_the_file_and_a_way_out(tmp_path: Path, what: str, file: str) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3)
    damage(RunFolder(tmp_path / "run"), what)
    with pytest.raises(UserError) as caught:
        read_everything(tmp_path / "run")
    assert caught.value.where is not None
    assert Path(caught.value.where).name == file
    assert caught.value.hint


def test_a_file_missing_from_a_complete_run_is_not_to_be_had_by_resuming(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3)
    folder = RunFolder(tmp_path / "run")
    for name in ("clients", "metrics", "dispatches"):
        folder.parquet(name).unlink()
        for status, hint in (("complete", "repeat the run: fedsim run"), ("failed", "resume")):
            folder.update_info(status=status)
            with pytest.raises(UserError, match=rf"{name}\.parquet") as caught:
                _ = getattr(load_run(folder.path), name)
            assert hint in str(caught.value)
            assert ("resume" in str(caught.value)) == (status == "failed")
    folder.update_info(status="complete", timing_only=True, timeline={"run": "days", "seed": 0})
    with pytest.raises(UserError, match=r"--overwrite --timing-only --timeline days$"):
        _ = load_run(folder.path).clients
    with pytest.raises(UserError, match="simulated time only"):
        load_run(folder.path).model()


def test_missing_folder_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run folder"):
        load_run(tmp_path / "nowhere")


def test_time_to_target(tmp_path: Path) -> None:
    folder, writer = started(tmp_path / "run")
    for time_s, accuracy, loss in [(0.0, 0.1, 2.0), (5.0, 0.8, NAN), (9.0, 0.7, 0.4)]:
        writer.append_metrics(time_s, 0, 0, {"accuracy": accuracy, "loss": loss})
    writer.finish()
    run = load_run(folder.path)
    assert run.time_to("accuracy", 0.8) == 5.0
    assert run.time_to("loss", 0.5) == 9.0
    assert math.isnan(run.time_to("accuracy", 0.9))
    with pytest.raises(UserError, match="accuracy, loss"):
        run.time_to("f1", 0.5)
    html = run._repr_html_()
    assert "tiny" in html
    assert "70.0%" in html


def test_a_checkpoint_is_written_in_files_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more tensors are asked for before they are written than fit into a file; a larger one has its own."""
    monkeypatch.setattr("fedsim.runs.checkpoint._FILE_BYTES", 64)
    sizes = {"a": 4, "b": 4, "c": 1, "d": 30, "e": 8, "f": 1}
    alive = weakref.WeakSet[Any]()
    most = 0

    def make(name: str) -> torch.Tensor:
        nonlocal most
        value = torch.full((sizes[name],), float(ord(name)), dtype=torch.float64)
        alive.add(value)
        most = max(most, sum(other.nbytes for other in alive if len(other) < 30))
        return value

    checkpoints = Checkpoints(tmp_path / "checkpoint")
    checkpoints.save(Tensors({name: partial(make, name) for name in sizes}), {"version": 1})
    assert most <= 64 + 64
    assert len(list((tmp_path / "checkpoint" / "1").glob("*.safetensors"))) == 5
    loaded = checkpoints.load()
    assert loaded is not None
    assert {name: value.tolist() for name, value in loaded[0].items()} == {
        name: [float(ord(name))] * size for name, size in sizes.items()
    }
    (tmp_path / "checkpoint" / "1" / "tensors-2.safetensors").unlink()
    with pytest.raises(UserError, match="resume"):
        checkpoints.load()


def test_checkpoint_keeps_the_last_good_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    assert checkpoints.load() is None
    flat = torch.arange(6, dtype=torch.float64)
    checkpoints.save({"x": flat, "view": flat[2:4], "again": flat}, {"version": 1, "a": 0.1})
    checkpoints.save({"x": flat * 2, "half": flat.to(torch.bfloat16)}, {"version": 2})
    loaded = checkpoints.load()
    assert loaded is not None
    tensors, state = loaded
    assert state == {"version": 2}
    assert torch.equal(tensors["x"], flat * 2)
    assert tensors["half"].dtype == torch.bfloat16
    checkpoints.save({"x": flat * 3}, {"version": 3})
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["2", "3"]
    # A save that was killed half way leaves the ones before, and goes with the next.
    (tmp_path / "checkpoint" / ".fedsim-tmp-1").mkdir()
    assert checkpoints.load() is not None
    # A damaged newer one is noticed, and the older one used.
    (tmp_path / "checkpoint" / "3" / "tensors-0.safetensors").write_bytes(b"x")
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded[1] == {"version": 2}
    state = tmp_path / "checkpoint" / "2" / "state.json"
    state.write_text(state.read_text().replace("2", "3"))
    with pytest.raises(UserError, match="resume"):
        checkpoints.load()
    checkpoints.save({"x": flat * 4}, {"version": 4})
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["3", "4"]
    checkpoints.remove()
    assert not (tmp_path / "checkpoint").exists()


def test_checkpoint_views_and_shared_tensors(tmp_path: Path) -> None:
    flat = torch.arange(6, dtype=torch.float32)
    save_tensors(tmp_path / "m.safetensors", {"a": flat, "b": flat, "c": flat.view(2, 3).T})
    _, writer = started(tmp_path / "run")
    writer.close()
    save_tensors(tmp_path / "run" / "model.safetensors", {"a": flat, "c": flat.view(2, 3).T})
    assert torch.equal(load_run(tmp_path / "run").model()["c"], flat.view(2, 3).T)


def test_environment_names_what_results_depend_on() -> None:
    found = environment()
    assert found["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert found["hardware"]["cores"] == os.cpu_count()
    json.dumps(found)
