from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import fedsim.cli
from fedsim.cli import COMMANDS, cli
from fedsim.errors import InvariantViolation, UserError, UserErrors

SCENARIO = """\
# Two points and a parabola
task: {name: quadratic, centers: [1, 2]}
devices: {compute: {name: values, step: 1s}, network: {down: 1Mbps, up: 1Mbps}}
stop: {rounds: 3}
"""


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO)
    return path


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
        (click.BadParameter("no"), 2, "Error: Invalid value: no\n"),
        (click.ClickException("no"), 2, "Error: no\n"),
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
    command = f"{sys.executable} -m fedsim.cli scenario schema | head -n 1"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "{\n", "")


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
    result = run_raising(monkeypatch, raised)
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert message in result.stderr


def run_raising(monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> Result:
    @click.command()
    def command() -> None:
        raise raised

    monkeypatch.setattr(type(cli), "get_command", lambda self, ctx, name: command)
    return run("scenario")


@pytest.mark.parametrize(
    "args", [["nonsense"], ["scenario", "nonsense"], ["scenario", "check"], ["--nope"]]
)
def test_usage_errors_are_the_users(args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "Usage:" in result.output
    assert "Traceback" not in result.output


def test_check_says_that_all_is_well(scenario: Path) -> None:
    result = run("scenario", "check", str(scenario))
    assert result.exit_code == 0, result.output
    assert result.output == f"{scenario}: scenario 'scenario' is in order\n"


def test_show_writes_a_scenario_that_shows_itself(scenario: Path, tmp_path: Path) -> None:
    first = run("scenario", "show", str(scenario), "-s", "seed=7")
    assert first.exit_code == 0, first.output
    assert "seed: 7\n" in first.output
    again = tmp_path / "again.yaml"
    again.write_text(first.output)
    assert run("scenario", "show", str(again)).output == first.output
    data = json.loads(run("scenario", "show", str(again), "--json").output)
    assert data["devices"]["compute"]["name"] == "values"


def test_list_names_files_by_their_first_comment_and_all_parts(scenario: Path) -> None:
    out = run("scenario", "list", str(scenario.parent)).output
    assert "two.yaml  Two points and a parabola\n" in out
    data = json.loads(run("scenario", "list", str(scenario.parent), "--json").output)
    assert data["scenarios"] == {str(scenario): "Two points and a parabola"}
    assert {"uniform", "scripted"} <= set(data["parts"]["selection"])
    assert all(line for rows in data["parts"].values() for line in rows.values())
    assert run("scenario", "list", str(scenario.parent / "nope")).exit_code == 2


def test_schema_is_json_with_all_parts() -> None:
    schema = json.loads(run("scenario", "schema").output)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"method.fedavg", "dataset.digits", "compute.lognormal"} <= set(schema["$defs"])


def test_methods_are_listed_and_shown() -> None:
    names = json.loads(run("methods", "list", "--json").output)
    assert "fedavg" in names
    shown = json.loads(run("methods", "show", "fedavg", "--json").output)
    assert shown["sends_down"] == ["model (P)"]
    assert shown["sends_up"] == ["delta (P)"]
    assert shown["client_keeps"] == []
    assert "sync" in shown["schedules"]
    assert "McMahan" in shown["paper"]
    assert {parameter["key"] for parameter in shown["parameters"]} == {
        "weights",
        "server_lr",
        "partial",
    }
    assert "sends up" in run("methods", "show", "fedavg").output
    wrong = run("methods", "show", "fedavgg")
    assert wrong.exit_code == 2
    assert "did you mean 'fedavg'?" in wrong.stderr


@pytest.mark.parametrize("name", json.loads(run("methods", "list", "--json").output))
def test_every_method_can_be_shown(name: str) -> None:
    result = run("methods", "show", name)
    assert result.exit_code == 0, result.output
    assert "paper" in result.output
