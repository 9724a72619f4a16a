"""The command line as a whole: help, exit codes, broken pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import fedsim
import fedsim.cli
from fedsim.cli import COMMANDS, cli
from fedsim.errors import InvariantViolation, UserError, UserErrors
from tests.cli.invoking import run


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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_this_installation_has_help(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {name}")


def test_every_module_of_commands_is_listed() -> None:
    folder = Path(fedsim.cli.__file__).parent
    modules = {
        path.stem
        for path in folder.glob("*.py")
        if "\ncommand = " in path.read_text() or "def command(" in path.read_text()
    }
    assert modules <= set(COMMANDS)


def test_version() -> None:
    assert run("--version").output == f"fedsim {version('fedsim-des')}\n"


def test_the_launcher_of_the_checkout_is_the_command(checkout: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(checkout / "cli.py"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == f"fedsim {version('fedsim-des')}\n"


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (
            UserError("is wrong", where="here", hint="mend it"),
            2,
            "error: here: is wrong\n  mend it\n",
        ),
        (UserErrors([UserError("a"), UserError("b")]), 2, "error: a\nerror: b\n"),
        (click.BadParameter("no"), 2, "error: invalid value: no\n  see cli scenario --help\n"),
        (click.ClickException("no"), 2, "error: no\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_exit_codes_of_expected_ends(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, message: str
) -> None:
    result = run_raising(monkeypatch, raised)
    assert result.exit_code == code
    assert result.stderr.endswith(message)
    assert "Traceback" not in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m fedsim scenario schema | head -n 1"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "{\n", "")


OWN_PART = """
import atexit, threading, time
from fedsim.learning.rates import RateSchedule

atexit.register(print, "the file's own end")
threading.Thread(target=lambda: (time.sleep(0.2), print("its thread"))).start()

class Rate(RateSchedule):
    'A factor.'
    def factor(self, round_number, time_s):
        'One.'
        return 1.0
"""


@pytest.mark.parametrize(("name", "code"), [("own.py:Rate", 0), ("own.py:Raet", 2)])
def test_the_process_ends_without_losing_anything(tmp_path: Path, name: str, code: int) -> None:
    """Threads are waited for, functions of others for the end are called, all output is written."""
    (tmp_path / "own.py").write_text(OWN_PART)
    result = subprocess.run(
        [sys.executable, "-m", "fedsim", "describe", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stderr
    assert result.stdout.splitlines()[-2:] == ["its thread", "the file's own end"]
    assert ("A factor." in result.stdout) == (not code)


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (ZeroDivisionError("by zero"), "internal error: ZeroDivisionError: by zero"),
        (InvariantViolation("two outcomes"), "internal error: two outcomes"),
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


def run_raising(monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> Result:
    @click.command()
    def command() -> None:
        raise raised

    monkeypatch.setattr(type(cli), "get_command", lambda self, ctx, name: command)
    return run("scenario")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nonsense"], "there is no command 'nonsense'\n  see cli --help"),
        (["scenario", "nonsense"], "there is no command 'nonsense'\n  see cli scenario --help"),
        (["scenario", "check"], "missing argument 'SCENARIO'\n  see cli scenario check --help"),
        (["--nope"], "there is no option '--nope'\n  see cli --help"),
        (
            ["run", "--outptu", "x"],
            "there is no option '--outptu'\n  did you mean '--output'? see ",
        ),
        (
            ["compare", "a", "b", "--log", "z"],
            "--log: 'z' is not one of 'x', 'y', 'xy', 'logit'\n  see cli compare --help",
        ),
        (
            ["compare", "a", "b", "--log", "logi"],
            "--log: 'logi' is not one of 'x', 'y', 'xy', 'logit'\n  did you mean 'logit'? see cli compare --help",
        ),
        (
            ["traces", "synthesize", "desktop", "--devices", "many"],
            "--devices: 'many' is not a whole number\n  see cli traces synthesize --help",
        ),
        (
            ["traces", "synthesize", "desktop", "-n", "0"],
            "--devices: 0 is not in the range x>=1\n  see cli traces synthesize --help",
        ),
        (
            ["traces", "join", "b", "--compute-correlation", "x"],
            "--compute-correlation: 'x' is not a number\n",
        ),
        (["sweep", "quickstart", "--jobs"], "--jobs: requires an argument"),
        (["run", "quickstart", "--timing-only=3"], "--timing-only: does not take a value"),
        (
            ["run", "my", "night.yaml"],
            "unexpected argument: night.yaml\n"
            "  put a name with spaces in quotation marks; see cli run --help",
        ),
        (["run", "my", "long", "night.yaml"], "unexpected argument: long night.yaml\n"),
    ],
)
def test_usage_errors_are_the_users_and_look_like_all_others(args: list[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.output.startswith(f"error: {message}")
    assert "Usage:" not in result.output


def test_a_group_without_a_command_shows_its_help() -> None:
    result = run("scenario")
    assert result.exit_code == 2
    assert result.output.startswith("Usage: cli scenario")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nope.yaml"),
        ("resume", "nope"),
        ("compare", "nope"),
        ("verify", "nope"),
        ("scenario", "check", "nope.yaml"),
        ("methods", "show", "nope"),
        ("traces", "inspect", "nope"),
        ("run",),
        ("run", "nope.yaml", "--bogus"),
    ],
)
def test_with_json_errors_are_json(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 2
    (error,) = json.loads(result.stdout)["errors"]
    assert error["message"]
    assert not result.stderr.startswith("error")
