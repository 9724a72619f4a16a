"""Sweeps on Ray and Slurm: the results of local processes, and what sbatch is told."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from fedsim.sweeps import Ray, cluster
from fedsim.sweeps.cluster import Slurm, Work, run_on_slurm
from fedsim.sweeps.execution import sweep
from fedsim.sweeps.plan import plan_runs
from fedsim.sweeps.task import Task
from tests.sweeps.worlds import SMALL, all_digests, broken, command, digests, scenario, write


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_user_is_told_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pip install \"fedsim-des\[ray\]\""):
        fedsim.sweep(SMALL, tmp_path / "sweep", engine="ray")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_gives_the_results_of_the_local_engine(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    body = (
        f"p = __import__('pathlib').Path({str(lost)!r})\n"
        "        if p.exists(): return super().aggregate(server, updates)\n"
        "        p.touch(); __import__('os')._exit(9)"
    )
    (tmp_path / "dies").mkdir()
    dies = {"name": broken(tmp_path / "dies", body)}
    methods = [{"name": broken(tmp_path, "return 1 / 0")}, {"name": "fedavg"}, dies]
    data = scenario(grid={"server.method": methods}, seeds=[0, 1])
    ray = fedsim.sweep(data, tmp_path / "ray", jobs=2, engine="ray")
    assert ray.index["status"].tolist() == ["failed"] * 2 + ["complete"] * 4
    assert lost.exists()  # a process was lost, and its run resumed by another
    local = fedsim.sweep(data, tmp_path / "local", jobs=1)
    assert ray.failures == local.failures
    assert all("ZeroDivisionError: division by zero" in text for text in ray.failures.values())
    for run in ray.runs:
        assert digests(run.path) == digests(local.path / run.path.name)


@pytest.mark.parametrize(("device", "gpus"), [("auto", 0.25), ("cpu", 0)])
def test_runs_share_a_gpu(
    device: str, gpus: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[dict[str, Any]] = []

    def options(**values: Any) -> Any:
        requested.append(values)
        return SimpleNamespace(remote=lambda task: task.number)

    ray = SimpleNamespace(
        cluster_resources=lambda: {"GPU": 1.0},
        remote=lambda function: SimpleNamespace(options=options),
        wait=lambda pending, num_returns, timeout: (pending[:1], pending[1:]),
        get=lambda reference: reference,
        shutdown=lambda: None,
    )
    monkeypatch.setattr(cluster, "connect_to_ray", lambda *_, **__: ray)
    loaded = load_scenario_dict(SMALL, tmp_path).changed([f"training.device={device}"])
    tasks = [Task(n, tmp_path / str(n), loaded.source) for n in range(3)]
    assert list(cluster.run_on_ray(tasks, 2, Ray("auto", 0.25))) == [0, 1, 2]
    assert requested == [{"num_cpus": 1, "num_gpus": gpus, "max_retries": 2}] * 3


def test_an_address_without_the_engine_is_refused(tmp_path: Path) -> None:
    result = command("sweep", write(tmp_path / "s.yaml", scenario()), "--address", "auto")
    assert result.exit_code == 2
    assert "add --engine ray" in result.stderr


SBATCH = """#!/bin/sh
cp "$1" "$(dirname "$0")/submitted"
echo "Submitted batch job 7"
"""


def tasks(folder: Path) -> list[Task]:
    planned = plan_runs(load_scenario_dict(SMALL, "."))
    return [Task.of(number, folder / run.name, run.loaded) for number, run in enumerate(planned)]


@pytest.mark.parametrize(("cluster", "data"), [("debug", SMALL), ("local", scenario(seeds=[0, 1]))])
def test_the_results_are_those_of_this_process(
    cluster: str, data: dict[str, Any], tmp_path: Path
) -> None:
    loaded = load_scenario_dict(data, ".")
    here = sweep(loaded, tmp_path / "here", jobs=1)
    there = sweep(loaded, tmp_path / "there", engine=Slurm(cluster=cluster))
    assert not there.failures
    assert all_digests(there.sweep) == all_digests(here.sweep)
    again = sweep(loaded, tmp_path / "there", engine=Slurm(cluster=cluster))
    assert (again.ran, again.skipped) == (0, len(here.sweep.runs))


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
