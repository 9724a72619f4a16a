"""Sweeps on Slurm: submitit's executors for tests give the results of local processes, and what sbatch is told."""

import os
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from fedsim.sweeps.execution import sweep
from fedsim.sweeps.plan import plan_runs
from fedsim.sweeps.slurm import Slurm, Work, run_on_slurm
from fedsim.sweeps.task import Task
from tests.sweeps.worlds import SMALL, all_digests

pytestmark = pytest.mark.usefixtures("without_reports")

SBATCH = """#!/bin/sh
cp "$1" "$(dirname "$0")/submitted"
echo "Submitted batch job 7"
"""


def tasks(folder: Path) -> list[Task]:
    planned = plan_runs(load_scenario_dict(SMALL, "."))
    return [Task.of(number, folder / run.name, run.loaded) for number, run in enumerate(planned)]


@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_the_results_are_those_of_this_process(cluster: str, tmp_path: Path) -> None:
    loaded = load_scenario_dict(SMALL, ".")
    here = sweep(loaded, tmp_path / "here", jobs=1)
    there = sweep(loaded, tmp_path / "there", engine=Slurm(cluster=cluster))
    assert not there.failures
    assert all_digests(there.sweep) == all_digests(here.sweep)
    again = sweep(loaded, tmp_path / "there", engine=Slurm(cluster=cluster))
    assert (again.ran, again.skipped) == (0, 4)


def test_a_preempted_run_is_queued_again_with_its_folder(tmp_path: Path) -> None:
    [task, *_] = tasks(tmp_path)
    again = Work().checkpoint(task)
    assert (type(again.function), again.args) == (Work, (task,))


def test_sbatch_gets_one_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are those of sbatch(1)."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sbatch", "srun", "squeue", "sacct", "scancel"):
        (tools / name).write_text(SBATCH if name == "sbatch" else "#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    slurm = Slurm.parse("short", "90min", "8GB")
    results = run_on_slurm(tasks(tmp_path), 2, tmp_path, slurm)
    assert next(results) is None  # Nothing has ended.
    results.close()
    lines = (tools / "submitted").read_text().splitlines()
    options = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines if "#SBATCH" in line
    )
    expected = {
        "array": "0-3%2",
        "partition": "short",
        "time": "90",
        "mem": "8GB",
        "open-mode": "append",
    }
    assert expected.items() <= options.items()
    assert options["signal"].startswith("USR2@")
    assert "no-requeue" not in options


def test_without_slurm_the_engine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="there is no Slurm"):
        next(run_on_slurm(tasks(tmp_path), 2, tmp_path, Slurm()))


def test_a_time_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UserError, match="for example 2h and 8GB"):
        Slurm.parse(None, "2 fortnights", "8GB")
