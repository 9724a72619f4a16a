"""``fedsim ls`` on the command line."""

import json
import shutil
from pathlib import Path

import pytest

import fedsim
from tests.cli.invoking import PARABOLAS, assert_refused, invoke

SWEPT = """\
tags: [paper]
sweep:
  grid: {server.method: [{name: fedprox, mu: 0.1}, {name: fedavg}]}
  seeds: [0, 1]
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reaches its target after one round, and a sweep of four runs."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "one.yaml").write_text(PARABOLAS + "evaluation: {every_rounds: 1}\n")
    (folder / "many.yaml").write_text(PARABOLAS + SWEPT)
    fedsim.run(folder / "one.yaml", folder / "r10", overrides=["stop.target.loss=2"])
    fedsim.sweep(folder / "many.yaml", folder / "r9", jobs=1)
    return folder


def names(*arguments: str | Path) -> list[str]:
    rows = json.loads(invoke("ls", *arguments, "--json").stdout)
    return [Path(row["path"]).name for row in rows]


def test_rows_say_what_each_run_is(runs: Path) -> None:
    header, sweep, run = invoke("ls", runs).stdout.splitlines()
    assert " ".join(header.split()) == "status scenario method seed loss of 2 tags"
    assert " ".join(sweep.split()) == "r9 4 complete many fedprox and fedavg 2 seeds paper"
    assert " ".join(run.split()) == "r10 complete one fedavg 0 2 s"


def test_a_name_is_one_line(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "r10", tmp_path / "a\nb complete")
    _, run = invoke("ls", tmp_path).stdout.splitlines()
    assert run.startswith(" a\\nb complete  complete")


def test_rows_are_sorted_and_chosen(runs: Path) -> None:
    assert names(runs) == ["r9", "r10"]
    assert names(runs, "--sort", "newest") == ["r9", "r10"]
    table = fedsim.ls(runs, "loss=1e9").set_index("scenario")
    assert table["times_s"]["many"] == {("loss", 1e9): [0.0] * 4}
    assert table["tags"]["many"] == ("paper",)
    assert names(runs, "--sort", "time") == ["r10", "r9"]
    assert names(runs, "--tag", "paper") == ["r9"]
    assert_refused(
        invoke("ls", runs, "--tag", "papers"), "no run has the tag 'papers'\n  tags: paper"
    )
    assert names(runs / "r9", "--sort", "method")[:2] == ["fedavg_seed0", "fedavg_seed1"]
    assert names(runs / "r9")[0].startswith("fedavg_")


def test_another_target(runs: Path) -> None:
    arguments = ("ls", runs / "r9", "--target", "loss=1e9", "--json")
    rows = json.loads(invoke(*arguments).stdout)
    assert [row["times_s"] for row in rows] == [{"loss=1e+09": [0.0]}] * 4
    shown = invoke("ls", runs, "--target", "loss=-1").stdout
    assert (shown.count("loss of −1"), shown.count("not reached")) == (1, 2)
    assert_refused(invoke("ls", runs, "--target", "loss"), "write a metric")
    for target, message in (("los=1", "did you mean 'loss'?"), ("mse=-1", "no run measured 'mse'")):
        assert_refused(invoke("ls", runs, "--target", target), message)
