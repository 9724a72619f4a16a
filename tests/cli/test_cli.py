"""The command line as a whole: help, exit codes, broken pipes."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import Result

import fedsim
from fedsim.cli import cli
from fedsim.errors import MORE_THREADS, InvariantViolation, UserError, UserErrors
from fedsim.processes.stopping import Stopped
from tests.cli.invoking import assert_refused, invoke
from tests.lines import rows

TIMED = """\
name: tiny
task: {name: timing, clients: 2, parameters: 1000}
devices: {compute: {name: values, step: 1s}, network: {name: static, down: 10Mbps, up: 10Mbps}}
stop: {rounds: 2}
"""


MORE_MEMORY = (
    "use a smaller model, batch or population, or a machine (or 'ulimit -v') with more memory"
)


def test_help_lists_all_commands_and_loads_none() -> None:
    code = (
        "import sys\nfrom fedsim.cli import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit as end: print(end.code)\n"
        "print('torch' in sys.modules, 'pydantic' in sys.modules, 'pandas' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.splitlines()[-2:] == ["0", "False False False"]
    for name in cli.list_commands(click.Context(cli)):
        assert f"  {name} " in out


def test_version() -> None:
    assert invoke("--version").output == f"fedsim {version('fedsim-des')}\n"


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (
            UserError("is wrong", where="here", hint="fix it"),
            2,
            "error: here: is wrong\n  fix it\n",
        ),
        (UserErrors([UserError("a"), UserError("b")]), 2, "error: a\nerror: b\n"),
        (click.BadParameter("no"), 2, "error: invalid value: no\n  see cli scenario --help\n"),
        (click.ClickException("no"), 2, "error: no\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            RuntimeError("Error building `list` validator: Stopped: SIGTERM"),
            143,
            "stopped by SIGTERM\n",
        ),
        (
            RuntimeError("value cannot be converted to type float without overflow"),
            2,
            "error: a factor is too large for the numbers of the model\n"
            "  choose parameters of the method that are nearer to 1\n",
        ),
        (BlockingIOError(11, "no process"), 2, f"error: no process\n  {MORE_THREADS}\n"),
        (MemoryError(), 2, f"error: out of memory: MemoryError\n  {MORE_MEMORY}\n"),
        (
            ValueError("Maximum allowed dimension exceeded"),
            2,
            f"error: out of memory: Maximum allowed dimension exceeded\n  {MORE_MEMORY}\n",
        ),
        (
            ImportError("libtorch.so: failed to map segment from shared object"),
            2,
            "error: out of memory: libtorch.so: failed to map segment from shared object\n"
            f"  {MORE_MEMORY}\n",
        ),
    ],
)
def test_exit_codes_of_expected_ends(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, message: str
) -> None:
    result = run_raising(monkeypatch, raised)
    assert result.exit_code == code
    assert result.stderr.endswith(message)
    assert "Traceback" not in result.stderr


def test_a_signal_before_the_command_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as soon as the handlers are there."""

    def installed() -> None:
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr("fedsim.cli.install", installed)
    result = invoke("--version")
    assert (result.exit_code, result.stdout, result.stderr) == (143, "", "stopped by SIGTERM\n")


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("-v 400000", "out of memory\n  raise the limit of 390 MiB: ulimit -v 8388608"),
        ("-v 1000000", "out of memory\n  raise the limit of 976 MiB: ulimit -v 8388608"),
        ("-n 12", "too many open files\n  raise the limit: ulimit -n 1024"),
    ],
)
def test_a_limit_that_is_too_low_is_one_message_at_once(limit: str, message: str) -> None:
    """Without memory, OpenBLAS would try forever to get it while it is loaded."""
    command = f"ulimit {limit}; {sys.executable} -m fedsim run quickstart"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")


def test_the_limit_that_is_named_suffices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1_600_000 << 10, -1))
    for error in (ImportError("libtorch_python.so: failed to map segment"), MemoryError()):
        message = run_raising(monkeypatch, error).stderr
        assert "\n  raise the limit of 1562 MiB: ulimit -v 8388608; if that is too" in message
    limit = message.split(": ")[-1].partition(";")[0]
    command = f"{limit} && {sys.executable} -m fedsim run quickstart -s stop.simulated_time=1h"
    command = f"{command} -o {tmp_path / 'run'}"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m fedsim scenario schema | head -n 1"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "{\n", "")


def test_a_reader_that_is_slow_gets_all_of_a_pipe_that_does_not_wait() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [sys.executable, "-m", "fedsim", "scenario", "schema"]
    with subprocess.Popen(command, stdout=writer) as process:
        os.close(writer)
        time.sleep(1)  # It is full before it is read.
        with os.fdopen(reader) as output:
            assert json.loads(output.read())["title"]
    assert process.returncode == 0


@pytest.mark.parametrize(
    "command", [("sweep", "s.yaml", "-j", "2"), ("scenario", "check", "--replay", "s.yaml")]
)
def test_no_file_of_the_working_folder_is_imported(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "s.yaml").write_text(f"{TIMED}sweep: {{seeds: [0, 1]}}\n")
    (tmp_path / "socket.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nraise ImportError")
    script = Path(sys.executable).parent / "fedsim"
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "never"}
    result = subprocess.run(
        [script, *command], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert (result.returncode, (tmp_path / "run").exists()) == (0, False), result.stderr


def test_completion_without_the_words_of_a_shell_is_no_traceback() -> None:
    variables = {**os.environ, "_FEDSIM_COMPLETE": "bash_complete", "COMP_CWORD": "x"}
    command = [Path(sys.executable).parent / "fedsim"]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)


