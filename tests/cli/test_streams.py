"""Closed and full outputs, for every command: the right exit code, the work done, and no traceback.

Each command runs in a copy of this process, whose descriptors are really closed.
"""

import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import fedsim.cli
from fedsim.cli import COMMANDS
from tests.cli.invoking import PARABOLAS, invoke

DONE, USAGE = 0, 2
CALLS = {
    "init": ("init", "--list"),
    "run": ("run", "s.yaml", "-o", "new", "--overwrite"),
    "resume": ("resume", "run"),
    "ls": ("ls", "."),
    "watch": ("watch", "--once", "run"),
    "report": ("report", "run"),
    "compare": ("compare", "run", "run", "-o", "c.html"),
    "what-if": ("what-if", "run", "-s", "devices.compute.step=2s", "-o", "what"),
    "flower": ("flower", "no-app"),
    "sweep": ("sweep", "sweep.yaml", "-j", "1", "-o", "sweep"),
    "decide": ("decide", "s.yaml", "--over", "seed=1,2", "--metric", "no"),
    "forecast": ("forecast", "s.yaml", "--target", "rounds=2", "--runs", "3", "-j", "1", "-o", "f"),
    "board": ("board", "run", "--seeds", "9"),
    "verify": ("verify", "run"),
    "scenario": ("scenario", "show", "s.yaml"),
    "describe": ("describe", "fedavg"),
    "docs": ("docs",),
    "traces": ("traces", "synthesize", "always", "--devices", "3", "-o", "bundle"),
    "data": ("data", "list"),
    "calibrate": ("calibrate", "no.csv", "-o", "calibrated"),
    "export": ("export", "run", "--format", "perfetto", "-o", "trace.json"),
}
REFUSED = ("flower", "decide", "board", "calibrate")


def closed(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def unread() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


STREAMS = {
    ">&-": closed(1),
    "2>&-": closed(2),
    ">&- 2>&-": closed(1, 2),
    "|": unread,
    ">/dev/full": full,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, without_reports: None) -> Path:
    path = tmp_path_factory.mktemp("streams")
    (path / "s.yaml").write_text(PARABOLAS)
    (path / "sweep.yaml").write_text(f"{PARABOLAS}sweep: {{seeds: [0]}}\n")
    assert invoke("run", path / "s.yaml", "-o", path / "run").exit_code == DONE
    return path


def test_every_command_is_called() -> None:
    assert CALLS.keys() == COMMANDS.keys()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("command", CALLS)
def test_outputs_may_be_closed_or_full(command: str, folder: Path) -> None:
    for name, change in STREAMS.items():
        copy = os.fork()
        if not copy:
            code = 1
            try:
                os.chdir(folder)
                shutil.rmtree("bundle", ignore_errors=True)
                Path("trace.json").unlink(missing_ok=True)
                log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(log, 1)
                os.dup2(log, 2)
                change()
                for number, stream in ((1, "stdout"), (2, "stderr")):
                    try:
                        os.fstat(number)
                        setattr(sys, stream, os.fdopen(number, "w"))
                    except OSError:  # As Python does.
                        setattr(sys, stream, None)
                sys.argv = ["fedsim", *CALLS[command]]
                fedsim.cli.main()
            except SystemExit as end:
                code = int(end.code or 0)
                sys.stderr.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        written = (folder / "log").read_text()
        expected = (USAGE,) if command in REFUSED else (DONE, USAGE) if "full" in name else (DONE,)
        assert code in expected, (name, written)
        assert "Traceback" not in written, name
