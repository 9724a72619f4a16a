"""Progress: shares by hand, time left at a constant pace, and what a folder shows."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import fedsim
from fedsim.errors import UserError
from fedsim.files.locks import locked
from fedsim.runs import RunFolder
from fedsim.runs import progress as module
from fedsim.runs.checkpoint import Checkpoints
from fedsim.runs.folder import Status
from fedsim.runs.progress import Pace, snapshot
from tests.tracking.listening import SCENARIO as TRACKED

SCENARIO: dict[str, Any] = {
    key: value for key, value in TRACKED.items() if key not in ("name", "evaluation")
}
SCENARIO["training"] = {"local_steps": 2, "verify": "eager"}


def test_the_time_left_is_exact_at_a_constant_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    pace = Pace()
    assert [pace.left_s(share) for share in (0.0, 0.1, 0.2)] == [None, 90.0, 80.0]


def test_the_time_left_of_a_sweep_is_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 20, 60 and 200 s, some of which end at their target; a window of a minute errs 20-fold."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    pace, runs = Pace(), [(20, 1.0), (200, 0.4), (60, 0.1), (200, 1.0), (60, 0.4), (20, 0.1)] * 5
    whole_s, predicted = sum(seconds for seconds, _ in runs), []
    for number, (seconds, ends_at) in enumerate(runs):
        for at in range(0, seconds, 2):
            left_s = pace.left_s((number + ends_at * at / seconds) / len(runs))
            if clock[0] > 0.2 * whole_s:
                assert left_s is not None
                predicted.append((clock[0] + left_s) / whole_s)
            clock[0] += 2
    assert min(predicted) > 0.75
    assert max(predicted) < 1.35


def interrupt_after(version: int, error: type[BaseException]) -> Any:
    def on_progress(progress: Any) -> None:
        if progress.version == version:
            raise error("on purpose")

    return on_progress


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory, with_reports: None) -> Path:
    return fedsim.run(SCENARIO, tmp_path_factory.mktemp("progress") / "run").path


@pytest.fixture
def run(complete: Path, tmp_path: Path) -> fedsim.Run:
    """A copy of a complete run."""
    return fedsim.load(shutil.copytree(complete, tmp_path / "run"))


def test_a_snapshot_shows_the_run(run: fedsim.Run) -> None:
    shown = snapshot(run.folder)
    assert (shown.status, shown.progress.share) == (Status.COMPLETE, 1.0)
    assert shown.progress.version == 4
    assert shown.progress.metrics["accuracy"] == run.metrics["accuracy"].iloc[-1]


def test_a_run_without_a_process_is_interrupted_in_every_view(run: fedsim.Run) -> None:
    run.folder.update_info(status=Status.RUNNING)
    killed = fedsim.load(run.path)
    assert snapshot(run.folder).status == killed.status == Status.INTERRUPTED
    assert "This run was interrupted" in killed.report().read_text()
    with locked(run.path):
        at_work = fedsim.load(run.path)
        assert snapshot(run.folder).status == at_work.status == Status.RUNNING
        assert "This run is in progress" in at_work.report().read_text()


def test_an_interrupted_run_is_as_far_as_its_checkpoint(run: fedsim.Run) -> None:
    """A resumed run that was killed at once has few rows, but has lost nothing."""
    folder = run.folder
    folder.update_info(status="interrupted")
    assert (snapshot(folder).progress.version, snapshot(folder).progress.share) == (4, 1.0)
    state = {"version": 236, "simulated_s": 500.0, "share": 0.42}
    folder.checkpoints(folder.read_info()).save({"model": torch.ones(2)}, state)
    progress = snapshot(folder).progress
    assert (progress.version, progress.simulated_s, progress.share) == (236, 500.0, 0.42)
    Checkpoints(folder.checkpoint, "of another run").save({}, {**state, "version": 999})
    assert snapshot(folder).progress.version == 236
    folder.checkpoints(folder.read_info()).save({"model": torch.ones(2)}, {**state, "version": 3})
    assert snapshot(folder).progress.version == 4
    folder.stream("metrics").touch()
    folder.close(Status.INTERRUPTED)
    folder.stream("metrics").unlink()
    folder.parquet("metrics").unlink()
    folder.stream("aggregations").touch()
    with pytest.raises(UserError, match=r"metrics\.arrows: no such file"):
        snapshot(folder)


def test_a_failed_run_is_replaced_and_an_interrupted_one_is_not(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(RuntimeError):
        fedsim.run(SCENARIO, folder.path, on_progress=interrupt_after(2, RuntimeError))
    assert folder.read_info()["status"] == Status.FAILED
    assert "8 clients" in fedsim.load(folder.path).report().read_text()
    with pytest.raises(KeyboardInterrupt):
        fedsim.run(SCENARIO, folder.path, on_progress=interrupt_after(2, KeyboardInterrupt))
    assert folder.read_info()["status"] == Status.INTERRUPTED
    with pytest.raises(UserError, match="not empty"):
        fedsim.run(SCENARIO, folder.path)


def test_models_are_kept_every_few_versions_also_after_resuming(tmp_path: Path) -> None:
    scenario = {**SCENARIO, "checkpoint_models": {"every": "2 versions"}}
    whole = fedsim.run(scenario, tmp_path / "whole")
    names = ["version-00000002.safetensors", "version-00000004.safetensors"]
    assert sorted(path.name for path in whole.folder.models.iterdir()) == names
    assert (whole.folder.models / names[1]).read_bytes() == whole.folder.model.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        fedsim.run(scenario, tmp_path / "run", on_progress=interrupt_after(3, KeyboardInterrupt))
    resumed = fedsim.resume(tmp_path / "run")
    for name in names:
        assert (resumed.folder.models / name).read_bytes() == (
            whole.folder.models / name
        ).read_bytes()
