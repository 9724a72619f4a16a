"""A method in a file of the user's, right or with a mistake put in, run from the command line."""

from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from fedsim.cli import cli

METHOD = """\
from fedsim.methods.base import LocalUpdate, Memory, Method


class Mine(Method):
    name = "mine"

    def memories(self):
        return {"last": Memory(self.context.layout.size)}

    def local_update(self, cohort, trainer):
        start = cohort.down["model"]
        trained = trainer.run(cohort, start)
        delta = trained.model - start
        return LocalUpdate({"delta": delta}, trained.loss, {"last": delta})

    def aggregate(self, server, updates):
        return {"model": server["model"] + updates.weighted_sum("delta", [1.0] * len(updates))}
"""
SCENARIO = """\
name: own
task: {name: quadratic, centers: [[1, 2], [2, 3], [3, 4]], curvatures: 1}
training: {optimizer: {name: sgd, lr: 0.01}, local_steps: 2}
devices:
  compute: {name: values, step: 1s}
  network: {name: static, down: 1Mbps, up: 1Mbps}
server: {method: {name: "mine.py:Mine"}}
stop: {rounds: 2}
"""


def run_with(
    folder: Path,
    right: str = "",
    wrong: str = "",
    command: str = "run",
    *,
    head: str = "",
    options: Sequence[str] = (),
) -> Result:
    """Run the method with ``right`` replaced by ``wrong``, and ``head`` at the beginning of its class."""
    assert right in METHOD
    text = METHOD.replace(right, wrong, 1).replace('name = "mine"\n', f'name = "mine"\n{head}')
    (folder / "mine.py").write_text(text, encoding="utf-8")
    sweep = "sweep: {seeds: [0]}\n" if command == "sweep" else ""
    (folder / "own.yaml").write_text(SCENARIO + sweep, encoding="utf-8")
    arguments = [command, str(folder / "own.yaml"), "-o", str(folder / "out"), *options]
    return CliRunner().invoke(cli, arguments)
