"""Every key of a scenario is described; ``tests/cli/test_describe.py`` asks it of every part."""

from fedsim.scenario.description import parameters
from fedsim.scenario.model import Scenario


def test_every_key_of_a_scenario_is_described() -> None:
    for parameter in parameters(Scenario):
        assert parameter.meaning, parameter.key
