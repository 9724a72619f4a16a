"""Learning on a recorded timeline: the same bits as a run that simulates, and no other days than it can have."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.runs import Run
from tests.composition.worlds import digests as digests_of
from tests.composition.worlds import digits, quadratic

pytestmark = pytest.mark.usefixtures("without_reports")

TABLES = ("online.parquet", "partition.parquet")


def digests(run: Run) -> dict[str, str]:
    return digests_of(run.path, *TABLES)


def asynchronous(**changes: Any) -> dict[str, Any]:
    scenario = digits(stop={"arrivals": 40}, evaluation={"every": "2s"})
    scenario["server"] = {
        "method": {"name": "fedasync"},
        "selection": {"name": "uniform", "cohort": 4},
        "schedule": {"name": "async"},
    }
    return {**scenario, **changes}


SGD = {"optimizer": {"name": "sgd", "lr": 0.1}, "local_steps": 5, "batch_size": 16}
OTHER = {**SGD, "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.5}, "clip_norm": 1.0}


@pytest.fixture(scope="module", params=[digits, asynchronous], ids=["synchronous", "asynchronous"])
def world(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_learning_on_a_timeline_gives_the_bits_of_a_run_that_simulates(
    world: Any, tmp_path: Path
) -> None:
    recorded = fedsim.run(world(), tmp_path / "recorded")
    fresh = fedsim.run(world(training=OTHER), tmp_path / "fresh")
    learned = fedsim.run(world(training=OTHER), tmp_path / "learned", timeline=recorded)
    assert digests(learned) == digests(fresh)
    assert digests(learned) != digests(recorded)
    assert learned.info["rounds"] == fresh.info["rounds"]
    assert learned.info["versions_made"] == fresh.info["versions_made"]
    assert learned.info["timeline"] == {"run": str(recorded.path), "seed": 0}


def test_a_timing_only_run_can_be_learned_later(world: Any, tmp_path: Path) -> None:
    """Without recorded evaluations these are planned from the scenario and the tables."""
    fedsim.run(world(), tmp_path / "recorded", timing_only=True)
    learned = fedsim.run(world(), tmp_path / "learned", timeline=tmp_path / "recorded")
    assert digests(learned) == digests(fedsim.run(world(), tmp_path / "fresh"))


def test_another_seed_learns_on_the_same_days_and_data(tmp_path: Path) -> None:
    recorded = fedsim.run(digits(), tmp_path / "recorded")
    learned = fedsim.run(digits(seed=1), tmp_path / "learned", timeline=recorded)
    again = fedsim.run(digits(seed=1), tmp_path / "again", timeline=learned)
    same = ("dispatches", "aggregations", "clients", "partition")
    before, after = digests(recorded), digests(learned)
    assert {name: before[f"{name}.parquet"] for name in same} == {
        name: after[f"{name}.parquet"] for name in same
    }
    assert before["model.safetensors"] != after["model.safetensors"]
    assert digests(again) == after


def test_draws_with_replacement_count_as_recorded(tmp_path: Path) -> None:
    """FedAvg on x -> 0.5 (x + 4) and x -> 0.5 x, the first drawn twice: (2 * 2.5 + 0.5) / 3 from 1."""
    selection = tmp_path / "twice.py"
    selection.write_text(
        "from fedsim.scheduling.selections.scripted import Scripted\n"
        "class Twice(Scripted):\n"
        "    name = ''\n"
        "    def multiplicity(self, client):\n"
        "        return 2 if client == 0 else 1\n"
    )
    scenario = quadratic([[0, 1]])
    scenario["task"] |= {"centers": [4.0, 0.0], "curvatures": [5.0, 5.0]}
    scenario["training"] |= {"local_steps": 1}
    scenario["devices"]["compute"]["step"] = [1.0, 1.0]
    scenario["server"]["method"] = {"name": "fedavg", "weights": "uniform"}
    scenario["server"]["selection"]["name"] = f"{selection}:Twice"
    recorded = fedsim.run(scenario, tmp_path / "recorded")
    assert recorded.aggregations["multiplicities"].map(list).tolist() == [[2, 1]]
    learned = fedsim.run(scenario, tmp_path / "learned", timeline=recorded)
    assert learned.model()["x"].item() == pytest.approx(5.5 / 3, rel=1e-12)


def changed(section: str, **values: Any) -> dict[str, Any]:
    scenario = digits()
    scenario[section] = {**scenario[section], **values}
    return scenario


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (changed("stop", target={"accuracy": 0.9}), "ends at a target"),
        (changed("stop", rounds=7), "stop.rounds affects time"),
        (
            changed("devices", compute={"name": "lognormal", "median": "0.2s"}),
            "devices.compute.median affects time",
        ),
        (
            changed("server", schedule={"name": "sync", "deadline": "4s"}),
            "server.schedule.over_selection affects time",
        ),
        (changed("server", method={"name": "scaffold"}), "bytes down, but"),
        (changed("training", local_steps=6), "the numbers of local steps per dispatch differ"),
        (
            changed("task", partition={"name": "dirichlet", "alpha": 0.1, "clients": 12}),
            "the numbers of samples per client differ",
        ),
        (
            changed("task", partition={"name": "iid", "clients": 11}),
            "has 12 clients, the scenario 11",
        ),
    ],
)
def test_what_would_change_the_days_is_refused(
    scenario: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    recorded = fedsim.run(digits(), tmp_path / "recorded", timing_only=True)
    with pytest.raises(UserError, match=reason):
        fedsim.run(scenario, tmp_path / "learned", timeline=recorded)
    assert not (tmp_path / "learned").exists()


def test_a_run_that_stopped_at_a_target_or_has_not_ended_gives_no_timeline(tmp_path: Path) -> None:
    recorded = fedsim.run(changed("stop", target={"accuracy": 0.2}), tmp_path / "recorded")
    with pytest.raises(UserError, match="the recorded run ends at a target"):
        fedsim.run(digits(), tmp_path / "learned", timeline=recorded)
    recorded.folder.update_info(status="interrupted")
    with pytest.raises(UserError, match="the run is interrupted"):
        fedsim.run(digits(), tmp_path / "learned", timeline=tmp_path / "recorded")


def test_selection_by_loss_gives_no_timeline(tmp_path: Path) -> None:
    selection = tmp_path / "curious.py"
    selection.write_text(
        "from fedsim.scheduling.selections.uniform import Uniform\n"
        "class Curious(Uniform):\n"
        "    name = ''\n"
        "    def on_arrival(self, dispatch):\n"
        "        self.arrived = [*getattr(self, 'arrived', []), dispatch]\n"
        "    def draw(self, count):\n"
        "        used = [d for d in getattr(self, 'arrived', []) if getattr(d, 'used', False)]\n"
        "        if used:\n"
        "            self.server.training_losses(used[:1])\n"
        "        return super().draw(count)\n"
    )
    scenario = changed("server", selection={"name": f"{selection}:Curious", "cohort": 4})
    recorded = fedsim.run(scenario, tmp_path / "recorded")
    with pytest.raises(UserError, match="used learned values"):
        fedsim.run(scenario, tmp_path / "learned", timeline=recorded)


def test_an_interrupted_run_on_a_timeline_is_resumed_on_it(tmp_path: Path) -> None:
    recorded = fedsim.run(digits(), tmp_path / "recorded")
    learned = fedsim.run(digits(seed=1), tmp_path / "learned", timeline=recorded)
    expected = digests(learned)
    learned.folder.update_info(status="interrupted")
    learned.folder.parquet("clients").unlink()
    assert digests(fedsim.resume(learned.path)) == expected
