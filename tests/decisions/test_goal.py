"""What runs are judged by."""

from pathlib import Path
from typing import Any

import pytest

from fedsim.analysis.comparison.targets import Target
from fedsim.composition.run import execute
from fedsim.decisions.goal import Goal, Limit, parse_objectives
from fedsim.errors import UserError
from fedsim.runs.run import Run
from fedsim.scenario.loading import load_scenario, load_scenario_dict
from tests.composition.worlds import quadratic, timed


def run(goal: Goal, folder: Path, data: dict[str, Any]) -> Run:
    loaded = goal.applied(load_scenario_dict(data, "."))
    return execute(loaded, folder / "run", timing_only=goal.timing_only)


def test_a_target_is_reached_at_the_time_of_its_evaluation(tmp_path: Path) -> None:
    """Client 0 draws x from 1 to its center 0: the loss falls. A transfer is 8 bytes."""
    goal = Goal.parse("time_to:loss=3.7")
    found = run(goal, tmp_path, quadratic([[0]] * 9))
    assert 1 < len(found.aggregations) < 9
    assert goal.measure(found).reached
    assert goal.measure(found).costs["time"] == found.time_to("loss", 3.7) == found.simulated_s
    assert goal.measure(found).costs["bytes"] == 16 * len(found.dispatches)
    longer = execute(load_scenario_dict(quadratic([[0]] * 9), "."), tmp_path / "longer")
    assert goal.measure(longer).costs["time"] == found.simulated_s < longer.simulated_s


def test_a_missed_target_counts_by_the_way_that_is_missing(tmp_path: Path) -> None:
    goal = Goal.parse("time_to:loss=0.1")
    found = run(goal, tmp_path, quadratic([[0]] * 2))
    first, last = found.metrics["loss"].iloc[[0, -1]]
    assert first > last
    measured = goal.measure(found)
    assert not measured.reached
    assert measured.shortfall == pytest.approx((last - 0.1) / (first - 0.1))
    assert measured.costs["time"] == found.simulated_s


@pytest.mark.parametrize(("rounds", "reached", "shortfall"), [(2, True, 0.0), (8, False, 0.75)])
def test_counts_need_no_training(
    rounds: int, reached: bool, shortfall: float, tmp_path: Path
) -> None:
    """A round of three clients takes 43.1 s; 100 s are two rounds."""
    goal = Goal.parse(f"time_to:rounds={rounds}")
    measured = goal.measure(run(goal, tmp_path, timed(stop={"simulated_time": "100s"})))
    assert (goal.timing_only, measured.reached, measured.shortfall) == (True, reached, shortfall)
    assert measured.costs["time"] == pytest.approx(86.2 if reached else 100.0)
    assert goal.words() == f"{rounds} rounds"
    assert Goal.parse("time_to:rounds=1").words() == "1 round"


def test_arrivals_are_counted(tmp_path: Path) -> None:
    goal = Goal.parse("time_to:arrivals=4")
    measured = goal.measure(run(goal, tmp_path, timed(stop={"simulated_time": "100s"})))
    assert measured.reached
    assert measured.costs["time"] == pytest.approx(43.1 + 13.1)


def test_a_throughput_without_a_steady_state_is_none(tmp_path: Path) -> None:
    goal = Goal.parse("throughput")
    measured = goal.measure(run(goal, tmp_path, timed()))
    assert (measured.reached, measured.rate) == (False, 0.0)


def test_limits_are_read_in_units() -> None:
    limits = [Limit.parse(text) for text in ("bytes=2GB", "time=1h", "energy=2Wh")]
    assert [limit.most for limit in limits] == [2e9, 3600.0, 7200.0]
    assert str(limits[0]) == "data moved at most 2 GB"


@pytest.mark.parametrize(
    "text", ["byte=2GB", "bytes=2h", "bytes=0", "bytes", "cost=nan", "updates=-5"]
)
def test_a_limit_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UserError) as raised:
        Limit.parse(text)
    assert raised.value.where == f"--limit {text}"


def test_other_goals_are_refused() -> None:
    with pytest.raises(UserError, match="for example --metric time_to:accuracy"):
        Goal.parse("accuracy")
    with pytest.raises(UserError, match="did you mean 'energy'"):
        parse_objectives(["time", "enery"])
    with pytest.raises(UserError, match="did you mean 'rounds'"):
        Goal(Target("round", 3)).applied(load_scenario_dict(timed(), "."))
    with pytest.raises(UserError, match=r"no metric 'ruonds'.*\n.*did you mean 'rounds'"):
        Goal(Target("ruonds", 3)).applied(load_scenario("quickstart"))
