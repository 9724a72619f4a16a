"""Closed and full outputs, for every command: the right exit code, the work done, and no traceback.

Each command runs in a copy, whose descriptors are really closed, of a process that has imported all of fedsim and done
nothing else: a copy of the process of the tests would take over pools and fork servers of other tests, which are not
its children.
"""

import gc
import importlib
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fedsim.cli
from fedsim.cli import COMMANDS
from fedsim.parts.catalog import CATALOG
from fedsim.processes.preloading import MODULES
from tests.cli.invoking import PARABOLAS, invoke
from tests.reports import empty_reports

DONE, USAGE = 0, 2
CALLS = {
    "init": ("init", "--list"),
    "run": ("run", "s.yaml", "-o", "new", "--overwrite"),
    "resume": ("resume", "run"),
    "ls": ("ls", "."),
    "watch": ("watch", "--once", "run"),
    "report": ("report", "run"),
    "compare": ("compare", "run", "run", "-o", "c"),
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
    "--help": ("--help",),
    "--version": ("--version",),
}
MISTAKES = {
    "refused": ("run", "no.yaml", "--json"),
    "damaged": ("verify", "damaged"),
    "damaged, as JSON": ("verify", "damaged", "--json"),
    "failed": ("sweep", "sweep.yaml", "-j", "1", "-o", "failed"),
}
"""What ends with 2 also if nobody reads the output."""
REFUSED = ("flower", "decide", "board", "calibrate", *MISTAKES)
HEAVY = (
    "fedsim.analysis.comparison",
    "fontTools.subset",
    "google.protobuf.json_format",
    "grpc",
    "matplotlib.backends.backend_svg",
    "matplotlib.pyplot",
    "requests",
    "rich.live",
    "scipy.stats",
    "sqlalchemy.orm",
)
"""What commands import besides; each loads Flower, which sets up a log, itself."""


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


def hung_up() -> None:
    terminal, stream = os.openpty()
    os.dup2(stream, 1)
    os.close(terminal)


STREAMS = {
    ">&-": closed(1),
    "2>&-": closed(2),
    ">&- 2>&-": closed(1, 2),
    "|": unread,
    ">/dev/full": full,
    "hung up": hung_up,
}
UNWRITTEN = tuple(STREAMS)[-2:]
"""What may end with 2, because the output was lost."""


def outcome(call: tuple[str, ...], change: Callable[[], None]) -> int:
    """The exit code of a command in a copy of this process, which writes to the file ``log``."""
    copy = os.fork()
    if copy:
        return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    code = 1
    try:
        shutil.rmtree("bundle", ignore_errors=True)
        Path("trace.json").unlink(missing_ok=True)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
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
        sys.argv = ["fedsim", *call]
        sys.exit(fedsim.cli.command_line())
    except SystemExit as end:
        code = int(end.code or 0)
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def serve() -> None:
    """Call the commands that are named on standard input with each kind of output."""
    for name in (*MODULES, *HEAVY):
        importlib.import_module(name)
    for kind in CATALOG.kinds:
        list(CATALOG.parts(kind))
    # No copy looks through what is there already, which would copy all of its memory.
    gc.freeze()
    with empty_reports():
        for line in sys.stdin:
            for name, change in STREAMS.items():
                code = outcome((CALLS | MISTAKES)[line.strip()], change)
                print(json.dumps([name, code, Path("log").read_text()]), flush=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    path = tmp_path_factory.mktemp("streams")
    (path / "s.yaml").write_text(PARABOLAS)
    (path / "sweep.yaml").write_text(f"{PARABOLAS}sweep: {{seeds: [0]}}\n")
    assert invoke("run", path / "s.yaml", "-o", path / "run").exit_code == DONE
    shutil.copytree(path / "run", path / "damaged")
    (path / "damaged" / "dispatches.parquet").unlink()
    assert invoke("sweep", path / "sweep.yaml", "-j", "1", "-o", path / "failed").exit_code == DONE
    for file in (path / "failed" / "seed0").glob("*.*"):
        file.rename(file.with_suffix(".txt"))
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", "from tests.cli.test_streams import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=path,
        env={**os.environ, "PYTHONPATH": root},
        text=True,
    ) as process:
        yield process


def test_every_command_is_called() -> None:
    assert CALLS.keys() - COMMANDS.keys() == {"--help", "--version"}
    assert CALLS.keys() >= COMMANDS.keys()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("command", CALLS | MISTAKES)
def test_outputs_may_be_closed_or_full(command: str, server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    print(command, file=server.stdin, flush=True)
    for name, code, written in [json.loads(server.stdout.readline()) for _ in STREAMS]:
        expected = (
            (USAGE,) if command in REFUSED else (DONE, USAGE) if name in UNWRITTEN else (DONE,)
        )
        assert code in expected, (name, written)
        assert "Traceback" not in written, name
