"""Invokes the command line."""

from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from fedsim.cli import cli

RunText = Callable[..., Result]


PARABOLAS = """\
task: {name: quadratic, centers: [1, 2, 3]}
training: {local_steps: 2}
devices:
  compute: {name: values, step: 1s}
  network: {name: static, down: 1Mbps, up: 1Mbps, latency: 0}
stop: {rounds: 2}
"""


DIGITS = PARABOLAS.replace(
    "task: {name: quadratic, centers: [1, 2, 3]}",
    "task: {dataset: {name: digits}, partition: {name: iid, clients: 3}, model: {name: logistic_regression}}",
)


def invoke(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def assert_refused(result: Result, *fragments: str) -> None:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    for fragment in fragments:
        assert fragment in result.stderr
