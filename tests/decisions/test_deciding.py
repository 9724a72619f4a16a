"""Decisions from small runs: what is written, what is repeated, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedsim
from fedsim.decisions import Decision
from fedsim.decisions.goal import Goal
from fedsim.decisions.search import RULED_OUT
from fedsim.errors import UserError
from fedsim.runs.records import DECISION
from fedsim.scenario.loading import load_scenario, load_scenario_dict
from tests.composition.worlds import quadratic

METRIC = "time_to:arrivals=12"
OVER = {"server.schedule.deadline": "15s..2min", "server.selection.cohort": "1..6"}


def world(**more: Any) -> dict[str, Any]:
    """Eight clients; a deadline of 15 s lets only the fast ones arrive. Time alone is simulated."""
    return {
        "name": "sites",
        "task": {"name": "timing", "clients": 8, "parameters": 1000},
        "training": {"local_steps": 10},
        "devices": {
            "compute": {"name": "lognormal", "median": "2s", "sigma": 0.8, "jitter": {"cv": 0.1}},
            "network": {"name": "static", "latency": "50ms", "down": "8Mbps", "up": "4Mbps"},
        },
        "server": {"schedule": {"name": "sync", "deadline": "2min"}, "selection": {"cohort": 1}},
        "stop": {"simulated_time": "1h"},
    } | more


def decided(folder: Path, **more: Any) -> Decision:
    given = {"scenario": world(), "over": OVER, "metric": METRIC, "jobs": 1, "settings": 16} | more
    return fedsim.decide(output=folder, **({"seeds": 3} | given))


def test_the_numbers_are_those_of_fresh_seeds(made: Decision) -> None:
    """Seeds 0 (search) and 1 to 3 (choice) have no part in them, nor 4 to 6, which preferred a rival of the choice.
    All have the same fresh seeds."""
    chosen, given = load_scenario(made.path / "best.yaml"), load_scenario_dict(world(), ".")
    goal = Goal.parse(METRIC)
    for finalist, scenario in ((0, chosen), (-1, goal.applied(given))):
        times = []
        for seed in range(7, 10):
            folder = made.path.parent / f"fresh{finalist}-{seed}"
            run = fedsim.run(scenario, folder, overrides={"seed": seed}, timing_only=True)
            times.append(run.simulated_s)
        mean, low, high = made.finalists[finalist].interval()
        assert mean == pytest.approx(np.mean(times))
        ends = np.array(stats.t.interval(0.95, 2, mean, stats.sem(times)))
        assert (low, high) == pytest.approx(ends.clip(min=0.0))
    assert made.table["time"].tolist() == [each.interval()[0] for each in made.finalists]
    # The first row has seed 7.
    run = fedsim.load(made.path.parent / "fresh0-7")
    assert list(made.notes) == run.info.get("notes", [])
    good = made.table["probability"].tolist()[:-1]
    assert good[0] == max(good)


def test_fresh_runs_end_as_the_scenario_says(made: Decision) -> None:
    """Runs of the search end at twice the time of the scenario as given, those of the answer at their own end."""
    runs = [fedsim.load(path) for path in made.path.glob("runs/*")]
    ends = {(run.entry("seed") > 3, run.scenario["stop"]["simulated_time"]) for run in runs}
    assert {end_s for is_fresh, end_s in ends if is_fresh} == {3600.0}
    assert len(ends) > 2
    assert made.binding == "no limit binds: simulated time 1 h"


def test_the_scenario_as_given_is_the_answer_if_it_is_as_good(tmp_path: Path) -> None:
    """Deadlines that are never reached make no difference; one setting is the scenario as given itself."""
    server = {"schedule": {"name": "sync", "deadline": "10min"}, "selection": {"cohort": 2}}
    over = {"server.schedule.deadline": ["10min", "30min", "20min"]}
    found = decided(tmp_path / "d", scenario=world(server=server), over=over, settings=8, seeds=2)
    winner, *rivals = found.finalists
    assert winner.words == "as given (FedAvg)"
    assert {each.words for each in rivals} == {"deadline 20 min", "deadline 30 min"}
    assert [each.probability for each in found.finalists] == pytest.approx([1.0] * 3)
    assert "with probability >0.9, equal to that of deadline 20 min and deadline 30 min" in (
        found.sentence.replace("30 min and deadline 20 min", "20 min and deadline 30 min")
    )
    best = load_scenario(found.path / "best.yaml").scenario
    assert best.server.schedule.params.deadline == 600  # type: ignore[attr-defined]


def test_a_change_that_changes_nothing_is_not_the_answer(tmp_path: Path) -> None:
    """Of a dozen equal settings, some are run with more seeds than the scenario as given."""
    server = {"schedule": {"name": "sync", "deadline": "10min"}, "selection": {"cohort": 2}}
    over = {"server.schedule.deadline": [f"{n}min" for n in range(20, 32)]}
    found = decided(tmp_path / "d", scenario=world(server=server), over=over, settings=12, seeds=2)
    assert found.finalists[0].words == "as given (FedAvg)"
    assert found.finalists[0].chance == found.finalists[1].chance


def test_the_choice_is_better_than_the_scenario_as_given(made: Decision) -> None:
    given = made.finalists[-1]
    assert given.words == "as given (FedAvg)"
    assert made.finalists[0].interval()[0] < given.interval()[0] / 2
    assert made.sentence.startswith(f"{made.finalists[0].words}: 12 arrived updates after ")
    assert made.sentence.endswith(f"as given (FedAvg): after {given.interval()[0] // 60:.0f} min "
                                  f"{given.interval()[0] % 60:.0f} s")  # fmt: skip


def test_a_repeated_call_reads_its_runs(made: Decision) -> None:
    runs = {path.stat().st_mtime_ns for path in made.path.glob("runs/*/run.json")}
    record = DECISION.read(made.path)
    again = decided(made.path)
    assert again.sentence == made.sentence
    assert DECISION.read(made.path)["spent_s"] == record["spent_s"]  # Nothing was new.
    paths = list(made.path.glob("runs/*/run.json"))
    assert {path.stat().st_mtime_ns for path in paths} == runs
    assert {*DECISION.read(made.path)["complete"]} == {f"runs/{path.parent.name}" for path in paths}


def test_an_interrupted_search_continues_and_a_larger_one_extends_it(
    made: Decision, tmp_path: Path
) -> None:
    """Interrupted after its first batch; a search of 8 settings is the beginning of one of 16."""

    def stop(_: Any) -> None:
        if '"batches": 1' in (tmp_path / "d" / "decide.json").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decided(tmp_path / "d", on_progress=stop, settings=8)
    again = decided(tmp_path / "d")
    assert again.settings.equals(made.settings)
    assert again.sentence == made.sentence


def test_another_question_is_refused(made: Decision) -> None:
    with pytest.raises(UserError, match="another question: another scenario, metric, objectives"):
        decided(made.path, scenario=world(seed=3), metric="throughput")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"exists, but is not a folder with decide\.json"):
        decided(tmp_path)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"metric": "time_to:arrivals=9999"}, r"settings reached 9,999 arrived updates within 1 h; the closest: "),
        ({"limits": {"bytes": "1kB"}}, r"settings reached .* data moved at most 1 kB; .*, which needs \d+ kB"),
    ],
)  # fmt: skip
def test_what_no_setting_reaches_is_refused(more: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"none of .* {problem}"):
        decided(tmp_path / "d", settings=8, **more)


def test_a_seed_without_a_throughput_counts_as_the_worst(tmp_path: Path) -> None:
    """It misses the 100 updates of a steady state, which the seeds of the search have."""
    devices = {
        "compute": {"name": "lognormal", "median": "1s"},
        "network": {"name": "static", "down": "20Mbps", "up": "5Mbps", "latency": "40ms"},
    }
    scenario = world(devices=devices, stop={"rounds": 100}, training={})
    scenario["task"] = {"name": "timing", "clients": 8}
    scenario["server"] = {"schedule": {"name": "sync", "deadline": "1min"}}
    over = {"server.selection.cohort": "2..5"}
    more = {"metric": "throughput", "settings": 3, "seeds": 2}
    decision = decided(tmp_path / "d", scenario=scenario, over=over, **more)
    assert np.isfinite(decision.table["probability"][:-1].astype(float)).all()


def test_several_objectives_give_a_front(front: Decision) -> None:
    shown = front.table.iloc[:-1]
    assert len(shown) > 1
    assert shown["time"].is_monotonic_increasing
    assert shown["bytes"].is_monotonic_decreasing


def test_settings_are_ruled_out_by_timing_alone(tmp_path: Path) -> None:
    """With a pause of an hour, there is one round in the time in which the scenario as given has many."""
    schedule = {"name": "sync", "pause": "1s"}
    server = {"selection": {"name": "uniform", "cohort": 2}, "schedule": schedule}
    training = {"optimizer": {"name": "sgd", "lr": 0.005}, "local_steps": 2, "dtype": "float64"}
    stop = {"simulated_time": "1h"}
    scenario = quadratic([], server=server, training=training, stop=stop)
    over = {"server.schedule.pause": ["1h", "1s", "2s"]}
    more: Any = {"scenario": scenario, "over": over, "metric": "time_to:loss=3.9", "seeds": 2}
    found = decided(tmp_path / "d", settings=3, **more)
    states = found.settings.set_index("server.schedule.pause")
    assert states["state"].to_dict() == {"1h": RULED_OUT, "1s": "complete", "2s": "complete"}
    assert states["problem"]["1h"].startswith("2 updates within 5 min 18 s (twice ")
    assert found.ruled_out.startswith("1 of 3 settings were ruled out by timing alone")
    with pytest.raises(
        UserError,
        match=r"all of 3 settings .* ruled out by timing; the first: 0 updates within .* most 1 B",
    ):
        decided(tmp_path / "e", settings=3, limits={"bytes": "1B"}, **more)
