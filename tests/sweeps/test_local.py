"""The processes of a sweep on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.sweeps import local
from fedsim.sweeps.local import ONE_THREAD
from tests.sweeps.worlds import (
    SMALL,
    all_digests,
    broken,
    digests,
    scenario,
    write,
)


def long_scenario() -> dict[str, Any]:
    data = scenario(seeds=[0, 1])
    data["server"] = {"selection": {"name": "uniform", "cohort": 2}}
    return {**data, "stop": {"rounds": 300}, "evaluation": {"every_rounds": 100}}


def descendants(process: int) -> list[int]:
    """Processes that a process has started, and those that these have started."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, thread.read_text().split()):
            found += [child, *descendants(child)]
    return found


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_killed_pool_ends_and_the_restarted_sweep_gives_the_same_results(tmp_path: Path) -> None:
    path = write(tmp_path / "s.yaml", long_scenario())
    out = tmp_path / "sweep"
    args = [sys.executable, "-m", "fedsim.cli", "sweep", str(path), "-j", "2", "-o", str(out)]
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 120
        while not list(out.glob("*/scenario.yaml")):
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.02)
        started = descendants(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(started) > 2, "the pool has two processes, and the server that forks them"
    # A process that is loading torch does not hear of it before that is loaded.
    give_up = time.monotonic() + 120
    while any(map(alive, started)):
        assert time.monotonic() < give_up, "processes of the pool outlive their parent"
        time.sleep(0.02)
    restarted = fedsim.sweep(path, out, jobs=1)
    assert restarted.failures == {}
    assert any(run.info.get("resumed") for run in restarted.runs)
    whole = fedsim.sweep(path, tmp_path / "whole", jobs=1)
    assert all_digests(restarted) == all_digests(whole)


def test_a_process_that_dies_takes_only_its_run_with_it(tmp_path: Path) -> None:
    methods = [{"name": "fedavg"}, {"name": broken(tmp_path, "import os; os._exit(9)")}]
    data = scenario(grid={"server.method": methods})
    sweep = fedsim.sweep(data, tmp_path / "pool", jobs=2)
    assert sweep.index["status"].tolist() == ["complete", "failed"]
    (error,) = sweep.failures.values()
    assert error == "the process of this run was killed; there may be too little memory"
    whole = fedsim.sweep(scenario(grid={"server.method": methods[:1]}), tmp_path / "here", jobs=1)
    done = sweep.record.runs[0].run
    assert digests(sweep.path / done) == digests(whole.path / done)


def test_a_process_of_the_pool_keeps_to_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries under numpy take all cores where nobody says otherwise."""
    for variable in ONE_THREAD:
        monkeypatch.delenv(variable)
    body = (
        "import json, os, pathlib, threadpoolctl; "
        f"pathlib.Path({str(tmp_path / 'found.json')!r}).write_text(json.dumps(threadpoolctl.threadpool_info())); "
        "threads = pathlib.Path(f'/proc/{os.getppid()}/task'); "
        f"pathlib.Path({str(tmp_path / 'threads')!r}).write_text(str(len(list(threads.glob('*'))))); "
        "return super().aggregate(server, updates)"
    )
    data = scenario(grid={"server.method": [{"name": broken(tmp_path, body)}]}, seeds=[0, 1])
    before = dict(os.environ)
    assert fedsim.sweep(data, tmp_path / "sweep", jobs=2).failures == {}
    found = json.loads((tmp_path / "found.json").read_text())
    assert found
    assert [each["num_threads"] for each in found] == [1] * len(found)
    # A fork of a process with several threads could wait forever for a lock that another thread held.
    assert int((tmp_path / "threads").read_text()) <= 1
    assert dict(os.environ) == before


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_ctrl_c_reaches_only_the_process_of_the_sweep() -> None:
    """The process that loads what the pool needs never handles SIGINT, not even while it starts."""
    local.prepare()
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert blocked & 1 << (signal.SIGINT - 1)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_script_needs_no_guard_and_is_executed_once(tmp_path: Path) -> None:
    write(tmp_path / "s.yaml", SMALL)
    script = tmp_path / "script.py"
    script.write_text(
        'import fedsim\nprint("once")\nprint(len(fedsim.sweep("s.yaml", "out", jobs=2).runs))\n'
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["once", "4"]
