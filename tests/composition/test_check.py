"""A scenario put together: what is checked, the bytes of a dispatch, the cost of evaluations, the work of clients."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedsim
from fedsim.api import read_scenario
from fedsim.composition.check import check_scenario as check
from fedsim.errors import UserError
from fedsim.methods.base import Vector
from tests.composition.adapters import scenario
from tests.composition.worlds import digits, quadratic

CHANGED = 4 * (2 * 64 + 32 * 2 + 32 * 10 + 10)
FIXED = 4 * (64 * 32 + 32 + 1)


def test_frozen_tensors_are_sent_once_per_client(users: Path) -> None:
    run = fedsim.run(scenario(), users / "run")
    first = CHANGED + FIXED
    assert run.dispatches["client_id"].to_list() == [0, 0, 1, 1]
    assert run.dispatches["bytes_down"].to_list() == [first, CHANGED, first, CHANGED]
    assert set(run.dispatches["bytes_up"]) == {CHANGED}
    assert sum(value.numel() for value in run.model().values()) * 4 == first, (
        "all tensors are saved"
    )


def test_everything_is_sent_with_transfer_all(users: Path) -> None:
    changed = fedsim.run(scenario(), users / "changed")
    run = fedsim.run(scenario(), users / "all", overrides=["server.transfer=all"])
    assert set(run.dispatches["bytes_down"]) == set(run.dispatches["bytes_up"]) == {CHANGED + FIXED}
    for name, value in changed.model().items():
        assert torch.equal(run.model()[name], value), "only bytes differ"


@pytest.mark.parametrize(("up", "share"), [("none", 1), ({"name": "factor", "factor": 0.2}, 0.2)])
def test_a_small_network_stands_for_a_large_one(tmp_path: Path, up: Any, share: float) -> None:
    """25 MB at 80 and 8 Mbit/s: 2.5 s down, and 25 s up before compression. What is learned stays the same."""
    network = {"name": "static", "latency": 0, "down": "80Mbps", "up": "8Mbps"}
    world = quadratic([[0, 1], [1, 2]])
    world["devices"]["network"] = network
    world["server"]["compression"] = {"up": up}
    small, large = (
        fedsim.run(world, tmp_path / name, overrides=overrides)
        for name, overrides in (("small", {}), ("large", {"task.size": "25MB"}))
    )
    assert large.dispatches["download_s"].to_list() == [2.5] * 4
    assert large.dispatches["upload_s"].to_numpy() == pytest.approx([25 * share] * 4)
    assert set(large.dispatches["bytes_up"]) == {25e6 * share}
    assert [vector["bytes_raw"] for vector in large.info["vectors"]] == [25e6] * 2
    assert all(torch.equal(large.model()[name], value) for name, value in small.model().items())


def test_the_bits_of_a_vector_are_charged() -> None:
    assert Vector("a", 10).size_bytes(4) == 40
    assert Vector("a", 10, bits=8).size_bytes(4) == 10
    assert Vector("a", 10, bits=1).size_bytes(8) == 1.25


def test_a_sound_scenario_has_no_warnings_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert check(read_scenario(quadratic([[0, 1, 2]]))) == []
    assert list(tmp_path.iterdir()) == []


def test_an_error_notes_that_further_checks_follow() -> None:
    scenario = quadratic([[0]], server={"selection": {"name": "uniform", "cohort": 4}})
    with pytest.raises(UserError, match="a cohort of 4 cannot be drawn from 3 clients") as caught:
        check(read_scenario(scenario))
    assert caught.value.__notes__ == ["note: further checks follow once this is fixed"]


def test_a_model_that_the_executor_cannot_train_is_refused_unless_nothing_is_trained() -> None:
    scenario = digits()
    scenario["task"]["model"] = {"name": "resnet20", "norm": "batch"}
    scenario["training"] = {**scenario["training"], "executor": "stacked"}
    with pytest.raises(UserError, match="resnet20 cannot train several clients in one tensor"):
        check(read_scenario(scenario))
    check(read_scenario(scenario), timing_only=True)


def test_evaluations_cost_a_tenth_of_the_training_unless_told_otherwise(tmp_path: Path) -> None:
    """360 test samples are worth 75 steps of 16 samples, forward and backward; the last version is always measured."""
    run = fedsim.run(digits(evaluation={}, stop={"rounds": 20}), tmp_path / "run")
    measured = run.metrics["version"].to_list()
    steps = (
        run.dispatches[run.dispatches.outcome == "aggregated"]
        .groupby("aggregated_version")
        .steps_done.sum()
    )
    expected, since = [0], 0
    for version, done in steps.items():
        since += done
        if since >= 75:
            expected.append(version)
            since = 0
    assert 2 < len(expected) < 20
    assert measured == sorted({*expected, int(steps.index.max())})


def test_what_clients_and_objective_cost_makes_evaluations_rarer(tmp_path: Path) -> None:
    """Evaluations cost 359 forward passes; with the clients' own tests 288 more, with 1,150 samples' gradients 3,450.

    A tenth of a step of 16 samples is 4.8 of them: 75, 135 and 794 steps. Rounds make 20 steps of 4 clients.
    """
    partition = {"name": "iid", "clients": 12, "test": "split"}
    server = {"selection": {"name": "uniform", "cohort": 4}}
    base = digits(evaluation={}, server=server, stop={"rounds": 46})
    base["task"] = {**base["task"], "partition": partition}

    def second(**changes: Any) -> int:
        run = fedsim.run({**base, **changes}, tmp_path / str(len(list(tmp_path.iterdir()))))
        return int(run.metrics["version"].iloc[1])

    assert second() == 4
    assert second(evaluation={"per_client": True}) == 7
    assert second(server={**server, "method": {"name": "fedper"}}) == 7
    assert second(evaluation={"objective": True}) == 40
