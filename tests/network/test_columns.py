"""Rates and latencies: constant, drawn, or from the trace bundle."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.composition.needs import missing_tables
from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.parts.catalog import CATALOG
from tests.network.bundles import NETWORK, build, context_of, rates

DOWN, UP = Direction.DOWN, Direction.UP


def test_latency_of_the_bundle_is_half_the_round_trip() -> None:
    context = context_of({"network": NETWORK}, rows=[1, 1])
    assert build(context, "static", latency="bundle").latency_ns(1) == 30_000_000
    with pytest.raises(
        UserError, match=r"round-trip time for 2 of 3 clients.*client 0, device 'a'"
    ):
        build(context_of({"network": NETWORK}), "static", latency="bundle")
    no_rtt = {key: column for key, column in NETWORK.items() if key != "rtt_s"}
    with pytest.raises(UserError, match="round-trip time for 3 of 3 clients"):
        build(context_of({"network": no_rtt}), "static", latency="bundle")


def test_latency_of_the_rtt_matrix() -> None:
    matrix = {
        "src": ["north", "paris", "paris", "south", "north"],
        "dst": ["paris", "north", "south", "north", "rome"],
        "rtt_s": [0.02, 0.04, 0.25, 7.0, None],
    }
    context = context_of({"network": NETWORK, "rtt_matrix": matrix}, rows=[0, 1, 0])
    source = {"name": "rtt_matrix", "server": "paris"}
    network = build(context, "static", latency=source)
    assert [network.latency_ns(client) for client in range(3)] == [
        15_000_000,
        125_000_000,
        15_000_000,
    ]
    with pytest.raises(UserError, match="no round-trip time to 'rome'"):
        build(context, "static", latency=source | {"server": "rome"})
    with pytest.raises(UserError, match="round-trip time for 1 of 3 clients"):
        build(context_of({"network": NETWORK, "rtt_matrix": matrix}), "static", latency=source)


def test_drawn_rates_are_lognormal_and_follow_the_client() -> None:
    source = {"name": "lognormal", "median": "10Mbps", "sigma": 0.5}
    latency = {"name": "lognormal", "median": "40ms", "sigma": 0.25}
    few = build(context_of(clients=5), "static", down=source, up=source, latency=latency)
    many = build(context_of(clients=4000), "static", down=source, up=source, latency=latency)
    assert rates(few, DOWN, 5) == rates(many, DOWN, 5)
    down, up = np.log(rates(many, DOWN, 4000)), np.log(rates(many, UP, 4000))
    assert np.median(down) == pytest.approx(np.log(1e7), abs=0.03)
    assert down.std() == pytest.approx(0.5, abs=0.02)
    assert abs(np.corrcoef(down, up)[0, 1]) < 0.05
    delay = np.log([many.latency_ns(client) for client in range(4000)])
    assert np.median(delay) == pytest.approx(np.log(4e7), abs=0.02)
    assert delay.std() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("name", "params", "table"),
    [
        ("static", {}, "network"),
        ("static", {"down": 1e6, "latency": "bundle"}, "network"),
        ("static", {"down": 1e6, "variation": "bundle"}, "network"),
        ("static", {"down": 1e6, "latency": {"name": "rtt_matrix", "server": "x"}}, "rtt_matrix"),
        ("shared", {}, "network"),
        ("traced", {}, "network_series"),
    ],
)
def test_tables_are_asked_for_where_there_are_none(
    name: str, params: dict[str, Any], table: str
) -> None:
    for tables in (None, {}):
        bundle = context_of(tables).bundle
        parameters = CATALOG.parts("network")[name].Params(**params)
        problems = list(missing_tables(parameters, bundle, "devices.network"))
        message = f"there is no {table} table to read"
        message += f" in the trace bundle {bundle.manifest.name}" if bundle else ""
        assert message in [problem.message for problem in problems]


def test_what_the_bundle_does_not_know_is_named() -> None:
    unknown = NETWORK | {"bandwidth_bps": [1e6, None, 6e6, 4e6]}
    with pytest.raises(
        UserError, match="downlink for 1 of 3 clients; the first is client 0, device 'a'"
    ):
        build(context_of({"network": unknown}), "static")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"down": {"name": "uniform"}}, "is not a rate: give a rate such as 20Mbps"),
        ({"latency": [1]}, "is not a latency: give a duration such as 40ms"),
    ],
)
def test_parameters_are_checked(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CATALOG.parts("network")["static"].Params(**params)
