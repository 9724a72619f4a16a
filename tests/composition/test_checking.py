"""A check makes every check of a run before its first event, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.api import read_scenario
from fedsim.composition.checking import check
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


def test_a_model_that_the_executor_cannot_train_is_refused_unless_nothing_is_trained() -> None:
    scenario = digits()
    scenario["task"]["model"] = {"name": "resnet20", "norm": "batch"}
    scenario["training"] = {**scenario["training"], "executor": "stacked"}
    with pytest.raises(UserError, match="resnet20 cannot train several clients in one tensor"):
        check(read_scenario(scenario))
    check(read_scenario(scenario), timing_only=True)
