"""The scenarios that ship with fedsim: each is in order, runs, and shows what its comment says."""

import re
from pathlib import Path

import pytest

import fedsim
from tests.docs.pages import exit_code, quick, working_in

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
SHIPPED = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_is_in_order(path: Path) -> None:
    assert exit_code(f"fedsim scenario check {path}") == 0


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.usefixtures("with_reports")
def test_a_shipped_scenario_runs(path: Path, tmp_path: Path) -> None:
    scenario = quick(path, rounds=12 if path.stem == "fedcompass" else 2)
    with working_in(FOLDER):
        run = fedsim.run(scenario, tmp_path / "run")
    assert run.info["rounds"] >= 2
    assert (run.dispatches["outcome"] == "aggregated").any()
    assert run.folder.report.exists()


def test_every_scenario_stands_in_the_readme_of_the_folder() -> None:
    listed = re.findall(r"^\| \[([\w.]+)\]", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [path.name for path in SHIPPED]


def test_the_quickstart_is_telling(tmp_path: Path) -> None:
    """The target comes after days, work is late and lost, and the phones come at night."""
    run = fedsim.run(FOLDER / "quickstart.yaml", tmp_path / "run")
    days = run.time_to("accuracy", 0.93) / 86_400
    assert 1.5 < days < 7
    counts = run.dispatches["outcome"].value_counts()
    assert counts["late"] > 50
    assert counts["dropped"] > 20
    work_s = (run.dispatches["arrived_s"] - run.dispatches["dispatched_s"]).median()
    assert 60 < work_s < 600
    assert run.online is not None
    hours = (run.online["time_s"] // 3600 % 24).astype(int)
    by_hour = run.online.groupby(hours)["online"].mean()
    assert by_hour.loc[0:5].mean() > 1.5 * by_hour.loc[12:17].mean()
