"""What holds for every network."""

from typing import Any

import pytest

from fedsim.network.base import Direction
from tests.network.bundles import ASSIGN, NETWORK, SERIES, build, context_of

DOWN, UP = Direction.DOWN, Direction.UP


def test_nominal_rates_of_all_clients_are_those_of_each() -> None:
    tables = {"network_series": SERIES, "network_assign": ASSIGN, "network": NETWORK}
    star = {"name": "star", "sites": 2, "capacity": "3Mbps", "latency": 0}
    for network in (
        build(context_of(tables), "static", up_ratio=0.5),
        build(context_of(tables), "traced", up_ratio=0.5),
        build(context_of(tables), "shared", server_up="5Mbps"),
        build(context_of(tables), "shared", topology=star),
    ):
        for direction in Direction:
            each = [network.rate_bps(client, direction) for client in range(3)]
            assert network.rates_bps(direction).tolist() == each


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("static", {"up_ratio": 0.5}),
        ("static", {"down": "8Mbps", "up": "2Mbps"}),
        ("traced", {"up_ratio": 0.5}),
        ("shared", {"server_up": "1Gbps"}),
    ],
)
def test_half_the_bandwidth_takes_twice_as_long(kind: str, params: dict[str, Any]) -> None:
    tables = {"network_series": SERIES, "network_assign": ASSIGN, "network": NETWORK}
    full, half = (
        build(context_of(tables), kind, **params, rate_factor=factor) for factor in (1, 0.5)
    )
    for direction in Direction:
        rates = full.rates_bps(direction)
        assert (rates > 0).all()
        assert half.rates_bps(direction).tolist() == (rates / 2).tolist()
