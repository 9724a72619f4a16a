"""Whose code runs when: reading commands import nothing, the others name the file first or refuse it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import fedsim
from fedsim.errors import UserError
from tests.cli.invoking import PARABOLAS, assert_refused, invoke
from tests.composition.worlds import digits
from tests.lines import rows

EVIL = """
from pathlib import Path
from fedsim.methods.fedavg import FedAvg

(Path(__file__).parent / "ran").write_text("")

class Mine(FedAvg):
    name = ""
"""
ENDING = """
    def aggregate(self, server, updates):
        import os
        if not (Path(__file__).parent / "may end").exists():
            os._exit(7)
        return super().aggregate(server, updates)
"""
EVIL_RINGS = """
import numpy as np
from fedsim.tasks.dataset import Dataset, DatasetComponent

class Rings(DatasetComponent):
    name = ""

    def load(self, folder=None):
        x, y = np.eye(4, dtype=np.float32), np.arange(4) % 2
        return Dataset("rings", x, y, x, y, classes=2)
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "evil.py").write_text(EVIL)
    world: dict[str, Any] = digits(stop={"rounds": 2})
    world["server"] = {**world["server"], "method": {"name": "evil.py:Mine"}}
    path = tmp_path / "scenario.yaml"
    YAML(typ="safe").dump(world, path)
    return path


def ran(scenario: Path) -> bool:
    return (scenario.parent / "ran").exists()


def test_showing_a_scenario_runs_nothing_of_it(scenario: Path) -> None:
    result = invoke("scenario", "show", scenario)
    assert result.exit_code == 0, result.output
    assert "evil.py:Mine" in result.stdout
    assert not ran(scenario)


@pytest.mark.parametrize("by", ["option", "variable"])
def test_code_is_refused_on_request(
    scenario: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that what the option sets is taken back.
    monkeypatch.setenv("FEDSIM_NO_USER_CODE", "1" if by == "variable" else "0")
    options = ["--no-user-code"] if by == "option" else []
    folder = scenario.parent
    (folder / "log.csv").write_text("client,start,end\n" + "0,0,1\n1,0,2\n" * 3)
    (folder / "evil.py").write_text(EVIL + EVIL_RINGS)
    prepare = ("data", "prepare", f"{folder / 'evil.py'}:Rings")
    for command in (
        ("scenario", "check", scenario),
        ("run", scenario),
        ("sweep", scenario),
        ("calibrate", folder / "log.csv", "--scenario", scenario, "-o", folder / "bundle"),
        prepare,
        ("describe", f"{folder / 'evil.py'}:Mine"),
    ):
        assert_refused(invoke(*command, *options), "evil.py may not run")
        assert not ran(scenario)
    monkeypatch.setenv("FEDSIM_NO_USER_CODE", "0")
    prepared = invoke(*prepare)
    assert prepared.exit_code == 0, prepared.output
    assert prepared.stderr.startswith(f"running the code in {folder / 'evil.py'}\n")
    assert ran(scenario)


@pytest.mark.usefixtures("with_reports")
def test_reading_a_run_runs_nothing_and_resuming_refuses_changed_code(scenario: Path) -> None:
    run = scenario.parent / "run"

    def interrupt(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsim.run(scenario, run, on_progress=interrupt)
    (scenario.parent / "ran").unlink()
    code = scenario.parent / "evil.py"
    code.write_text(EVIL + "\n# changed\n")
    for command in (("report", run), ("export", run, "--format", "csv"), ("verify", run)):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
    with pytest.raises(UserError, match="the code has changed since the run began"):
        fedsim.resume(run)
    assert not ran(scenario)
    code.write_text(EVIL)
    assert fedsim.resume(run).info["status"] == "complete"


USED = """
sys.exit(0) | pass | 1 | evil.py cannot be imported: SystemExit: 0
raise BaseExceptionGroup("x", [SystemExit(0)]) | pass | 1 | evil.py cannot be imported: BaseExceptionGroup
pass | sys.exit(0) | 1 | evil.py:8: your own code ended the process: SystemExit: 0
pass | sys.exit(7) | 1 | evil.py:8: your own code ended the process: SystemExit: 7
pass | raise BaseExceptionGroup("x", [SystemExit(0)]) | 1 | evil.py:8: your own code ended the process
pass | pass | 10**400 | the metric score returned
pass | pass | 10**5000 | the metric score returned
pass | pass | 1j | the metric score returned 1j
"""


@pytest.mark.parametrize(("begin", "inside", "value", "message"), list(rows(USED)))
def test_code_that_ends_the_process_or_returns_no_number(
    tmp_path: Path, begin: str, inside: str, value: str, message: str
) -> None:
    lines = ("import sys", "from fedsim.methods.fedavg import FedAvg", begin, "", "")
    body = ("def score(outputs, labels):", "    x = 1", f"    {inside}")
    (tmp_path / "evil.py").write_text("\n".join((*lines, *body, f"    return {value}\n")))
    world = digits(stop={"rounds": 2}, evaluation={"metrics": ["evil.py:score"]})
    path = tmp_path / "scenario.yaml"
    YAML(typ="safe").dump(world, path)
    assert_refused(invoke("run", path), message)
    if begin != "pass":
        assert_refused(invoke("scenario", "check", path), message)


def test_an_exception_of_a_part_does_not_steer_the_terminal(scenario: Path) -> None:
    (scenario.parent / "evil.py").write_text(
        EVIL + ENDING.replace("os._exit(7)", "raise OSError('\\x9b7m\\u202e')")
    )
    result = invoke("run", scenario)
    assert result.exit_code == 2
    assert "OSError: \\x9b7m\\u202e" in result.stderr


def test_an_error_that_cannot_say_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class E(Exception):\n    def __str__(self):\n        raise self\n\ndef data():\n    raise E\n"
    )
    result = invoke("data", "prepare", f"{tmp_path}/mine.py:data")
    assert (result.exit_code, "mine.py:6: your own code failed" in result.stderr) == (2, True)
    assert "E, whose __str__ fails" in result.stderr


def test_a_metric_that_stops_an_iteration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(outputs, labels):\n    return next(iter([]))\n")
    world = digits(stop={"rounds": 2}, evaluation={"metrics": ["mine.py:score"]})
    YAML(typ="safe").dump(world, tmp_path / "s.yaml")
    result = invoke("run", tmp_path / "s.yaml")
    assert (result.exit_code, "mine.py:2: your own code failed" in result.stderr) == (2, True)


STEP_S = """
from fedsim.devices.compute.base import ComputeModel

class Mine(ComputeModel):
    name = ""

    def step_s(self):
        import numpy as np
        return """


@pytest.mark.parametrize("value", ["1.0", "[1.0]", "None", "np.ones((3, 2))", "np.ma.ones(3)"])
def test_step_times_of_another_shape_are_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "mine.py").write_text(f"{STEP_S}{value}\n")
    (tmp_path / "s.yaml").write_text(PARABOLAS.replace("{name: values, step: 1s}", "mine.py:Mine"))
    for command in (("run",), ("scenario", "check")):
        refused = invoke(*command, tmp_path / "s.yaml")
        assert_refused(refused, "mine.py:7: Mine.step_s: returns ", "an array of real numbers")


