"""``fedsim board``."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedsim.board import suite as suites
from fedsim.cli import cli
from fedsim.cli.board import command

SCENARIO = """# Two clients and their mean.
task: {name: quadratic, centers: [[1.0], [3.0]], noise_std: 0.01}
training: {optimizer: {name: sgd, lr: 0.1}, local_steps: 1}
devices:
  compute: {name: values, step: 1s}
  network: {name: static, latency: 0s, down: 1Gbps, up: 1Gbps}
server: {method: {name: fedavg}}
stop: {simulated_time: 60s, target: {gradient_norm: 0.2}}
evaluation: {every: 1s}
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenarios", "silo"], "silos"),
        (["--method", "heavy.py:Mine"], f"no such file: {Path('heavy.py').resolve()}"),
        (["--schedule", "bufered"], "buffered"),
        (["--method", "fedavg", "--knob", "server.method.server_l=1,2,3"], "server_lr"),
        (["--method", "fedavg", "--knob", "server.method.server_lr=1,2"], "three values"),
        (["--method", "fedavg", "--knob", "=1,2,3"], "three values"),
    ],
)
def test_mistakes_are_named_before_anything_runs(arguments, message, tmp_path):
    result = CliRunner().invoke(command, ["run", "-o", str(tmp_path / "b"), *arguments])
    assert message in str(result.exception) + str(getattr(result.exception, "hint", ""))
    assert "paths are relative" not in str(result.exception)
    assert not (tmp_path / "b").exists()


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A suite of one small scenario."""
    whole = suites.suite()
    silos = whole.scenarios["silos"]
    file = tmp_path / "tiny.yaml"
    file.write_text(SCENARIO)
    question = replace(silos, file=file, disturbances={})
    few = replace(whole, scenarios={"silos": question}, tuning_seeds=[100])
    monkeypatch.setattr(suites, "suite", lambda version: few)


def test_a_method_is_measured_beside_fedavg(tiny, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from fedsim.methods.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n"
        '    """Mine."""\n\n    name = "mine"\n'
    )
    method = f"{tmp_path / 'mine.py'}:Mine"
    arguments = ["run", "--method", method, "--seeds", "3", "--json", "-o", str(tmp_path / "b")]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    document = json.loads(result.stdout)
    assert "mine ranks" in document["verdicts"]["silos"]
    page = Path(document["page"]).read_text()
    assert len(re.findall(r'<th scope="row">(?:\d\. )?mine', page)) == 2
    # The same algorithm with the same random numbers takes the same time.
    assert "1.00\u00a0to 1.00" in page


def test_a_selection_that_works_in_no_scenario(tiny, tmp_path, monkeypatch):
    selection = "{name: uniform, cohort: 999}"
    arguments = ["run", "--selection", selection, "--seeds", "3", "-o", str(tmp_path / "b")]
    result = CliRunner().invoke(command, arguments)
    assert "does not work in silos" in result.stdout
    assert str(result.exception.message) == "mine works in no scenario"

    def gone(*_):
        raise BrokenPipeError

    monkeypatch.setattr("fedsim.cli.board._show", gone)
    monkeypatch.setattr("fedsim.cli._drop_output", lambda: None)
    assert CliRunner().invoke(cli, ["board", *arguments]).exit_code == 2


def test_the_results_of_the_suite_are_shown_without_a_run(tmp_path):
    result = CliRunner().invoke(command, ["show", "-o", str(tmp_path)], catch_exceptions=False)
    assert str(tmp_path / "board.html") in result.stdout
    page = (tmp_path / "board.html").read_text()
    assert page.count("<h2") == 1 + 12
    assert "cut off" in page
