"""Batteries: hand-worked charges, and no work for a device that is low."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.devices.battery import Batteries
from fedsim.scenario.model import Energy
from tests.simulation.harness import online, simulate


def test_charge_falls_with_work_and_rises_with_time() -> None:
    """100 J, floor 20 J, recharging at 2 W: 90 J of work leave 10 J, and the floor is reached 5 s later."""
    batteries = Batteries(Energy(battery_j=100, recharge_w=2), np.zeros(1, np.uint8))
    batteries.begin(0, 0)
    assert batteries.end(0, 10 * 10**9, 90.0) == 15 * 10**9
    assert batteries.charge_j(0, 15 * 10**9) == 20.0
    assert batteries.charge_j(0, 1000 * 10**9) == 100.0


LOW = {"battery_j": 30, "battery_floor": 0.5, "recharge_w": 1}


def test_a_low_device_rests_until_it_has_recharged() -> None:
    """A round of 12 s takes 1 + 20 + 3 = 24 J of 30 J; 6 J are left, the floor of 15 J comes back at 1 W in 9 s."""
    script = {"name": "scripted", "rounds": [[0]]}
    book = simulate(step_s=[1], selection=script, rounds=2, energy=LOW)
    assert book.row(0)["energy"] == 24.0
    assert [book.row(i)["dispatched"] for i in range(2)] == [0.0, 21.0]


def test_a_charge_that_never_comes_back_is_no_overflow() -> None:
    script = {"name": "scripted", "rounds": [[0]]}
    energy = {"battery_j": 30, "battery_floor": 0.5, "recharge_w": 1e-300}
    book = simulate(step_s=[1], selection=script, rounds=2, until_s=60, energy=energy)
    assert len(book.rows) == 1


def test_a_resting_device_is_not_selected() -> None:
    """Two devices, cohort 1: each rests 9 s after its 12 s of work, so they take turns."""
    uniform = {"name": "uniform", "cohort": 1}
    book = simulate(step_s=[1, 1], selection=uniform, rounds=4, energy=LOW)
    clients = [book.row(i)["client"] for i in range(4)]
    assert clients[0] != clients[1]
    assert clients[2:] == clients[:2]


ONCE = {"selection": {"name": "scripted", "rounds": [[0]]}, "rounds": 1}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("battery_j", "ended", "steps", "energy"),
    [
        (0.5, 0.5, 0, 0.5),  # half the download of 1 s at 1 W
        (12.0, 6.5, 5, 12.0),  # 1 J for the download, then 5.5 s at 2 W
        (21.0, 11.0, 10, 21.0),  # empty at the end of the steps: the upload never begins
        (22.5, 11.5, 10, 22.5),  # half the upload of 1 s at 3 W
    ],
)
def test_a_device_stops_when_its_battery_is_empty(
    battery_j: float, ended: float, steps: int, energy: float, shared: bool
) -> None:
    """1 s of download at 1 W, 10 steps of 1 s at 2 W, 1 s of upload at 3 W: 24 J in all."""
    book = simulate(step_s=[1], energy={"battery_j": battery_j}, shared=shared, **ONCE)
    row = book.row(0)
    assert book.outcomes()[0] == "dropped"
    assert (row["ended"], row["steps_done"], row["energy"]) == (ended, steps, energy)


@pytest.mark.parametrize("shared", [False, True])
def test_a_battery_that_lasts_to_the_end_is_enough(shared: bool) -> None:
    book = simulate(step_s=[1], energy={"battery_j": 24.0}, shared=shared, **ONCE)
    assert (book.row(0)["arrived"], book.row(0)["energy"]) == (12.0, 24.0)


def test_an_empty_battery_counts_time_at_work_only() -> None:
    """Away from 3 to 5 s; 12 J last for 1 s of download and 5.5 s of steps, that is until 8.5 s."""
    away = {"availability": online([(0.0, 3.0), (5.0, 1e6)]), "on_disconnect": "pause"}
    book = simulate(step_s=[1], energy={"battery_j": 12.0}, **away, **ONCE)
    assert (book.row(0)["ended"], book.row(0)["steps_done"]) == (8.5, 5)


def test_an_empty_device_recharges_before_it_works_again() -> None:
    """Empty at 6.5 s; with a floor of 6 J at 2 W it is back at 9.5 s, or with no floor at 1 % (0.12 J)."""
    for floor, again in ((0.5, 9.5), (0.0, 6.56)):
        energy = {"battery_j": 12.0, "battery_floor": floor, "recharge_w": 2.0}
        book = simulate(step_s=[1], energy=energy, dispatches=2)
        assert book.row(1)["dispatched"] == again


@settings(max_examples=20)
@given(
    battery=st.floats(1.0, 100.0),
    floor=st.floats(0.0, 0.9),
    recharge=st.floats(0.1, 10.0),
    runs=st.lists(st.floats(0.1, 30.0), min_size=2, max_size=10),
    policy=st.sampled_from(["drop", "pause", "finish", "send_partial"]),
)
def test_energy_is_conserved(
    battery: float, floor: float, recharge: float, runs: list[float], policy: str
) -> None:
    """From the rows alone: the charge is never below zero, and at least at the floor when work begins."""
    edges = np.cumsum(runs).tolist()
    world = online([(0.0, edges[0]), *zip(edges[1::2], edges[2::2], strict=False), (310.0, 1e6)])
    energy = {"battery_j": battery, "battery_floor": floor, "recharge_w": recharge}
    book = simulate(
        step_s=[1], energy=energy, availability=world, on_disconnect=policy, until_s=350
    )
    charge, since = battery, 0.0
    for row in sorted(book.rows, key=lambda row: row["dispatch_id"]):
        charge = min(battery, charge + recharge * (row["dispatched"] - since))
        assert charge >= max(floor, 0.01) * battery - 1e-6 or row["dispatch_id"] == 0
        charge, since = charge - row["energy"], row["ended"]
        assert charge >= -1e-6