def test_a_name_that_the_locale_cannot_write_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(TIMED.replace("tiny", "北京"), encoding="utf-8")
    variables = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [Path(sys.executable).parent / "fedsim", "run", "s.yaml"]
    result = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, check=False)
    assert result.returncode == 2
    assert b"names are ascii in this locale" in result.stderr


@pytest.mark.parametrize(
    ("streams", "code"),
    [
        (">&-", 0),
        (">&- 2>&- <&-", 0),
        ("| head -n 1", 0),
        ("2>&1 >log | true", 0),
        ("2>&1 | true", 0),
        ("2>/dev/full", 0),
        (">/dev/full 2>&1", 2),
        ("1</dev/null", 2),
    ],
)
def test_a_run_completes_whatever_becomes_of_its_output(
    tmp_path: Path, streams: str, code: int
) -> None:
    (tmp_path / "s.yaml").write_text(TIMED)
    command = f"{sys.executable} -m fedsim run s.yaml -o run {streams}; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, fedsim.load(tmp_path / "run").status) == (code, "complete")
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_to_a_full_disk_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "fedsim", "scenario", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert result.returncode == 2
    what = "cannot write the standard output or a temporary file"
    assert result.stderr.decode() == f"error: {what}: No space left on device\n"


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (ZeroDivisionError("by zero"), "internal error: ZeroDivisionError: by zero"),
        (InvariantViolation("two outcomes"), "internal error: two outcomes"),
        (EOFError("no more"), "internal error: EOFError: no more"),
    ],
)
def test_a_defect_of_ours_is_1_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, message: str
) -> None:
    raised.add_note("after fixing the cause, run the same command again")
    result = run_raising(monkeypatch, raised)
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert message in result.stderr
    assert "after fixing the cause" not in result.stderr


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.EPERM, "x: Operation not permitted"), (errno.EMFILE, "too many open files")],
)
def test_what_the_system_refuses_is_one_message(
    monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    threads = run_raising(monkeypatch, RuntimeError("can't start new thread"))
    assert_refused(threads, "raise the limit of processes and threads: ulimit -u 4096")
    result = run_raising(monkeypatch, OSError(number, os.strerror(number), "x"))
    assert_refused(result, message)


def test_a_pipe_to_another_process_is_not_the_output() -> None:
    """The reader of the output has not seen enough: it is there."""
    code = """
import sys, click
from fedsim import cli
@click.command()
def command():
    raise BrokenPipeError(32, "Broken pipe")
cli.Commands.get_command = lambda *_: command
sys.argv = ["fedsim", "ls"]
sys.exit(cli.command_line())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, "Broken pipe" in result.stderr) == (1, True)


def run_raising(monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> Result:
    @click.command()
    def command() -> None:
        raise raised

    monkeypatch.setattr(type(cli), "get_command", lambda self, ctx, name: command)
    return invoke("scenario")


USAGE = r"""
nonsense | there is no command 'nonsense'\n  see cli --help
rnu | there is no command 'rnu' | did you mean 'run'?
check | did you mean 'cli scenario check'?
traces inspekt | did you mean 'inspect'? | see cli traces --help
scenario check | missing argument 'SCENARIO'\n  see cli scenario check --help
run --outptu x | '--outptu' | '--output' | see cli run --help
compare a b --log z | '--log' | 'x', 'y', 'xy', 'logit'
traces synthesize desktop -n 0 | '--devices' | x>=1
sweep quickstart --jobs | '--jobs' requires an argument
run my long night.yaml | unexpected | (long night.yaml)
"""


@pytest.mark.parametrize("row", rows(USAGE), ids=" ".join)
def test_usage_errors_are_the_users_and_look_like_all_others(row: list[str]) -> None:
    result = invoke(*row[0].split())
    assert_refused(result, *row[1:])
    assert result.output.startswith("error: ")
    assert "Usage:" not in result.output


def test_a_group_without_a_command_shows_its_help() -> None:
    result = invoke("scenario")
    assert result.exit_code == 2
    assert result.output.startswith("Usage: cli scenario")


@pytest.mark.parametrize(
    "arguments",
    [("run", "nope.yaml"), ("verify", "nope"), ("describe", "nope"), ("run",)],
)
def test_with_json_errors_are_json(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 2
    (error,) = json.loads(result.stdout)["errors"]
    assert error["message"]
    assert not result.stderr.startswith("error")
