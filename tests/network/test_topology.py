"""Routes through a graph."""

from typing import Any

import networkx as nx
import pytest

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.topology import Topology
from tests.network.bundles import diamond, edge, named

DOWN, UP = Direction.DOWN, Direction.UP


MS = 1_000_000


def test_routes_take_the_least_latency() -> None:
    topology = Topology.from_graph(diamond(), server="server", access=["a", "b"])
    assert named(topology, "a", DOWN) == [("server", "c"), ("c", "d"), ("d", "a")]
    assert named(topology, "a", UP) == [("a", "d"), ("d", "c"), ("c", "server")]
    assert named(topology, "b", DOWN) == [("server", "b")]
    assert [routes.latency_ns.tolist() for routes in topology.routes] == [[15 * MS, 10 * MS]] * 2


@pytest.mark.parametrize(
    ("changes", "route"),
    [
        # Between equal latencies, the route of fewer links wins, even if it is found later.
        ([("server", "a", 0.015)], [("server", "a")]),
        ([("server", "b", 0.012), ("b", "a", 0.003)], [("server", "b"), ("b", "a")]),
        # Routes go round links that are down.
        ([("c", "d", 0.005, 0)], [("server", "b"), ("b", "a")]),
    ],
)
def test_changed_links_change_the_route(changes: Any, route: list[tuple[str, str]]) -> None:
    graph = diamond()
    for change in changes:
        edge(graph, *change)
    topology = Topology.from_graph(graph, server="server", access=["a"])
    assert named(topology, "a", DOWN) == route


def test_an_undirected_edge_is_two_links() -> None:
    topology = Topology.from_graph(diamond(), server="server", access=["a"])
    assert len(topology.links) == 12
    assert set(topology.route(0, DOWN)).isdisjoint(topology.route(0, UP))
    assert topology.capacity_bps.tolist() == [1e6] * 12


def test_directed_edges_give_each_way_its_own_route() -> None:
    graph = nx.DiGraph()
    edge(graph, "server", "a", capacity="8Mbps")
    edge(graph, "a", "b", "5ms")
    edge(graph, "b", "server")
    topology = Topology.from_graph(graph, server="server", access=["a"])
    assert named(topology, "a", DOWN) == [("server", "a")]
    assert named(topology, "a", UP) == [("a", "b"), ("b", "server")]
    assert topology.routes[UP].latency_ns.tolist() == [15 * MS]
    assert topology.capacity_bps[topology.route(0, DOWN)].tolist() == [8e6]


def test_what_is_wrong_with_a_graph_is_told_all_at_once() -> None:
    graph = nx.Graph()
    edge(graph, "server", "a", capacity=-5)
    graph.add_edge("a", "b", latency_s=0.1)
    edge(graph, "b", "c", latency_s="soon")
    with pytest.raises(UserError) as caught:
        Topology.from_graph(graph, server="hub", access=["a", "z"], where="net.gml")
    text = str(caught.value)
    for expected in (
        "net.gml: capacity_bps of the link server - a: -5 is negative",
        "the link a - b has no capacity_bps",
        "latency_s of the link b - c: 'soon' is not a duration",
        "no node 'hub'",
        "no node 'z'",
    ):
        assert expected in text


def test_access_nodes_that_no_route_reaches_are_refused() -> None:
    graph = diamond()
    edge(graph, "x", "y")
    edge(graph, "b", "y", capacity=0)
    with pytest.raises(UserError, match="there is no route from the access node 'x' to the server"):
        Topology.from_graph(graph, server="server", access=["a", "x"])


def test_parallel_edges_are_refused() -> None:
    with pytest.raises(UserError, match="parallel"):
        Topology.from_graph(nx.MultiGraph(), server="server", access=[])
    with pytest.raises(UserError, match="no access node"):
        Topology.from_graph(diamond(), server="server", access=[])
