"""Everything that a scenario may hold is described."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.parts.catalog import CATALOG, summary
from fedsim.scenario.description import parameters
from fedsim.scenario.model import Scenario
from tests.named_parts import PARTS


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_parts_and_their_parameters_are_described(kind: str, name: str) -> None:
    component = CATALOG.find(kind, name, Path.cwd())
    assert summary(component), "the class needs a docstring"
    assert issubclass(component, CATALOG.kinds[kind].base())
    for parameter in parameters(component.Params):
        assert parameter.meaning, f"{parameter.key} needs a docstring"


def test_every_key_of_a_scenario_is_described() -> None:
    for parameter in parameters(Scenario):
        assert parameter.meaning, parameter.key
