"""``fedsim scenario`` on the command line."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.invoking import assert_refused, invoke

SCENARIO = """\
# Two points and a parabola
task: {name: quadratic, centers: [1, 2]}
devices: {compute: {name: values, step: 1s}, network: {down: 1Mbps, up: 1Mbps}}
stop: {rounds: 3}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO)
    return path


def test_check_says_that_all_is_well(scenario: Path) -> None:
    result = invoke("scenario", "check", scenario)
    assert result.exit_code == 0, result.output
    assert result.output == f"{scenario}: scenario 'two' is valid\n"


@pytest.mark.parametrize(
    ("override", "mistakes"),
    [
        ("devices.compute.step=x", ["devices.compute.step"]),  # while it is read
        ("devices=null", ["devices.compute: there is no", "devices.network: there is no"]),
    ],
)
def test_further_checks_follow(override: str, mistakes: list[str], scenario: Path) -> None:
    result = invoke("scenario", "check", scenario, "-s", override)
    assert_refused(result, *mistakes)
    assert result.stderr.endswith("note: further checks follow once this is fixed\n")
    assert result.stderr.count("note:") == 1


def ten(folder: Path, slow: int, more: str) -> Path:
    """A file with ten clients, some of them slow."""
    steps = ", ".join(["1s"] * (10 - slow) + ["9s"] * slow)
    path = folder / "ten.yaml"
    text = SCENARIO.replace("[1, 2]", str(list(range(10)))).replace("step: 1s", f"step: [{steps}]")
    path.write_text(f"{text}server: {{schedule: {{name: sync, deadline: 30s}}}}\n{more}")
    return path


@pytest.mark.parametrize("slow", [1, 2])
def test_check_and_run_give_the_same_warnings(slow: int, tmp_path: Path) -> None:
    """One slow client among ten is an intended straggler; two are mentioned."""
    path = ten(tmp_path, slow, "")
    checked = invoke("scenario", "check", path).stdout
    warnings = checked.rpartition(f"{path}: scenario")[0]
    assert warnings.startswith("warning: ") == (slow == 2)
    ran = invoke("run", path, "-o", tmp_path / "out")
    assert ran.exit_code == 0, ran.output
    assert ran.stderr.startswith(f"{warnings}run folder: ")


def test_warnings_name_the_runs_of_a_sweep(tmp_path: Path) -> None:
    """With 30 s, two of ten clients never finish; both runs with this deadline share one warning."""
    sweep = "sweep: {grid: {server.schedule.deadline: [30s, 300s]}, seeds: [0, 1]}\n"
    path = ten(tmp_path, 2, sweep)
    checked = invoke("scenario", "check", path).stdout
    assert checked.count("warning: ") == 1
    assert "\n  in 2 of 4 runs: 30s_seed0 and 30s_seed1\n" in checked
    names = ["30s_seed0", "30s_seed1", "300s_seed0", "300s_seed1"]
    listed = " is valid: a sweep of 4 runs\n  " + "\n  ".join(names) + "\n"
    assert checked.endswith(listed)
    assert json.loads(invoke("scenario", "check", path, "--json").stdout)["runs"] == names
    long = invoke("scenario", "check", path, "-s", f"sweep.seeds={list(range(14))}").stdout
    assert long.endswith("\n  300s_seed9\n  and 4 more\n")
    swept = invoke("sweep", path, "-j", "1", "-o", tmp_path / "out")
    assert "2 of 4 runs had warnings: 30s_seed0 and 30s_seed1\n" in swept.stdout
    swept = swept.stderr
    assert swept.count("warning: ") == 1
    last_line = len(path.read_text().splitlines())
    assert f"\nwarning: {path}:{last_line}:43: server.schedule.deadline" in swept
    assert "\n  in 30s_seed0; not repeated for other runs\n" in swept


def test_show_writes_a_scenario_that_shows_itself(scenario: Path, tmp_path: Path) -> None:
    first = invoke("scenario", "show", scenario, "-s", "seed=7")
    assert first.exit_code == 0, first.output
    assert "seed: 7\n" in first.output
    again = tmp_path / "again.yaml"
    again.write_text(first.output)
    assert invoke("scenario", "show", again).output == first.output
    data = json.loads(invoke("scenario", "show", again, "--json").output)
    assert data["devices"]["compute"]["name"] == "values"


def test_list_names_files_by_their_first_comment_and_all_parts(scenario: Path) -> None:
    out = invoke("scenario", "list", scenario.parent).output
    assert "two.yaml  Two points and a parabola\n" in out
    os.mkfifo(scenario.parent / "pipe.yaml")
    data = json.loads(invoke("scenario", "list", scenario.parent, "--json").output)
    assert data["scenarios"] == {str(scenario): "Two points and a parabola"}
    assert {"uniform", "scripted"} <= set(data["parts"]["selection"])
    assert all(line for rows in data["parts"].values() for line in rows.values())
    assert invoke("scenario", "list", scenario.parent / "nope").exit_code == 2
    assert "fedsim describe sync" in invoke("scenario", "list", "sync").stderr


def test_schema_is_json_with_all_parts() -> None:
    schema = json.loads(invoke("scenario", "schema").output)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"method.fedavg", "dataset.digits", "compute.lognormal"} <= set(schema["$defs"])
