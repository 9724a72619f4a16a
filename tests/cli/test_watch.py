"""``fedsim watch``: what it shows of a folder, and what it says comes next."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedsim
from fedsim.files.checksums import file_sha256
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.records import BOARD
from fedsim.runs.run import Run
from tests.cli.invoking import PARABOLAS, assert_refused, invoke
from tests.methods.own_method import run_with
from tests.sweeps.worlds import record


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "scenario.yaml").write_text(PARABOLAS)
    return fedsim.run(tmp_path / "scenario.yaml", tmp_path / "run").folder


@pytest.mark.parametrize(
    ("status", "shown", "last"),
    [
        (Status.COMPLETE, "complete, 100%, ", "report: {run}/report.html"),
        (Status.RUNNING, "interrupted, ", "continue with: fedsim resume {run}"),
        (Status.FAILED, "failed, ", "again: fedsim run {run}/scenario.yaml -o {run}"),
    ],
)
def test_a_run_ends_with_its_next_step(
    run: RunFolder, status: Status, shown: str, last: str
) -> None:
    """A run that is in progress without a process has been killed."""
    run.update_info(status=status, error="UserError: stalled" if status == "failed" else None)
    first, next_step = invoke("watch", run.path).stdout.splitlines()
    assert first.startswith(f"run: {shown}")
    assert next_step.endswith(last.format(run=run.path))
    assert invoke("watch", run.path, "--once").stdout.splitlines() == [first]
    if status is Status.FAILED:
        assert invoke(*next_step.partition("fedsim ")[2].split()).exit_code == 0


def test_a_damaged_run_does_not_hide_the_others(run: RunFolder) -> None:
    other = shutil.copytree(run.path, run.path.parent / "other")
    (other / "scenario.yaml").write_text("[]")
    shown = invoke("watch", other.parent, "--once").stdout.splitlines()
    assert shown[0] == "other: damaged, it has changed since fedsim wrote it"
    assert shown[1].startswith("run: complete, 100%")
    files = {"scenario.yaml": file_sha256(other / "scenario.yaml")}
    RunFolder(other).update_info(files={**run.read_info()["files"], **files})
    assert_refused(invoke("watch", other, "--once"), "scenario.yaml: is not a scenario")


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler, because a shell's background jobs ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_has_the_rows_of_the_version_in_its_checkpoint(tmp_path: Path) -> None:
    """The signal comes during an aggregation, which is executed at once."""
    aggregated = 'return {"model": server'
    stopping = f"__import__('signal').raise_signal(2)\n        {aggregated}"
    options = ["-s", "training.verify=eager", "-s", "evaluation.every_rounds=1"]
    result = run_with(tmp_path, aggregated, stopping, options=options)
    assert result.exit_code == 130, result.output
    folder = RunFolder(tmp_path / "out")
    assert folder.checkpoints(folder.read_info()).newest_state()["version"] == 1
    assert Run(folder).aggregations["version"].tolist() == [1]
    shown = invoke("watch", "--once", folder.path).stdout
    assert "version 1, loss " in shown


def test_a_run_that_failed_at_once_shows_its_error_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedsim.scheduling.selections.uniform import Uniform\n"
        "class Mine(Uniform):\n    def draw(self, count):\n        return 1 / 0\n"
    )
    server = "server: {selection: {name: 'mine.py:Mine', cohort: 2}}\n"
    (tmp_path / "own.yaml").write_text(PARABOLAS + server)
    assert invoke("run", tmp_path / "own.yaml", "-o", tmp_path / "out").exit_code == 2
    line = invoke("watch", "--once", tmp_path / "out").stdout
    assert line == "out: failed, ZeroDivisionError: division by zero\n"


def test_a_sweep_has_a_line_per_run(run: RunFolder) -> None:
    sweep = run.path.parent
    record(sweep, "run", "later")
    lines = invoke("watch", sweep, "--once").stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == ["run: complete", "later: waiting"]
    # Nobody will start the second run, so there is nothing to wait for.
    *_, last = invoke("watch", sweep).stdout.splitlines()
    assert last == "to finish the other runs, repeat the command of the sweep"
    record(sweep, "run")
    *_, last = invoke("watch", sweep).stdout.splitlines()
    assert last == f"compare the runs with: fedsim compare {sweep}"
    run.update_info(status=Status.FAILED, error="UserError: stalled")
    *_, last = invoke("watch", sweep).stdout.splitlines()
    assert last == "after fixing the cause, repeat the command of the sweep"


def test_a_board_shows_the_runs_in_progress(run: RunFolder, tmp_path: Path) -> None:
    board = tmp_path / "board"
    shutil.copytree(run.path, board / f"{TEMPORARY_PREFIX}a" / "3-silos")
    BOARD.write(board, {"asked": {}, "files": {}})
    lines = invoke("watch", board).output.splitlines()
    assert lines[0].startswith("3-silos: complete")
    assert "is not running" in lines[1]
    shutil.rmtree(board / f"{TEMPORARY_PREFIX}a")
    assert "is not running" in invoke("watch", board, "--once").stdout
    (board / BOARD.file).write_text("{}")
    assert_refused(invoke("watch", board, "--once"), "board.json: cannot be read")


def test_a_folder_has_a_line_per_run_below_it(run: RunFolder) -> None:
    folder = run.path.parent
    (folder / "sweep").mkdir()
    record(folder / "sweep", "later")
    first, second, last = invoke("watch", folder).stdout.splitlines()
    assert first.startswith("run: complete, 100%, ")
    assert second == "sweep/later: waiting"
    assert last == f"list them with: fedsim ls {folder}"
    assert_refused(invoke("watch", folder / "sweep" / "no"), "no such folder")
