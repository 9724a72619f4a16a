"""Damaged and hostile run folders: ``compare`` names the file, and never hangs."""

import shutil
from pathlib import Path

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.runs import RunFolder
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import GROUPS
from tests.runs.synthetic_runs import build_run


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    first = build_run(tmp_path / "first", clients=4, hours=2, cohort=2)
    first.folder.update_info(seed=0)
    shutil.copytree(first.path, tmp_path / "second")
    return [first.path, tmp_path / "second"]


def test_a_missing_scenario_is_named(runs: list[Path]) -> None:
    RunFolder(runs[1]).scenario.unlink()
    with pytest.raises(UserError, match="cannot be read") as caught:
        fedsim.compare(runs)
    assert caught.value.where == str(runs[1] / "scenario.yaml")
    assert caught.value.hint


def test_a_sweep_is_compared_like_its_folder(sweep: Sweep) -> None:
    groups = fedsim.compare(sweep).groups
    assert [(group.setting, group.label) for group in groups] == GROUPS


def test_an_earlier_comparison_among_the_runs_is_no_run(runs: list[Path], tmp_path: Path) -> None:
    """As in ``fedsim compare runs/*``, given again."""
    page = fedsim.compare(runs).write(tmp_path / "comparison")
    again = fedsim.compare([*runs, page.parent])
    assert sum(len(group.runs) for group in again.groups) == len(runs)
    with pytest.raises(UserError, match="the folder contains no run"):
        fedsim.compare(page.parent)
