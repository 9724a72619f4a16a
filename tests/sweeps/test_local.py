"""The processes of a sweep on this machine."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.parts.component import NO_USER_CODE
from fedsim.sweeps import Sweep, local
from fedsim.sweeps.local import ONE_THREAD
from tests.signals import default_signals
from tests.sweeps.worlds import SMALL, all_digests, broken, digests, scenario, write

needs_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes")

SLOW = """import os, pathlib, re, time
        here = pathlib.Path(__file__).parent
        (here / f"round-{os.getpid()}").touch()
        slow = here / "seconds"
        text = slow.read_text() if slow.exists() else "0"
        re.match("(a+)+b", "a" * 60) if text == "stuck" else time.sleep(float(text))
        return super().aggregate(server, updates)"""
"""A method whose rounds take as many seconds as a file says, or never end and let no other thread run."""

ROUNDS = 20
STOPPED = ["interrupted", "interrupted", "waiting"]


def slow_scenario(folder: Path) -> dict[str, Any]:
    """Three runs whose rounds take as long as the file ``seconds`` in the folder says."""
    data = scenario(seeds=[0, 1, 2])
    data["server"] = {
        "selection": {"name": "uniform", "cohort": 2},
        "method": {"name": broken(folder, SLOW)},
    }
    return {**data, "stop": {"rounds": ROUNDS}, "evaluation": {"every_rounds": 5}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Digests of the runs of the slow scenario, not interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    return all_digests(fedsim.sweep(slow_scenario(folder), folder / "sweep", jobs=1))


def descendants(process: int) -> list[int]:
    """Processes that a process has started, and those that these have started."""
    pids: list[int] = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, thread.read_text().split()):
            pids += [child, *descendants(child)]
    return pids


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def signaled_sweep(
    tmp_path: Path, signals: Sequence[int], *, apart_s: float, seconds: str, group: bool
) -> int:
    """Start a sweep of three runs on two processes, send it signals, and return its exit code.

    Args:
        tmp_path: the folder of the scenario and of the sweep.
        signals: the signals.
        apart_s: seconds between them.
        seconds: duration of a round.
        group: whether they go to all processes of the group, as from a terminal, or to the first.
    """
    (tmp_path / "seconds").write_text(seconds)
    path, out = write(tmp_path / "s.yaml", slow_scenario(tmp_path)), tmp_path / "sweep"
    args = [sys.executable, "-m", "fedsim", "sweep", str(path), "-j", "2", "-o", str(out)]
    with open(tmp_path / "stderr", "w") as stderr:
        process = subprocess.Popen(
            args, stderr=stderr, preexec_fn=default_signals, start_new_session=True
        )
    while len(list(tmp_path.glob("round-*"))) < 2:
        assert process.poll() is None, (tmp_path / "stderr").read_text()
        time.sleep(0.02)
    started = descendants(process.pid)
    for number in signals:
        (os.killpg if group else os.kill)(process.pid, number)
        time.sleep(apart_s)
    code = process.wait()
    assert len(started) > 2, "the pool has two processes, and the server that forks them"
    # A process that is loading torch does not hear of the end of its parent before that is loaded.
    give_up = time.monotonic() + 120
    while any(map(alive, started)):
        assert time.monotonic() < give_up, "processes of the pool outlive their parent"
        time.sleep(0.02)
    return code


def require_the_same_after_all(tmp_path: Path, whole: dict[str, dict[str, str]]) -> None:
    """Check that the sweep ends as if it had not been interrupted."""
    (tmp_path / "seconds").unlink()
    continued = fedsim.sweep(tmp_path / "s.yaml", tmp_path / "sweep", jobs=1)
    assert continued.index["status"].tolist() == ["complete"] * 3
    assert [bool(run.info.get("resumed")) for run in continued.runs] == [True, True, False]
    assert all_digests(continued) == whole


@needs_proc
def test_a_killed_pool_ends_and_the_restarted_sweep_gives_the_same_results(
    tmp_path: Path, whole: dict[str, dict[str, str]]
) -> None:
    code = signaled_sweep(tmp_path, [signal.SIGKILL], apart_s=0, seconds="0.2", group=False)
    assert code == -signal.SIGKILL
    require_the_same_after_all(tmp_path, whole)


@needs_proc
@pytest.mark.parametrize(
    ("signals", "group"),
    [([signal.SIGINT] * 2, False), ([signal.SIGTERM] * 2, True), ([signal.SIGHUP], True)],
)
def test_signals_that_arrive_together_end_a_sweep_whose_runs_are_saved(
    tmp_path: Path, whole: dict[str, dict[str, str]], signals: list[int], group: bool
) -> None:
    code = signaled_sweep(tmp_path, signals, apart_s=0.02, seconds="0.2", group=group)
    assert code == 128 + signals[0], (tmp_path / "stderr").read_text()
    saved = {path.parent.parent.name for path in tmp_path.glob("sweep/*/checkpoint/[0-9]*")}
    assert saved == {"seed0", "seed1"}
    assert Sweep(tmp_path / "sweep").index["status"].tolist() == STOPPED
    require_the_same_after_all(tmp_path, whole)


@needs_proc
@pytest.mark.parametrize("seconds", ["1000", "stuck"])
def test_a_later_signal_ends_a_sweep_in_the_middle_of_a_round(
    tmp_path: Path, whole: dict[str, dict[str, str]], seconds: str
) -> None:
    signals = [signal.SIGINT, signal.SIGTERM]
    code = signaled_sweep(tmp_path, signals, apart_s=0.7, seconds=seconds, group=True)
    assert code == 128 + signal.SIGINT, (tmp_path / "stderr").read_text()
    assert Sweep(tmp_path / "sweep").index["status"].tolist() == STOPPED
    require_the_same_after_all(tmp_path, whole)


def test_a_process_that_dies_takes_only_its_run_with_it(tmp_path: Path) -> None:
    methods = [{"name": "fedavg"}, {"name": broken(tmp_path, "import os; os._exit(9)")}]
    data = scenario(grid={"server.method": methods})
    sweep = fedsim.sweep(data, tmp_path / "pool", jobs=2)
    assert sweep.index["status"].tolist() == ["complete", "failed"]
    (error,) = sweep.failures.values()
    assert error == "the process of this run was killed; there may be too little memory"
    whole = fedsim.sweep(scenario(grid={"server.method": methods[:1]}), tmp_path / "here", jobs=1)
    done = sweep.record["runs"][0]["run"]
    assert digests(sweep.path / done) == digests(whole.path / done)


def test_runs_whose_processes_die_together_are_continued(tmp_path: Path) -> None:
    """As by a limit of memory that all processes share; the first of them to get there ends all."""
    body = (
        "import os, pathlib\n"
        f"        first = pathlib.Path({str(tmp_path / 'first')!r})\n"
        "        if not first.exists():\n"
        "            first.touch()\n"
        "            parent = os.getppid()\n"
        "            others = pathlib.Path(f'/proc/{parent}/task/{parent}/children').read_text().split()\n"
        "            for process in sorted(map(int, others), key=os.getpid().__eq__):\n"
        "                os.kill(process, 9)\n"
        "        return super().aggregate(server, updates)"
    )
    data = scenario(grid={"server.method": [{"name": broken(tmp_path, body)}]}, seeds=[0, 1])
    sweep = fedsim.sweep(data, tmp_path / "sweep", jobs=2)
    assert sweep.index["status"].tolist() == ["complete", "complete"]


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
    report = json.loads((tmp_path / "found.json").read_text())
    assert report
    assert [each["num_threads"] for each in report] == [1] * len(report)
    # A fork of a process with several threads could wait forever for a lock that another thread held.
    assert int((tmp_path / "threads").read_text()) <= 1
    assert dict(os.environ) == before


@needs_proc
def test_signals_reach_only_the_process_of_the_sweep() -> None:
    """The process that loads what the pool needs never handles them, not even while it starts."""
    local.prepare()
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert blocked & 1 << (number - 1)
        assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_the_process_that_forks_the_others_may_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once while it starts one, which is started again, or always, which ends the sweep."""
    submit, deaths = local.ProcessPoolExecutor.submit, [EOFError]

    def dying(*arguments: Any) -> Any:
        if deaths:
            raise deaths.pop()
        return submit(*arguments)

    monkeypatch.setattr(local.ProcessPoolExecutor, "submit", dying)
    assert fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "a", jobs=2).failures == {}
    deaths += [ConnectionResetError] * 99
    with pytest.raises(UserError, match="ended before they started a run"):
        fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "b", jobs=2)
    full = OSError(errno.ENOSPC, "no room")
    monkeypatch.setattr(local, "ProcessPoolExecutor", mock.Mock(side_effect=full))
    with pytest.raises(UserError, match="/dev/shm"):
        fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "b", jobs=2)
    monkeypatch.setattr(local, "ProcessPoolExecutor", mock.Mock(side_effect=BrokenPipeError))
    with pytest.raises(UserError, match="ended before they started a run"):
        fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "c", jobs=2)


def test_a_pool_whose_thread_could_not_be_started_ends_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(pool: Any, *_: Any) -> Future[None]:
        pool._executor_manager_thread = threading.Thread()
        return Future()

    monkeypatch.setattr(local.ProcessPoolExecutor, "submit", submit)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "sweep", jobs=2)


def test_processes_have_the_environment_of_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the process from which they are forked, which another sweep may have started."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    monkeypatch.setenv(NO_USER_CODE, "1")
    local.prepare()
    monkeypatch.delenv(NO_USER_CODE)
    method = {"name": broken(tmp_path, "return super().aggregate(server, updates)")}
    data = scenario(grid={"server.method": [method]}, seeds=[0, 1])
    assert fedsim.sweep(data, tmp_path / "sweep", jobs=2).failures == {}


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
