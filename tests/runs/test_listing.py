"""The list of a folder: runs, sweeps and what lies between them."""

import errno
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.runs.listing import DAMAGED, UNREADABLE, contents, listed
from fedsim.runs.records import DECISION
from fedsim.runs.verification import verify
from fedsim.sweeps import Sweep
from tests.cli.invoking import invoke
from tests.runs.synthetic_runs import build_run
from tests.sweeps.worlds import record


def made(path: Path, seed: int, **info: object) -> Path:
    run = build_run(path, hours=6, seed=seed)
    run.folder.update_info(name=run.name, **info)
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run in a folder of its own, and a sweep of which one run of two has begun."""
    folder = tmp_path / "runs"
    made(folder / "deep" / "alone", 0, method="fedavg", tags=["paper"])
    made(folder / "sweep" / "one", 7, method="fedbuff")
    record(folder / "sweep", "one", "two")
    (folder / ".hidden").mkdir()
    return folder


def test_a_sweep_is_one_row_and_its_runs_are_those_of_its_folder(runs: Path) -> None:
    assert contents(runs) == [runs / "deep" / "alone", runs / "sweep"]
    alone, sweep = listed(runs)
    assert (alone.statuses, alone.methods, alone.seeds) == ({"complete": 1}, ("fedavg",), (0,))
    assert (alone.tags, dict(alone.times_s)) == (("paper",), {})
    assert sweep.statuses == {"complete": 1, "waiting": 1}
    assert (sweep.methods, sweep.seeds) == (("fedbuff",), (7, 1))
    assert [row.path.name for row in listed(runs / "sweep")] == ["one", "two"]
    assert listed(runs / "deep" / "alone")[0] == alone


def test_times_are_those_of_the_first_evaluation_that_reached_the_target(runs: Path) -> None:
    from fedsim.analysis.run import load_run

    metrics = load_run(runs / "deep" / "alone").metrics
    level = float(metrics["accuracy"].iloc[1])
    expected = metrics["time_s"][metrics["accuracy"] >= level].iloc[0]
    alone, sweep = listed(runs, {"accuracy": level, "loss": 0.0})
    assert alone.times_s["accuracy", level] == [expected]
    assert math.isnan(alone.times_s["loss", 0.0][0])
    # A run that has not begun has no time.
    assert len(sweep.times_s["accuracy", level]) == 1


def test_the_runs_of_a_decision_are_listed_only_in_its_folder(runs: Path) -> None:
    made(runs / "best" / "runs" / "0a1b", 0)
    assert runs / "best" / "runs" / "0a1b" in contents(runs)
    begun = {"asked": {}, "batch": 1, "batches": 1, "spent_s": 0.0, "files": {}}
    DECISION.write(runs / "best", {**begun, "complete": {"runs/0a1b": "x", "runs/lost": "x"}})
    assert contents(runs) == [runs / "deep" / "alone", runs / "sweep"]
    for folder in (runs / "best", runs / "best" / "runs"):
        assert [set(row.statuses) for row in listed(folder)] == [{DAMAGED}, {DAMAGED}]


def test_a_link_to_the_folder_above_is_not_followed(runs: Path) -> None:
    (runs / "deep" / "above").symlink_to(runs)
    assert contents(runs) == [runs / "deep" / "alone", runs / "sweep"]


def test_a_damaged_run_does_not_hide_the_others(runs: Path) -> None:
    (runs / "deep" / "alone" / "run.json").write_text("{")
    (runs / "sweep" / "one" / "metrics.parquet").write_bytes(b"")
    assert [set(row.statuses) for row in listed(runs)] == [{DAMAGED}, {"complete", "waiting"}]
    # Whether it has reached a target is not known.
    rows = listed(runs / "sweep", {"accuracy": 0.5})
    assert [set(row.statuses) for row in rows] == [{DAMAGED}, {"waiting"}]


def test_a_run_that_lost_its_run_json_is_damaged_wherever_it_is_found(runs: Path) -> None:
    for lost in ("deep/alone", "sweep/one"):
        (runs / lost / "run.json").unlink()
    found = [{DAMAGED: 1}, {DAMAGED: 1, "waiting": 1}]
    assert [row.statuses for row in listed(runs)] == found
    shown = invoke("watch", "--once", runs).stdout.splitlines()
    message = "damaged, is missing or damaged, but the folder has files of a run"
    assert shown == [f"deep/alone: {message}", f"sweep/one: {message}", "sweep/two: waiting"]
    for command in ("ls", "watch", "verify", "compare"):
        assert "but the folder has files of a run" in invoke(command, runs / "deep/alone").output
    for folder in (runs / "sweep", runs / "deep"):
        shown = invoke("compare", folder).output
        assert f"is damaged (run.json: {message.removeprefix('damaged, ')})" in shown
    with pytest.raises(UserError, match="but the folder has files of a run"):
        _ = Sweep(runs / "sweep").runs


def test_a_run_that_failed_before_it_had_a_folder_has_failed(runs: Path) -> None:
    index = {"run": ["one", "two"], "status": ["complete", "failed"], "error": ["", "no luck\n!"]}
    pd.DataFrame(index).to_parquet(runs / "sweep" / "index.parquet")
    assert listed(runs)[1].statuses == {"complete": 1, "failed": 1}
    assert listed(runs / "sweep")[1].seeds == (1,)
    assert invoke("watch", "--once", runs / "sweep").stdout.endswith("two: failed, no luck\n")
    [item] = fedsim.compare(runs / "sweep").left_out
    assert item.reason == "failed (no luck)"


def test_copied_tables_are_no_run(runs: Path) -> None:
    (runs / "tables").mkdir()
    for table in (runs / "deep" / "alone").glob("*.parquet"):
        shutil.copy(table, runs / "tables")
    assert len(list((runs / "tables").iterdir())) > 2
    assert contents(runs) == [runs / "deep" / "alone", runs / "sweep"]


def test_what_may_not_be_opened_is_not_called_damaged(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert [set(row.statuses) for row in listed(runs)] == [{UNREADABLE}, {UNREADABLE}]
    (verdict,) = verify(runs / "sweep")
    assert verdict.state == "not verifiable"


@pytest.mark.parametrize("closed", ["sweep/one", "deep/alone"])
def test_a_folder_that_may_not_be_opened_does_not_hide_the_others(
    runs: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    before, stat = {row.path: dict(row.statuses) for row in listed(runs)}, os.stat

    def refuse(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if isinstance(path, Path) and path.parent == runs / closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", refuse)
    now = {row.path: dict(row.statuses) for row in listed(runs)}
    changed = {
        path.relative_to(runs).as_posix(): now[path] for path in now if now[path] != before[path]
    }
    assert (
        changed
        == {
            "sweep/one": {"sweep": {UNREADABLE: 1, "waiting": 1}},
            "deep/alone": {"deep/alone": {UNREADABLE: 1}},
        }[closed]
    )
    shown = invoke("watch", "--once", runs)
    assert shown.exit_code == 0
    assert f"{closed}: unreadable, cannot be read: Permission denied" in shown.stdout
    one = {"sweep/one": "not verifiable", "deep/alone": "intact"}[closed]
    assert [each.state for each in verify(runs / "sweep")] == ["intact", one]


@pytest.mark.parametrize(("folder", "problem"), [("no", "no such"), (".hidden", "contains no run")])
def test_a_folder_without_runs_is_refused(runs: Path, folder: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        listed(runs / folder)


def test_a_search_ends_and_says_so(
    runs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert (len(contents(runs)), caplog.messages) == (2, [])
    monkeypatch.setattr("fedsim.runs.listing._MOST_FOLDERS", 1)
    for _ in range(2):
        assert contents(runs) == [runs / "sweep"]
    note = f"{runs}: only 1 folders were searched; give a folder nearer to the runs"
    assert caplog.messages == [note]