REDRAWN = """np.ones(3)

    redraws = True

    def redrawn_step_s(self, client, sequence):
        import torch
        return """


@pytest.mark.parametrize(
    "value", ["float('nan')", "-1.0", "1e300", "torch.ones(1)", "None", "10**5000"]
)
def test_redrawn_step_times_that_are_none_are_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "mine.py").write_text(f"{STEP_S}{REDRAWN}{value}\n")
    (tmp_path / "s.yaml").write_text(PARABOLAS.replace("{name: values, step: 1s}", "mine.py:Mine"))
    refused = invoke("run", tmp_path / "s.yaml")
    assert_refused(
        refused, "mine.py:13: Mine.redrawn_step_s: returns ", "return 0 to 3.2e+09 seconds"
    )


def test_a_run_whose_code_ends_the_process_is_interrupted(scenario: Path) -> None:
    code, run = scenario.parent / "evil.py", scenario.parent / "run"
    code.write_text(EVIL + ENDING)
    command = [sys.executable, "-m", "fedsim", "run", scenario, "-o", run]
    assert subprocess.run(command, capture_output=True).returncode == 7
    assert fedsim.load(run).status == "interrupted"
    assert "interrupted" in invoke("ls", scenario.parent).stdout
    (scenario.parent / "may end").touch()
    assert fedsim.resume(run).status == "complete"


@pytest.mark.parametrize("form", ["import", "call"])
def test_code_that_changes_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    change = f"os.chdir({str(tmp_path / 'other')!r})"
    body = "def score(outputs, labels):\n    {}\n    return 0.5\n".format(
        change if form == "call" else "pass"
    )
    Path("mine.py").write_text(f"import os\n{change if form == 'import' else ''}\n{body}")
    world = digits(stop={"rounds": 2}, evaluation={"metrics": ["mine.py:score"]})
    YAML(typ="safe").dump(world, Path("scenario.yaml"))
    result = invoke("run", "scenario.yaml", "-o", "run")
    assert result.exit_code == 0, result.output
    assert "report: run/report.html" in result.output
    assert Path.cwd() == tmp_path
    assert not list((tmp_path / "other").iterdir())
    assert invoke("verify", "run").stdout.startswith("run: intact")


PARTS = """
task.partition | fedsim.tasks.partition | Partitioner | assign(self, dataset, rng, folder) | Assignment
task.dataset | fedsim.tasks.dataset | DatasetComponent | load(self, folder=None) | Dataset
devices.network | fedsim.network | NetworkKind | build(self, context) | Network
"""


@pytest.mark.parametrize(("key", "module", "base", "function", "kind"), list(rows(PARTS)))
def test_parts_that_return_nothing(
    tmp_path: Path, key: str, module: str, base: str, function: str, kind: str
) -> None:
    lines = (f"from {module} import {base}", f"class Mine({base}):", f"    def {function}: pass")
    (tmp_path / "mine.py").write_text("\n".join(lines))
    YAML(typ="safe").dump(digits(), tmp_path / "s.yaml")
    more = ", clients: 4" if function.startswith("assign") else ""
    refused = invoke(
        "scenario", "check", tmp_path / "s.yaml", "-s", f"{key}={{name: 'mine.py:Mine'{more}}}"
    )
    assert_refused(refused, f"mine.py:3: Mine.{function.partition('(')[0]}: returns None", kind)


def test_the_path_of_users_code_cannot_control_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "\x1b[31mown.py"
    file.write_text("import fedsim\nclass Mine(fedsim.Selection): pass\n")
    result = invoke("describe", f"{file}:Mine")
    assert "running the code in" in result.stderr
    assert "\\x1b[31mown.py" in result.stderr
    assert "\x1b" not in result.output
