"""A scenario put together: what is checked, the bytes of a dispatch, the cost of evaluations, the work of clients."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.api import read_scenario
from fedsim.composition.build import check_scenario as check
from fedsim.errors import UserError
from tests.composition.worlds import digits, quadratic


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


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"task": {"name": "timing", "clients": 3, "parameters": 10**15}},
            "task: a transfer would take 4 PB, more than 100 TB",
        ),
        (
            {"evaluation": {"metrics": [{"name": "class_accuracy", "label": 10}]}},
            "evaluation.metrics.0.label: there is no class 10\n  the classes are 0 to 9",
        ),
    ],
)
def test_what_is_too_large_is_refused_before_the_run(
    sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(read_scenario({**digits(), **sections}))


def test_a_model_that_the_executor_cannot_train_is_refused_unless_nothing_is_trained() -> None:
    scenario = digits()
    scenario["task"]["model"] = {"name": "resnet20", "norm": "batch"}
    scenario["training"] = {**scenario["training"], "executor": "stacked"}
    with pytest.raises(UserError, match="resnet20 cannot train several clients in one tensor"):
        check(read_scenario(scenario))
    check(read_scenario(scenario), timing_only=True)


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
