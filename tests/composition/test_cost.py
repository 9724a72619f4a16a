"""The cost of a run: its counts are those of the run, and its training is measured."""

import math
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.composition import cost
from fedsim.composition.cost import Cost, estimate, of_runs
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from tests.composition.worlds import digits, timed

TIMELESS = timed(
    devices={
        "compute": {"name": "values", "step": 0},
        "network": {"name": "static", "latency": 0, "down": 1e20, "up": 1e20},
    },
    stop={"simulated_time": "1d"},
)
OORT = {"name": "oort", "cohort": 4}
ASYNCHRONOUS = {"schedule": {"name": "async"}, "method": {"name": "fedasync"}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"server": {"selection": OORT}},
        {"server": ASYNCHRONOUS, "stop": {"arrivals": 40}},
        {"evaluation": {"every": "1s"}, "stop": {"simulated_time": "20s"}},
    ],
)
def test_counts_are_those_of_the_run(changes: dict[str, Any], tmp_path: Path) -> None:
    """Exactly, unless the schedule asks for losses: then it selects different clients."""
    expected = estimate(load_scenario_dict(digits(**changes), tmp_path), measures=False)
    run = fedsim.run(digits(**changes), tmp_path / "run")
    aggregated = run.dispatches[run.dispatches["outcome"] == "aggregated"]
    counts = [run.info["rounds"], run.info["versions_made"], run.info["dispatches"]]
    counts += [len(aggregated), aggregated["steps_done"].sum()]
    got = [
        expected.rounds,
        expected.versions,
        expected.dispatches,
        expected.updates,
        expected.steps,
    ]
    close = 0.2 if changes == {"server": {"selection": OORT}} else 0
    assert got == pytest.approx(counts, rel=close)
    assert (expected.share, expected.wall_s) == (1, None)


def test_a_run_that_never_ends_has_no_cost(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the clock stands still"):
        estimate(load_scenario_dict(TIMELESS, tmp_path))


def test_a_target_is_not_met_before_the_limits(tmp_path: Path) -> None:
    stop = {"rounds": 6, "target": {"accuracy": 0.0}}
    assert estimate(load_scenario_dict(digits(stop=stop), tmp_path), measures=False).rounds == 6


def test_a_long_run_is_extrapolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PASS_S", 0.0)
    loaded = load_scenario_dict(digits(stop={"rounds": 200}), tmp_path)
    expected = estimate(loaded, timing_only=True)
    assert 0 < expected.share < 1
    assert expected.rounds == pytest.approx(200)
    assert (expected.updates, expected.steps) == (0, 0)
    assert expected.wall_s is not None


def test_training_is_measured_if_it_may_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_scenario_dict(digits(), tmp_path)
    assert estimate(loaded).wall_s is None
    assert estimate(loaded, runs=10**6).wall_s is not None
    monkeypatch.setattr(cost, "_WINDOW_S", 0.0)
    measured = estimate(loaded, measures=True, threads=1).wall_s
    assert measured is not None
    assert 0 < measured < 60
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_training_has_the_time_of_the_simulation_alone(tmp_path: Path) -> None:
    expected = estimate(load_scenario_dict(timed(), tmp_path), timing_only=True)
    assert expected.updates == 0
    assert expected.wall_s is not None


def test_runs_cost_as_much_as_those_that_were_estimated_on_average() -> None:
    one, two = Cost(1, 2, 3, 4, 5, 6.0, 1.0), Cost(3, 4, 5, 6, 7, 8.0, 0.5)
    assert of_runs([one, two], 10) == Cost(20, 30, 40, 50, 60, 70.0, 0.5)
    unknown = Cost(1, 1, 1, 1, 1, None, 1.0)
    assert of_runs([one, unknown], 2).wall_s is None
    assert math.isclose(of_runs([one], 1).wall_s or 0, 6)
