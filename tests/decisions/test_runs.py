"""Runs in folders named by their scenarios."""

import shutil
from pathlib import Path

import pytest

from fedsim.decisions.runs import Runs
from fedsim.errors import UserError
from fedsim.runs.run import Run
from fedsim.scenario.loading import LoadedScenario, load_scenario_dict
from tests.composition.worlds import timed


def loaded(**more: object) -> LoadedScenario:
    return load_scenario_dict(timed(**more), ".")


def test_equal_scenarios_are_run_once_and_errors_take_the_place_of_runs(tmp_path: Path) -> None:
    broken = loaded(server={"selection": {"cohort": 9}})
    runs = Runs(tmp_path / "runs", timing_only=True, jobs=1)
    scenarios = [loaded(), broken, loaded(seed=1), loaded()]
    first, error, second, again = runs.perform(scenarios)
    assert isinstance(first, Run)
    assert isinstance(second, Run)
    assert isinstance(again, Run)
    assert first.path == again.path != second.path
    assert "cohort" in str(error)
    assert second.entry("seed") == 1
    changed = first.path.joinpath("run.json").stat().st_mtime_ns
    runs.perform([loaded()])
    assert first.path.joinpath("run.json").stat().st_mtime_ns == changed
    shutil.rmtree(first.path)
    shutil.copytree(second.path, first.path)
    with pytest.raises(UserError, match="is the run of another scenario"):
        runs.perform([loaded()])


SELECTION = """
from fedsim.scheduling.selections.uniform import Uniform


class Mine(Uniform):
    name = "mine"
"""


@pytest.mark.parametrize("name", ["mine.py", "edges.csv"])
def test_runs_are_not_read_if_a_file_has_changed(name: str, tmp_path: Path) -> None:
    """As for a sweep; runs of this call need no second look."""
    file = tmp_path / name
    file.write_text(SELECTION if name == "mine.py" else "client,edge\n0,a\n1,b\n2,a\n")
    part = {"selection": {"name": f"{file}:Mine", "cohort": 2}}
    network = {"name": "static", "down": "1Mbps", "up": "1Mbps"}
    edges = {"edges": {"network": network, "members": {"name": "file", "path": str(file)}}}
    given = loaded(server=part if name == "mine.py" else edges)
    first = Runs(tmp_path / "runs", timing_only=True, jobs=1)
    first.perform([given])
    before = file.read_text()
    file.write_text(before + "\n")
    again = Runs(tmp_path / "runs", timing_only=True, jobs=1)
    with pytest.raises(UserError, match=r"complete runs in .*runs were made before this") as caught:
        again.perform([given])
    assert caught.value.where == str(file)
    assert "remove the folders of these runs" in str(caught.value.hint)
    file.write_text(before)
    again.perform([given])


def test_if_all_runs_fail_the_first_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none of the runs succeeded; the first failed with"):
        Runs(tmp_path, jobs=1).perform([loaded(server={"selection": {"cohort": 9}})])
