"""Damaged and hostile run folders: ``compare`` names the file, and never hangs."""

import shutil
from pathlib import Path

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.files.checksums import file_sha256
from fedsim.runs import RunFolder
from fedsim.runs.records import DECISION
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


def test_the_runs_of_a_decision_are_held_against_its_record(
    runs: list[Path], tmp_path: Path
) -> None:
    folders = [tmp_path / "d" / "runs" / path.name for path in runs]
    for path, folder in zip(runs, folders, strict=True):
        shutil.copytree(path, folder)
    digest = file_sha256(runs[0] / "scenario.yaml")
    begun = {"asked": {}, "batch": 1, "batches": 1, "spent_s": 0.0, "files": {}}
    for complete, message in (
        ({}, ""),
        ({"runs/first": digest}, ""),
        ({"runs/second": "x"}, "other"),
    ):
        DECISION.write(tmp_path / "d", {**begun, "complete": complete})
        for given in ([folders[0].parent], folders):
            if message:
                with pytest.raises(UserError, match="is the run of another scenario"):
                    fedsim.compare(given)
            else:
                assert not fedsim.compare(given).left_out
    DECISION.write(tmp_path / "d", {**begun, "complete": {"runs/first": digest, "runs/third": "x"}})
    [third] = fedsim.compare(folders[0].parent).left_out
    lost = "is damaged (run.json: no such file, though the run is complete)"
    assert (third.path.name, third.reason) == ("third", lost)
