"""Energy of a dispatch, and when a battery lets its device work again."""

from __future__ import annotations

from fedsim.network.static import StaticNetwork
from fedsim.simulation.energy import EnergyUse
from fedsim.simulation.life import Plan
from tests.simulation.harness import make_population

S = 1_000_000_000
PLAN = Plan(9 * S, True, 2 * S, 6 * S, 4, 1.0, 1.0, 2 * S, 4 * S, 3 * S)
"""2 s at 1 W, 4 s at 2 W, 3 s at 3 W: 19 J."""


def use(**energy: float) -> EnergyUse:
    network = StaticNetwork(clients=1, latency_s=0.0, down_bps=8e6, up_bps=8e6)
    return EnergyUse(make_population([1.0], network, energy=energy or None))


def test_joules_by_phase() -> None:
    assert use().joules(0, PLAN) == 19


def test_without_a_battery_a_client_is_free_at_once() -> None:
    energy = use()
    energy.begin(0, 0)
    assert energy.end(0, 9 * S, PLAN) == 9 * S


def test_a_low_battery_recharges_to_its_floor_first() -> None:
    """20 J, of which 1 J is left: 9 J to the floor of 10 J take 4.5 s at 2 W."""
    energy = use(battery_j=20.0, battery_floor=0.5, recharge_w=2.0)
    energy.begin(0, 0)
    assert energy.end(0, 9 * S, PLAN) == round(13.5 * S)
