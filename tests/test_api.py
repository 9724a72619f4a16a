"""The functions of the package."""

from __future__ import annotations

from pathlib import Path

import fedsim
from fedsim.scenario.loading import LoadedScenario
from tests.composition.worlds import quadratic


def test_a_scenario_can_be_given_checked(tmp_path: Path) -> None:
    """read_scenario and run accept one another's results."""
    loaded = fedsim.read_scenario(quadratic([[0]]), ["seed=5"])
    assert isinstance(loaded, LoadedScenario)
    assert fedsim.run(loaded, tmp_path / "run").info["seed"] == 5
