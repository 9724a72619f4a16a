"""Shared links from the parameters of a scenario."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.shared import SharedNetwork
from tests.network.bundles import MB, NETWORK, S, build, context_of, rates

DOWN, UP = Direction.DOWN, Direction.UP


def test_shared_kind() -> None:
    topology = {"name": "tree", "fan_out": [1, 2], "capacity": "6Mbps", "latency": "5ms"}
    network = build(
        context_of({"network": NETWORK}),
        "shared",
        topology=topology,
        attach=["n1", "n2", "n1"],
        server_up="3Mbps",
        latency="10ms",
    )
    assert isinstance(network, SharedNetwork)
    assert rates(network, DOWN) == [6e6, 6e6, 4e6]
    assert rates(network, UP) == [3e6, 1e6, 3e6]
    assert network.latency_ns(0) == 20_000_000
    # Clients 0 and 2 meet on n1, all three on the one core link.
    routes = [set(network.route(client, DOWN)) for client in range(3)]
    assert [len(routes[0] & routes[2]), len(routes[0] & routes[1])] == [3, 2]


def test_shared_attachment() -> None:
    star = {"name": "star", "sites": 2}
    base = {"down": 1e6, "latency": 0}
    network = build(context_of(), "shared", topology=star, attach="round_robin", **base)
    assert network.route(0, UP)[1] == network.route(2, UP)[1] != network.route(1, UP)[1]
    many, few = (
        build(context_of(clients=clients), "shared", topology=star, attach="random", **base)
        for clients in (3000, 100)
    )
    drawn = [many.route(client, UP)[1] for client in range(3000)]
    assert min(Counter(drawn).values()) > 1400
    # A client's node depends on the client alone, not on how many there are.
    links = [network.route(client, UP)[1] for network in (many, few) for client in range(100)]
    first = links[0], links[100]
    assert [link == first[0] for link in links[:100]] == [link == first[1] for link in links[100:]]
    with pytest.raises(UserError, match="2 access nodes for 3 clients"):
        build(context_of(), "shared", topology=star, attach=["n0", "n1"], **base)


def test_shared_attachment_by_group(tmp_path: Path) -> None:
    (tmp_path / "sites.txt").write_text("server north 1Gbps 5ms\nserver south 1Gbps 9ms\n")
    topology = {"name": "file", "path": str(tmp_path / "sites.txt")}
    context = context_of({"network": NETWORK}, rows=[1, 0])
    network = build(context, "shared", topology=topology, attach="group", latency=0)
    assert [network.latency_ns(client) for client in range(2)] == [9_000_000, 5_000_000]
    with pytest.raises(UserError, match="client 2 belongs to 'None'"):
        build(context_of({"network": NETWORK}), "shared", topology=topology, attach="group")


def test_default_shared_network_has_only_the_servers_link() -> None:
    network = build(context_of(clients=4), "shared", down=8e6, latency=0, server_down=8e6)
    for client in range(4):
        network.start_transfer(client, client, DOWN, MB, 0)
    assert network.next_event_ns() == 4 * S
    assert network.pop_finished(4 * S) == [0, 1, 2, 3]
