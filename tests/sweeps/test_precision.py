"""Sweeps to a precision: which seeds are run, what is compared, and what is refused."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.page import page_figures
from fedsim.analysis.comparison.targets import Target
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from fedsim.sweeps.precision import Precision, logarithms, sweep_to_precision
from tests.analysis.comparison.made import GOAL, of, racers
from tests.sweeps.worlds import broken, command, scenario, write


def ended(runs: list[RunFacts]) -> list[RunFacts]:
    ends = [float(run.progress["time_s"][-1]) for run in runs]
    return [
        dataclasses.replace(run, figures={"simulated_s": end})
        for run, end in zip(runs, ends, strict=True)
    ]


def test_ratios_are_those_of_restricted_times_by_seed() -> None:
    """The run that missed ended after 600 s; so a run that reached the target after 700 s counts with 600 s, too."""
    runs = ended(racers(fedavg=(100.0, 200.0, 700.0), fedbuff=(50.0, 400.0, None)))
    [(names, logs)] = logarithms(of(*runs, goals=(GOAL,)), GOAL)
    assert logs.tolist() == [math.log(0.5), math.log(2), 0.0]
    assert list(names.values()) == ["", "fedbuff", "fedavg", 1, 0, 600.0]
    [(names, _)] = logarithms(of(*runs[:2], *runs[3:5], goals=(GOAL,)), GOAL)
    assert names["censored_s"] is None


def test_runs_that_stopped_before_the_target_are_refused() -> None:
    runs = ended(racers(fedavg=(100.0, 100.0), fedbuff=(50.0, None)))
    for run in runs:
        run.scenario["stop"] = {"target": {"accuracy": 0.4}}
    with pytest.raises(UserError, match=r"runs of fedbuff ended at their stop.target before"):
        logarithms(of(*runs, goals=(GOAL,)), GOAL)


def test_a_precision_is_read() -> None:
    assert Precision.parse("5%", "time_to:accuracy=80%", 9) == Precision(0.05, GOAL, 9)
    assert Precision.parse("0.1", "throughput") == Precision(0.1, None)


@pytest.mark.parametrize(
    ("width", "metric"),
    [
        ("5", "throughput"),
        ("few", "throughput"),
        ("5%", None),
        (None, "throughput"),
        ("5%", "loss"),
    ],
)
def test_a_precision_that_makes_no_sense_is_refused(width: str | None, metric: str | None) -> None:
    with pytest.raises(UserError, match="for example --until-halfwidth 5% --metric"):
        Precision.parse(width, metric)


def swept(**more: Any) -> dict[str, Any]:
    """Two variants whose times to the same loss vary by seed with the jitter of the devices."""
    return scenario(grid={"training.local_steps": [2, 3]}, **more)


def test_seeds_are_added_until_the_ratio_is_precise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, out = load_scenario_dict(swept(seeds=[5]), tmp_path), tmp_path / "out"
    wide = Precision(0.5, Target("loss", 4.0))
    outcome, table = sweep_to_precision(loaded, out, wide, jobs=1, timing_only=False)
    assert [entry["seed"] for entry in outcome.sweep.record["runs"]] == [*range(5, 15)] * 2
    assert (outcome.ran, outcome.skipped) == (20, 0)
    [row] = table.to_dict("records")
    assert (row["label"], row["seeds"], row["needed"]) == ("local_steps=3", 10, 10)
    assert row["low"] == pytest.approx(row["ratio"] / 1.5)
    assert (out / "precision.csv").read_text().startswith("setting,label,baseline,")
    # A narrower interval goes on with the seeds that are there, and ends with the budget.
    narrow = dataclasses.replace(wide, half_width=1e-6, most=12)
    outcome, table = sweep_to_precision(loaded, out, narrow, jobs=1)
    again = fedsim.sweep(
        loaded, out, jobs=1, until_halfwidth=1e-6, metric="time_to:loss=4", max_seeds=12
    )
    assert len(again.runs) == 24
    shown = page_figures(again.compare(targets=["loss=4"]))["precision"]
    assert [column.values for column in shown.columns[3:]] == [["more than 12"], [12], [0]]
    assert shown.finding.startswith("0 of 1 ratio to local_steps=2 ")
    assert (outcome.ran, outcome.skipped) == (4, 20)
    assert table["needed"].isna().all()

    # The command, with the same runs.
    monkeypatch.setenv("COLUMNS", "200")
    path = write(tmp_path / "s.yaml", swept(seeds=[5]))
    args = ["sweep", path, "-j", 1, "-o", out, "--until-halfwidth"]
    shown = command(*args, "50%", "--metric", "time_to:loss=4")
    assert shown.exit_code == 0, shown.output
    assert "time_to:loss=4, relative to local_steps=2:" in shown.stdout
    again_shown = command(*args, "0.5", "--metric", "time_to:loss=4", "--json")
    document = json.loads(again_shown.stdout)
    assert (document["ran"], document["skipped"]) == (0, 24)
    assert document["ratios"][0]["needed"] == 10
    few = command(*args, "0.01%", "--metric", "time_to:loss=3.75", "--max-seeds", 3)
    missed = [
        int(number) for number in re.findall(r"(\d+) of 12 \(baseline (\d+)\)", few.stdout)[0]
    ]
    assert 0 < sum(missed) < 24
    assert "more than 12" in few.stdout
    assert "runs that missed count with " in few.stdout
    assert few.stdout.endswith("not as precise as wanted: raise --max-seeds above 3\n")
    mistyped = command(
        "sweep", path, "-o", tmp_path / "no", "--until-halfwidth", "5%", "--metric", "time_to:los=4"
    )
    assert mistyped.exit_code == 2
    assert "did you mean 'loss'?" in mistyped.stderr
    assert not (tmp_path / "no").exists()
    none = command(*args, "50%", "--metric", "time_to:loss=-1")
    assert none.exit_code == 2
    assert "no run reached loss=-1" in none.stderr


def test_a_failed_run_ends_the_sweep(tmp_path: Path) -> None:
    methods = [{"name": broken(tmp_path, "return 1 / 0")}, {"name": "fedavg"}]
    path = write(tmp_path / "s.yaml", scenario(grid={"server.method": methods}))
    args = ("sweep", path, "-j", 1, "-o", tmp_path / "out", "--until-halfwidth", "5%")
    result = command(*args, "--metric", "throughput", "--max-seeds", 3)
    assert result.exit_code == 2
    assert "3 runs done, 3 failed" in result.stdout


def test_throughput_is_that_of_the_steady_state(tmp_path: Path) -> None:
    """Local steps of half the time: almost twice the updates per hour, as transfers take next to no time."""
    given = scenario(grid={"devices.compute.step": [2.0, 1.0]})
    given["server"] = {"schedule": {"name": "async"}, "method": {"name": "fedasync"}}
    given["stop"] = {"arrivals": 200}
    loaded = load_scenario_dict(given, tmp_path)
    precision = Precision(0.05, None)
    _, table = sweep_to_precision(loaded, tmp_path / "out", precision, jobs=1, timing_only=True)
    [ratio] = table["ratio"]
    assert 1.9 < ratio < 2.1
    short, few = loaded.changed(["stop.arrivals=50"]), Precision(0.05, None, most=3)
    with pytest.raises(UserError, match="has no steady throughput"):
        sweep_to_precision(short, tmp_path / "short", few, jobs=1, timing_only=True)
