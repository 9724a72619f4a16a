"""Energy of a dispatch."""

import numpy as np

from fedsim.devices.battery import Power
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.energy import EnergyUse
from fedsim.vocabulary.outcomes import Ending

S = 1_000_000_000
PLAN = Plan(9 * S, Ending.ARRIVED, 2 * S, 6 * S, 4, 1.0, 1.0, 2 * S, 4 * S, 3 * S)


def test_joules_by_phase() -> None:
    """2 s at 1 W, 4 s at 2 W, 3 s at 3 W are 19 J; the second class of devices takes twice as much."""
    watts = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    energy = EnergyUse(Power(watts, np.array([0, 1, 0], dtype=np.uint8)))
    assert [energy.joules(client, PLAN) for client in range(3)] == [19, 38, 19]
