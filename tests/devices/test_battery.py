"""Batteries: hand-worked charges, and no work for a device that is low."""

from __future__ import annotations

from fedsim.devices.battery import Batteries
from fedsim.scenario.model import Energy
from tests.simulation.harness import simulate


def test_charge_falls_with_work_and_rises_with_time() -> None:
    """100 J, floor 20 J, recharging at 2 W: 90 J of work leave 10 J, and the floor is reached 5 s later."""
    batteries = Batteries(Energy(battery_j=100, battery_floor=0.2, recharge_w=2), 1)
    batteries.begin(0, 0)
    assert batteries.end(0, 10 * 10**9, 90.0) == 15 * 10**9
    assert batteries.charge_j(0, 15 * 10**9) == 20.0
    assert batteries.charge_j(0, 1000 * 10**9) == 100.0


def test_a_low_device_rests_until_it_has_recharged() -> None:
    """A round of 12 s takes 1 + 20 + 3 = 24 J of 30 J; 6 J are left, the floor of 15 J comes back at 1 W in 9 s."""
    book = simulate(
        step_s=[1],
        selection={"name": "scripted", "rounds": [[0]]},
        rounds=2,
        energy={"battery_j": 30, "battery_floor": 0.5, "recharge_w": 1},
    )
    assert book.row(0)["energy"] == 24.0
    assert [book.row(i)["dispatched"] for i in range(2)] == [0.0, 21.0]


def test_a_resting_device_is_not_selected() -> None:
    """Two devices, cohort 1: each rests 9 s after its 12 s of work, so they take turns."""
    book = simulate(
        step_s=[1, 1],
        selection={"name": "uniform", "cohort": 1},
        rounds=4,
        energy={"battery_j": 30, "battery_floor": 0.5, "recharge_w": 1},
    )
    clients = [book.row(i)["client"] for i in range(4)]
    assert clients[0] != clients[1]
    assert clients[2:] == clients[:2]
