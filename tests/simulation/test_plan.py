"""Plans in closed form against one another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.network.static import StaticNetwork
from fedsim.scenario.model import Failures
from fedsim.simulation.plan import Plan, Planner
from fedsim.traces.availability import NEVER
from tests.simulation.harness import make_population, online

S = 1_000_000_000


def planners(
    compute: dict[str, Any], down_bps: list[float], up_bps: list[float]
) -> tuple[Planner, Planner]:
    """One that knows what an undisturbed dispatch takes, and one that must go through its phases each time.

    A client that sends partial work does so for a deadline alone, so without one both have to agree.
    """
    population = make_population(
        [0.5, 2.0],
        StaticNetwork(latency_s=0.25, down_bps=down_bps, up_bps=up_bps, clients=2),
        online([(0, 40), (60, 400)], [(0, 1000)]),
        compute=compute,
    )
    quick, general = (
        Planner(population, Failures(), 1e6, 2e6, send_partial_work=partial, seed=3)
        for partial in (False, True)
    )
    return quick, general


@pytest.mark.parametrize(
    "compute", [{}, {"jitter": {"cv": 0.4}}, {"stragglers": {"probability": 0.5}}]
)
@settings(max_examples=60, deadline=None)
@given(
    client=st.integers(0, 1),
    sequence=st.integers(0, 3),
    start_ns=st.one_of(st.integers(0, 39 * S), st.integers(60 * S, 399 * S)),
    steps=st.integers(1, 30),
    cut_ns=st.one_of(st.just(NEVER), st.integers(400 * S, 500 * S)),
    rates=st.lists(st.sampled_from([0.0, 1e6, 8e6, float("inf")]), min_size=4, max_size=4),
)
def test_an_undisturbed_dispatch_takes_what_its_phases_take(
    compute: dict[str, Any],
    client: int,
    sequence: int,
    start_ns: int,
    steps: int,
    cut_ns: int,
    rates: list[float],
) -> None:
    quick, general = planners(compute, rates[:2], rates[2:])
    plan = quick.plan(client, sequence, start_ns, steps, None, cut_ns)
    assert isinstance(plan, Plan)
    assert plan == general.plan(client, sequence, start_ns, steps, None, cut_ns)


def test_an_undisturbed_dispatch_by_hand() -> None:
    quick, _ = planners({}, [8e6, 8e6], [8e6, 8e6])
    # 1 MB at 8 Mbit/s takes 1 s and 0.25 s of latency; 4 steps of 2 s; 2 MB take 2.25 s.
    plan = quick.plan(1, 0, 10 * S, 4, None)
    assert plan == (
        *(round(21.5 * S), True, round(11.25 * S), round(19.25 * S), 4, 1e6, 2e6),
        *(round(1.25 * S), 8 * S, round(2.25 * S)),
    )
