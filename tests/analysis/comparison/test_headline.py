"""The title of a comparison."""

from __future__ import annotations

import shutil
from pathlib import Path

import fedsim
from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.headline import headline
from fedsim.analysis.comparison.page import render
from fedsim.sweeps import Sweep
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import GROUPS, folders


def test_two_identical_runs_show_no_difference(sweep: Sweep, tmp_path: Path) -> None:
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "copy")
    same = compare([run, tmp_path / "copy"])
    assert same.no_difference
    assert headline(same) == "No difference"
    assert '<h1 id="headline">No difference</h1>' in render(same)
    assert [group.label for group in same.groups] == [run.name, "copy"]
    assert (same.pairs["difference"] == 0).all()
    assert (same.pairs["same"] == same.pairs["seeds"]).all()


def test_a_key_without_effect_makes_no_difference(tmp_path: Path) -> None:
    plain = {key: value for key, value in compared.SCENARIO.items() if key != "sweep"}
    first = fedsim.run(plain, tmp_path / "first")
    other = {**compared.SCENARIO["training"], "threads": 1}
    second = fedsim.run({**plain, "training": other}, tmp_path / "second")
    same = compare([first, second])
    assert same.no_difference
    assert [group.label for group in same.groups] == ["threads=none", "threads=1"]


def test_groups_with_other_seeds_are_not_the_same(sweep: Sweep) -> None:
    assert not compare(folders(sweep, *GROUPS[0])).no_difference
    assert not compare(sweep.path).no_difference
