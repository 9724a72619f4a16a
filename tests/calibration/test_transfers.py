"""Latency and transport from transfers of different sizes."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedsim.calibration.estimates import Assumptions, estimate
from fedsim.calibration.prediction import simulated_log
from fedsim.calibration.transfers import Link, _fit, _latency_error, identify, section
from fedsim.network.transports.fluid import Fluid
from fedsim.parts.parameters import Parameters
from fedsim.scenario.loading import load_scenario_dict
from tests.calibration.worlds import TRUTH


@pytest.mark.parametrize("latency_s", [0.03, None])
@pytest.mark.parametrize(
    "transport", [{"name": "fluid"}, {"name": "tcp"}, {"name": "tcp", "connection": "reuse"}]
)
def test_sizes_that_differ_show_the_transport(
    transport: dict[str, Any], latency_s: float | None
) -> None:
    """Models of 0.1, 0.5 and 2 MB over the same links; fluid transport is assumed."""
    logs = []
    for parameters in (25_000, 125_000, 500_000):
        truth = copy.deepcopy(TRUTH)
        truth["task"] = {"name": "timing", "clients": 2, "parameters": parameters}
        truth["devices"]["network"] |= {"transport": transport, "variation": 0.02}
        truth["server"] = {"method": "fedavg"}
        truth["stop"] = {"rounds": 2}
        logs.append(simulated_log(load_scenario_dict(truth, Path.cwd())))
    latencies = None if latency_s is None else np.full(2, latency_s)
    assumptions = Assumptions(Fluid(Parameters()), latencies)
    estimates = estimate(pd.concat(logs), list("01"), assumptions)
    assert section(estimates.transport) == transport
    assert estimates.latency_s == pytest.approx([0.03] * 2, rel=0.2)
    if latency_s is not None:
        assert not [flag for flag in estimates.flags if "about as well" in flag]


def test_two_sizes_cannot_tell_latency_from_slow_start() -> None:
    """8 Mbit/s and 50 ms: 1 MB takes 1.05 s, 2 MB 2.05 s, as with slow start and a shorter latency."""
    link = Link(np.array([1e6, 2e6] * 5), np.array([1.05, 2.05] * 5))
    links = identify([(link, link)], Fluid(Parameters()), None)
    assert links.latency_s == pytest.approx([0.05])
    assert links.transport.name == "fluid"
    assert links.flags == (
        "The transfers fit tcp (connection: reuse) and tcp about as well as fluid; the latter is used.",
    )


def test_the_error_of_the_latency_is_that_of_least_squares() -> None:
    """8 Mbit/s and 50 ms, rates that vary by 2%: ``log rate = log 8 S - log (T - latency)`` is nearly linear."""
    generator = np.random.default_rng(3)
    sizes = np.array([1e5, 5e5, 2e6] * 2)
    fluid = Fluid(Parameters())
    pair = [
        Link(sizes, 0.05 + sizes * 8 / (8e6 * (1 + 0.02 * generator.standard_normal(6))))
        for _ in range(2)
    ]
    latency_s, least = _fit([link.sample() for link in pair], fluid, None)
    changes = [1 / (link.spans_s - latency_s) for link in pair]
    squares = sum(((change - change.mean()) ** 2).sum() for change in changes)
    error = _latency_error([link.sample() for link in pair], fluid, latency_s, least)
    assert error == pytest.approx(np.sqrt(least / (12 - 3) / squares), rel=0.1)
    assert abs(latency_s - 0.05) < 3 * error < 0.05


def test_a_longer_latency_means_a_higher_rate_for_the_same_duration() -> None:
    """1 MB in 1.05 s: ``rate = 8 MB / (1.05 s - latency)``, so its relative change is 1 / (1.05 s - latency)."""
    link = Link(np.array([1e6]), np.array([1.05]))
    assert link.slope(Fluid(Parameters()), 0.05, 1e-4) == pytest.approx(1.0, rel=1e-3)
    assert link.slope(Fluid(Parameters()), 0.05, 0.0) == 0
