"""What holds for every network."""

from __future__ import annotations

from fedsim.network import Direction
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
