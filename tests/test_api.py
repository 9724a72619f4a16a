"""The functions of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.scenario.loading import LoadedScenario
from tests.composition.worlds import quadratic


def test_a_scenario_can_be_given_checked(tmp_path: Path) -> None:
    """read_scenario and run accept one another's results."""
    loaded = fedsim.read_scenario(quadratic([[0]]), ["seed=5"])
    assert isinstance(loaded, LoadedScenario)
    assert fedsim.run(loaded, tmp_path / "run").info["seed"] == 5


def test_arguments_of_wrong_types_are_named() -> None:
    with pytest.raises(UserError, match="argument scenario: must be a file, a name or a mapping"):
        fedsim.run(3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"argument scenario: .*not None"):
        fedsim.sweep(None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="argument paths: 3 is not a run"):
        fedsim.compare([3])  # type: ignore[list-item]
    with pytest.raises(UserError, match="argument paths: no runs are given"):
        fedsim.compare([])
