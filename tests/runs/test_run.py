"""Reading a run: damage is named with the file and a way out, and targets are found."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fedsim.analysis.run import load_run
from fedsim.errors import UserError
from fedsim.runs import RunFolder
from tests.runs.synthetic_runs import build_run
from tests.runs.written import started

NAN = math.nan


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
    assert run.time_to("accuracy", 0.8) == run.time_to("accuracy", "80%") == 5.0
    assert run.time_to("loss", 0.5) == 9.0
    assert math.isnan(run.time_to("accuracy", 0.9))
    with pytest.raises(UserError, match="accuracy, loss"):
        run.time_to("f1", 0.5)
    html = run._repr_html_()
    assert "tiny" in html
    assert "70.0%" in html
