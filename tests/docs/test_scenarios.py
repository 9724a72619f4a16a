"""The scenarios that ship with fedsim: each is in order, runs, and shows what its comment says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedsim
from tests.docs.pages import exit_code, quick, working_in

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
SHIPPED = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_is_in_order(path: Path) -> None:
    # The real trace must be imported first, as the comment in its file explains.
    expected = 2 if path.stem == "real_trace" else 0
    assert exit_code(f"fedsim scenario check {path}") == expected


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_runs(path: Path, tmp_path: Path) -> None:
    if path.stem == "real_trace":
        pytest.skip("needs an imported trace; see the test with real data")
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


@pytest.mark.real_data
def test_the_real_trace_scenario_runs_as_its_comment_says(
    fedsim_data: Path, tmp_path: Path
) -> None:
    """The commands of the comment, on FLASH's phones."""
    timers = fedsim_data / "traces" / "flash_state_1k" / "cached_timers.json"
    text = (FOLDER / "real_trace.yaml").read_text(encoding="utf-8")
    commands = re.findall(r"^# \d\. (fedsim .*?)(?:  .*)?$", text, flags=re.MULTILINE)
    assert len(commands) == 3
    (tmp_path / "traces").symlink_to(FOLDER.parent / "traces")
    (tmp_path / "scenarios").symlink_to(FOLDER)
    (tmp_path / "cached_timers.json").symlink_to(timers)
    with working_in(tmp_path):
        for command in commands[:2]:
            assert exit_code(command) == 0, command
        scenario = quick(FOLDER / "real_trace.yaml")
        scenario["devices"]["trace"] = "traces/phones_week"
        run = fedsim.run(scenario, "run")
    assert (run.dispatches["outcome"] == "aggregated").any()
    assert 0 < run.clients["online_fraction"].mean() < 0.3
