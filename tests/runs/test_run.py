"""Reading a run: damage is named with the file and a way out, and targets are found."""

import math
from collections.abc import Callable
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


def edited(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    ("file", "change", "where"),
    [
        ("run.json", None, "run"),
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
    folder.update_info(status="complete", timing_only=True)
    with pytest.raises(UserError, match=r"--overwrite --timing-only$"):
        _ = load_run(folder.path).clients
    with pytest.raises(UserError, match="simulated time only"):
        load_run(folder.path).model()


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
