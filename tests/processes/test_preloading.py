"""The fork server of a sweep, from which its processes are forked."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweeps.test_local import alive

SLOW = """\
import os, pathlib, time
pathlib.Path({begun!r}).write_text(str(os.getpid()))
time.sleep(60)
pathlib.Path({done!r}).touch()
"""
PARENT = """\
import pathlib, time
from fedsim.sweeps.local import prepare

prepare()
while not (begun := pathlib.Path({begun!r})).exists() or not begun.read_text():
    time.sleep(0.01)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_fork_server_that_is_still_importing_ends_with_its_parent(tmp_path: Path) -> None:
    """Its first import takes a minute here; a server that ends only afterward leaves the file ``done``."""
    files = {name: str(tmp_path / name) for name in ("begun", "done")}
    (tmp_path / "torch.py").write_text(SLOW.format(**files))
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    command = [sys.executable, "-c", PARENT.format(**files)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    server = int((tmp_path / "begun").read_text())
    while alive(server):
        time.sleep(0.01)
    assert not (tmp_path / "done").exists()


def test_importing_the_module_elsewhere_imports_nothing() -> None:
    code = "import sys, fedsim.processes.preloading; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


FORKED = """\
import multiprocessing, os, signal, sys
from fedsim.sweeps.local import prepare


def look():
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert "torch" in sys.modules
    assert not [name for name in os.environ if name.startswith("FEDSIM_FORK")]


if __name__ == "__main__":
    prepare()
    process = multiprocessing.get_context("forkserver").Process(target=look)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert not [name for name in os.environ if name.startswith("FEDSIM_FORK")]
"""


def test_the_processes_of_a_sweep_have_no_timer_and_no_variable_of_the_fork_server(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(FORKED)
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, str(script)], check=True, env={**os.environ, **path})
