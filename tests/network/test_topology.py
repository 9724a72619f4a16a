"""Graphs, routes and attachment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from pydantic import TypeAdapter

from fedsim.errors import UserError
from fedsim.network.base import Direction, NetworkContext
from fedsim.network.graphs import AnyGraph, read_graph
from fedsim.network.topology import Topology

DOWN, UP = Direction.DOWN, Direction.UP
MS = 1_000_000


def context_of(folder: Path = Path(), clients: int = 10, seed: int = 0) -> NetworkContext:
    return NetworkContext(clients, None, np.arange(clients), seed, folder)


def make(spec: dict[str, Any], folder: Path = Path(), seed: int = 0) -> Topology:
    return TypeAdapter(AnyGraph).validate_python(spec).topology(context_of(folder, seed=seed))


def named(topology: Topology, access: str, direction: Direction) -> list[tuple[str, str]]:
    route = topology.route(topology.access.index(access), direction)
    return [topology.links[link] for link in route]


def edge(graph: Any, one: str, other: str, latency_s: float = 0.01, capacity: Any = 1e6) -> None:
    graph.add_edge(one, other, latency_s=latency_s, capacity_bps=capacity)


def diamond() -> Any:
    """From a to the server: 2 x 10 ms by b, 1 x 25 ms directly, 3 x 5 ms by c and d."""
    graph = nx.Graph()
    edge(graph, "server", "b")
    edge(graph, "b", "a")
    edge(graph, "server", "a", 0.025)
    edge(graph, "server", "c", 0.005)
    edge(graph, "c", "d", 0.005)
    edge(graph, "d", "a", 0.005)
    return graph


def test_routes_take_the_least_latency() -> None:
    topology = Topology.from_graph(diamond(), server="server", access=["a", "b"])
    assert named(topology, "a", DOWN) == [("server", "c"), ("c", "d"), ("d", "a")]
    assert named(topology, "a", UP) == [("a", "d"), ("d", "c"), ("c", "server")]
    assert named(topology, "b", DOWN) == [("server", "b")]
    assert [routes.latency_ns.tolist() for routes in topology.routes] == [[15 * MS, 10 * MS]] * 2


def test_between_equal_latencies_the_route_of_fewer_links_wins() -> None:
    graph = diamond()
    edge(graph, "server", "a", 0.015)
    topology = Topology.from_graph(graph, server="server", access=["a"])
    assert named(topology, "a", UP) == [("a", "server")]


def test_routes_go_round_links_that_are_down() -> None:
    graph = diamond()
    edge(graph, "c", "d", 0.005, capacity=0)
    topology = Topology.from_graph(graph, server="server", access=["a"])
    assert named(topology, "a", DOWN) == [("server", "b"), ("b", "a")]


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
    with pytest.raises(UserError, match="no route joins the access node 'x' to the server"):
        Topology.from_graph(graph, server="server", access=["a", "x"])


def test_parallel_edges_are_refused() -> None:
    with pytest.raises(UserError, match="parallel"):
        Topology.from_graph(nx.MultiGraph(), server="server", access=[])
    with pytest.raises(UserError, match="no access node"):
        Topology.from_graph(diamond(), server="server", access=[])


def test_generated_trees_and_stars() -> None:
    tree = make(
        {
            "name": "tree",
            "fan_out": [2, 3],
            "capacity": ["1Gbps", "100Mbps"],
            "latency": ["2ms", "8ms"],
        }
    )
    assert tree.access == tuple(f"n{leaf}" for leaf in range(2, 8))
    assert named(tree, "n5", DOWN) == [("server", "n1"), ("n1", "n5")]
    assert tree.capacity_bps[tree.route(3, UP)].tolist() == [1e8, 1e9]
    assert set(tree.routes[UP].latency_ns.tolist()) == {10 * MS}
    star = make({"name": "star", "sites": 4, "capacity": 5e6, "latency": 0})
    assert [named(star, site, UP) for site in star.access] == [
        [(f"n{site}", "server")] for site in range(4)
    ]
    direct = make({"name": "direct"})
    assert (direct.access, direct.route(0, UP)) == (("server",), [])


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "barabasi_albert", "nodes": 30, "links": 2},
        {"name": "waxman", "nodes": 30},
        {"name": "watts_strogatz", "nodes": 30, "neighbors": 6},
    ],
)
def test_random_graphs_follow_the_seed(spec: dict[str, Any]) -> None:
    spec = spec | {"capacity": {"name": "lognormal", "median": "1Gbps", "sigma": 0.5}}
    one, same, other = make(spec), make(spec), make(spec, seed=1)
    assert one.links == same.links
    assert (one.capacity_bps == same.capacity_bps).all()
    assert one.links != other.links
    degree = dict.fromkeys([one.server, *one.access], 0)
    for start, _ in one.links:
        degree[start] += 1
    assert degree["server"] == max(degree.values())
    assert len(np.unique(one.capacity_bps)) == len(one.links) / 2  # one for both ways


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "tree", "fan_out": [2, 3], "capacity": [1e9]}, "1 values for 2 levels"),
        ({"name": "barabasi_albert", "nodes": 3, "links": 5}, "m"),
        ({"name": "waxman", "nodes": 3, "beta": 1e-9}, "no links"),
        ({"name": "file", "path": "absent.gml"}, "no such file"),
    ],
)
def test_graphs_that_cannot_be_made(spec: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        make(spec, tmp_path)


def write_graphml(path: Path) -> None:
    nx.write_graphml(diamond(), path)


def write_gml(path: Path) -> None:
    nx.write_gml(diamond(), path)


def write_edges(path: Path) -> None:
    path.write_text(
        "# a diamond\nserver b 1Mbps 10ms\nb, a, 1e6, 0.01\nserver a 1Mbps 25ms  # direct\n\n"
        "server c 1e6 5ms\nc d 1e6 5ms\nd a 1e6 5ms\n"
    )


@pytest.mark.parametrize(
    ("name", "write"),
    [("net.graphml", write_graphml), ("net.gml", write_gml), ("net.edges", write_edges)],
)
def test_graph_files(name: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / name)
    topology = make({"name": "file", "path": name}, tmp_path)
    assert sorted(topology.access) == ["a", "b", "c", "d"]
    assert named(topology, "a", UP) == [("a", "d"), ("d", "c"), ("c", "server")]
    assert topology.routes[UP].latency_ns[topology.access.index("a")] == 15 * MS


def test_roles_and_defaults_of_a_graph_file(tmp_path: Path) -> None:
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {0: "server", 3: "access"}, "role")
    graph.edges[1, 2]["capacity_bps"] = 5e6
    nx.write_graphml(graph, tmp_path / "line.graphml")
    spec = {"name": "file", "path": "line.graphml", "capacity": "1Gbps", "latency": "1ms"}
    topology = make(spec, tmp_path)
    assert (topology.server, topology.access) == ("0", ("3",))
    assert topology.capacity_bps[topology.route(0, DOWN)].tolist() == [1e9, 5e6, 1e9]
    assert make(spec | {"server": "1", "access": ["2", "3"]}, tmp_path).access == ("2", "3")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "net.edges",
            "a b 1e6 1ms\na c 1e6 1ms d\nb\nb a 1e6 1ms\nb c -1 1ms\n",
            "net.edges:2: .*\n",
        ),
        ("net.graphml", "<graphml><edge", "cannot be read"),
        ("net.gml", "graph [ node [ ", "cannot be read"),
        ("net.json", "{}", "no known ending"),
        ("net.txt", "a b 1e6 1ms", "names no server"),
    ],
)
def test_bad_graph_files(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        make({"name": "file", "path": name}, tmp_path)


def test_every_bad_line_of_an_edge_list_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "net.edges"
    path.write_text("a b 1e6 1ms\na c 1e6 1ms d\nb\nb a 1e6 1ms\nb c -1 1ms\n")
    with pytest.raises(UserError) as caught:
        read_graph(path)
    assert [
        line.partition(":")[2].partition(":")[0] for line in str(caught.value).splitlines()
    ] == [
        "2",
        "3",
        "4",
        "5",
    ]


def test_the_british_key_of_a_small_world_is_still_read() -> None:
    spec = {"name": "watts_strogatz", "nodes": 30}
    american, british = make(spec | {"neighbors": 6}), make(spec | {"neighbours": 6})
    assert american.links == british.links
    assert len(american.links) == 30 * 6
