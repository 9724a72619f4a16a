"""Mistakes in a method of one's own: each is told as the author's, with the function and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
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


def run_with(folder: Path, right: str = "", wrong: str = "", command: str = "run") -> Result:
    assert right in METHOD
    (folder / "mine.py").write_text(METHOD.replace(right, wrong, 1), encoding="utf-8")
    sweep = "sweep: {seeds: [0]}\n" if command == "sweep" else ""
    (folder / "own.yaml").write_text(SCENARIO + sweep, encoding="utf-8")
    return CliRunner().invoke(cli, [command, str(folder / "own.yaml"), "-o", str(folder / "out")])


def test_without_a_mistake_it_runs(tmp_path: Path) -> None:
    result = run_with(tmp_path)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            '{"delta": delta}',
            '{"change": delta}',
            "local_update: returns the vector 'change', which upload() does not declare\n  declared: 'delta'",
        ),
        (
            '{"delta": delta}',
            "{}",
            "local_update: returns no vector 'delta', which upload() declares",
        ),
        (
            '{"delta": delta}',
            '{"delta": delta, "free": delta}',
            "the vector 'free', which upload() does not",
        ),
        # One row for all would be broadcast by torch, and every client would have sent the first one's change.
        (
            "trained.model - start",
            "trained.model[0] - start[0]",
            "returns 'delta' of shape (2,), not (3, 2)",
        ),
        ("trained.loss,", "trained.loss.mean(),", "returns 'loss' of shape (), not (3,)"),
        (
            '{"last": delta}',
            '{"lost": delta}',
            "the memory 'lost', which memories() does not declare\n  declared: 'last'",
        ),
        ("Memory(self.context.layout.size)", "Memory(3)", "returns 'last' of shape (3, 2), not"),
        (
            'return LocalUpdate({"delta": delta}, trained.loss, {"last": delta})',
            "return {'delta': delta}",
            "returns dict, not a LocalUpdate",
        ),
        ('return {"model"', 'return {"modle"', "aggregate: returns no 'model', which clients are"),
        ('return {"model"', '{"model"', "aggregate: returns NoneType, not the server's tensors"),
        ("def aggregate", "def agregate", "Mine in {folder}/mine.py lacks aggregate"),
    ],
)
def test_what_a_method_returns_is_checked(
    tmp_path: Path, right: str, wrong: str, message: str
) -> None:
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 2, result.stderr
    assert message.format(folder=tmp_path) in result.stderr
    assert "Traceback" not in result.stderr


def test_an_exception_in_ones_own_file_is_no_defect_of_fedsim(tmp_path: Path) -> None:
    result = run_with(tmp_path, "trained.model - start", "trained.modle - start")
    assert result.exit_code == 2
    assert "has no attribute 'modle'" in result.stderr
    assert "line 13, in local_update" in result.stderr
    assert "fedsim/cli" not in result.stderr
    assert result.stderr.endswith("your own part failed with the lines above\n")


def test_a_sweep_tells_an_exception_in_ones_own_file_as_the_users(tmp_path: Path) -> None:
    result = run_with(tmp_path, "trained.model - start", "trained.modle - start", "sweep")
    assert result.exit_code == 2
    assert f"{tmp_path}/mine.py: AttributeError" in result.output + result.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "library"),
    [
        (
            "delta = trained.model - start",
            "import torch; delta = trained.model - start + 0.1 * torch.randn(start.shape)",
            "torch",
        ),
        (
            "delta = trained.model - start",
            "import random; delta = (trained.model - start) * random.random()",
            "random",
        ),
        (
            "delta = trained.model - start",
            "import torch; torch.manual_seed(7); delta = trained.model - start",
            "torch",
        ),
        (
            'return {"model"',
            'import numpy as np; np.random.normal(); return {"model"',
            "numpy",
        ),
    ],
)
def test_a_global_generator_is_refused(
    tmp_path: Path, right: str, wrong: str, library: str
) -> None:
    result = run_with(tmp_path, right, wrong)
    function = "aggregate" if library == "numpy" else "local_update"
    assert result.exit_code == 2
    assert f"{tmp_path / 'mine.py'}: Mine.{function}" in result.stderr
    assert f"the global random generator of {library}, so a run" in result.stderr
    assert "self.context.generator(" in result.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # A generator of the run; a torch generator of one's own; global states put back; drawn before the run.
        ("delta = ", "self.context.generator(3).random(); delta = "),
        ("delta = ", "import torch; torch.randn(1, generator=torch.Generator()); delta = "),
        (
            "        delta = ",
            "        import torch\n        with torch.random.fork_rng(): torch.randn(1)\n        delta = ",
        ),
        (
            "    def memories(self):\n",
            "    def memories(self):\n        import torch; torch.randn(1)\n",
        ),
    ],
)
def test_other_random_numbers_are_allowed(tmp_path: Path, right: str, wrong: str) -> None:
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 0, result.stderr


def test_a_selection_that_draws_from_a_global_generator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pick.py").write_text(
        "import numpy as np\nfrom fedsim.scheduling.base import CohortParams, Selection\n\n\n"
        "class Pick(Selection):\n    Params = CohortParams\n\n"
        "    def draw(self, count):\n        return list(np.random.permutation(self.available()))[:count]\n",
        encoding="utf-8",
    )
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace(
            'method: {name: "mine.py:Mine"}', "selection: {name: 'pick.py:Pick', cohort: 2}"
        ),
        encoding="utf-8",
    )
    result = CliRunner().invoke(
        cli, ["run", str(tmp_path / "own.yaml"), "-o", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert f"{tmp_path / 'pick.py'}: Pick.draw" in result.stderr
    assert "self.generator()" in result.stderr
