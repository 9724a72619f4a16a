"""Runs of several ranks: rank 0 writes what one rank alone would; a lost rank ends the run, which can be resumed."""

import os
import shutil
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.cli import cli
from fedsim.composition import run as execution
from fedsim.learning import learner
from fedsim.learning.workers.distributed import Ranks
from tests.cli.invoking import invoke
from tests.composition.killing import started
from tests.learning.workers.ranks import free_port

SCENARIO = """
name: ranks
task:
  dataset: {name: digits}
  partition: {name: dirichlet, alpha: 0.5, clients: 12, test: split}
  model: {name: mlp, hidden: [8]}
training: {optimizer: {name: sgd, lr: 0.1}, batch_size: 16, local_steps: 3, workers: {name: distributed}}
devices:
  availability: always
  compute: {name: lognormal, median: 20s, sigma: 0.5}
  network: {name: static, latency: 0.1s, down: 10Mbps, up: 2Mbps}
"""
EDGES = """
server:
  compression: {up: {name: topk, share: 0.2, error_feedback: true}}
  edges:
    {count: 3, rounds: 2, selection: {name: uniform, cohort: 3}, network: {name: static, down: 5Mbps, up: 5Mbps}}
stop: {rounds: 4}
evaluation: {every_rounds: 1, per_client: true}
"""
BUFFERED = """
server:
  method: {name: scaffold}
  selection: {name: uniform, cohort: 6}
  schedule: {name: sync}
stop: {rounds: 12}
evaluation: {every_rounds: 1}
"""


NOISY = """
import numpy as np
from fedsim.methods.fedavg import FedAvg

class Noisy(FedAvg):
    def aggregate(self, server, updates):
        model = super().aggregate(server, updates)["model"]
        return {"model": model + np.random.default_rng().normal()}
"""
PENDING = 12
"""Contributions after which everything submitted is executed, and a checkpoint is written."""


def scenario_in(folder: Path, server: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO + server)
    return path


def ranks(count: int, folder: Path, *arguments: str | Path, **hooks: Any) -> list[BaseProcess]:
    """The processes of a command; what each prints is in ``<rank>.txt``."""
    port, words = free_port(), [str(argument) for argument in arguments]
    return [started(_rank, rank, count, port, folder, words, **hooks) for rank in range(count)]


def _rank(
    rank: int,
    count: int,
    port: str,
    folder: Path,
    arguments: list[str],
    dies_after: int = -1,
    times: int = 1,
) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    values = (str(rank), str(count), str(rank), "localhost", port)
    os.environ.update(zip(names, values, strict=True))
    output = os.open(folder / f"{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    execution.CHECKPOINT_INTERVAL_S, learner._CPU_PENDING = 0.0, PENDING
    if rank == 1 and dies_after >= 0:
        _die_after(dies_after)
    code = max(cli.exit_code(arguments) for _ in range(times))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _die_after(waves: int) -> None:
    updates, left = Ranks.updates, waves

    def updates_or_die(self: Ranks, *arguments: Any) -> Any:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return updates(self, *arguments)

    Ranks.updates = updates_or_die  # type: ignore[method-assign]


def codes(processes: list[BaseProcess]) -> list[int | None]:
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def files(path: Path) -> Any:
    """The checksums of a run's files, except the scenario, which names the workers."""
    written: dict[str, str] = fedsim.load(path).info["files"]
    return {name: digest for name, digest in written.items() if name != "scenario.yaml"}


@pytest.mark.parametrize(("server", "count", "times"), [(EDGES, 3, 1), (BUFFERED, 2, 2)])
def test_rank_0_writes_what_one_rank_alone_would(
    server: str, count: int, times: int, tmp_path: Path
) -> None:
    """Processes may have one run after another."""
    scenario = scenario_in(tmp_path, server)
    alone = fedsim.run(scenario, tmp_path / "alone")
    several = tmp_path / "several"
    processes = ranks(count, tmp_path, "run", scenario, "-o", several, "--overwrite", times=times)
    assert codes(processes) == [0] * count, (tmp_path / "0.txt").read_text()
    assert files(several) == files(alone.path)
    assert "accuracy" in (tmp_path / "0.txt").read_text()
    assert not (tmp_path / "1.txt").read_text()
    threads = fedsim.run(
        scenario, tmp_path / "threads", overrides=["training.workers.name=threads"]
    )
    assert files(threads.path) == files(alone.path)


def test_a_lost_rank_ends_the_run_which_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner, "_CPU_PENDING", PENDING)
    scenario = scenario_in(tmp_path, BUFFERED)
    expected = files(fedsim.run(scenario, tmp_path / "expected").path)
    lost = tmp_path / "lost"
    processes = ranks(2, tmp_path, "run", scenario, "-o", lost, dies_after=7)
    assert codes(processes) == [2, -signal.SIGKILL]
    said = (tmp_path / "0.txt").read_text()
    assert "training.workers: another process of the run was lost" in said
    assert "fedsim resume" in said
    assert fedsim.load(lost).status == "interrupted"
    assert any((lost / "checkpoint").glob("[0-9]*"))
    shutil.copytree(lost, tmp_path / "threads")
    fedsim.resume(tmp_path / "threads", overrides=["training.workers.name=threads"])
    assert files(tmp_path / "threads") == expected
    processes = ranks(2, tmp_path, "resume", lost)
    assert codes(processes) == [0, 0], (tmp_path / "0.txt").read_text()
    assert "resuming from the checkpoint" in (tmp_path / "0.txt").read_text()
    assert files(lost) == expected


def test_a_signal_to_one_rank_stops_all(tmp_path: Path) -> None:
    scenario = scenario_in(tmp_path, BUFFERED)
    stopped = tmp_path / "stopped"
    arguments = ("run", scenario, "-o", stopped, "-s", "stop.rounds=100000")
    processes = ranks(2, tmp_path, *arguments)
    while not any((stopped / "checkpoint").glob("[0-9]*")):
        time.sleep(0.05)
        assert processes[0].is_alive(), (tmp_path / "0.txt").read_text()
    pid = processes[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    assert codes(processes) == [128 + signal.SIGTERM] * 2
    assert fedsim.load(stopped).status == "interrupted"


def test_with_other_workers_each_process_has_a_run_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    scenario = scenario_in(tmp_path, BUFFERED)
    run = fedsim.run(scenario, tmp_path / "own", overrides=["training.workers.name=threads"])
    assert run.status == "complete"
    assert invoke("resume", run.path).stdout


def test_ranks_with_different_models_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    scenario = scenario_in(tmp_path, BUFFERED)
    method = "server.method.name=noisy.py:Noisy"
    processes = ranks(2, tmp_path, "run", scenario, "-s", method, "-o", tmp_path / "run")
    assert codes(processes) == [2, 2]
    assert "have computed different models" in (tmp_path / "0.txt").read_text()


def test_a_folder_that_cannot_be_used_ends_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    processes = ranks(2, tmp_path, "run", scenario_in(tmp_path, BUFFERED), "-o", tmp_path / "full")
    assert codes(processes) == [2, 2]
    assert "exists and is not empty" in (tmp_path / "0.txt").read_text()
    assert "rank 0 cannot use the run folder" in (tmp_path / "1.txt").read_text()
