"""Generated graphs and graph files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from pydantic import ValidationError

import fedsim
from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.graphs import read_graph
from tests.composition.worlds import quadratic
from tests.network.bundles import diamond, make, named

DOWN, UP = Direction.DOWN, Direction.UP


MS = 1_000_000


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
        ({"name": "tree", "fan_out": [1000, 1000]}, "the tree has 1,000,000 leaves"),
        ({"name": "star", "sites": 10**9}, "less than or equal to 100000"),
        ({"name": "barabasi_albert", "nodes": 3, "links": 5}, "m"),
        ({"name": "waxman", "nodes": 3, "beta": 1e-9}, "no links"),
        ({"name": "waxman", "nodes": 2100}, "is too large"),
        ({"name": "barabasi_albert", "nodes": 10_000, "links": 100}, "is too large"),
        ({"name": "watts_strogatz", "nodes": 100_000, "neighbors": 50_000}, "is too large"),
        ({"name": "file", "path": "absent.gml"}, "no such file"),
        ({"name": "file", "path": "/dev/null"}, "is not a regular file"),
        ({"name": "file", "path": "net.graphml"}, "cannot be read"),
        ({"name": "file", "path": "twice.graphml"}, "one <edge> has the key 'k' twice"),
        ({"name": "file", "path": "nodes.graphml"}, "one <graph> has the key 'a' twice"),
        ({"name": "file", "path": "net.gml"}, "two nodes are labeled 1"),
        ({"name": "file", "path": "net.json"}, "is not a known extension"),
        ({"name": "file", "path": "net.txt"}, "has 0 server nodes"),
    ],
)
def test_graphs_that_cannot_be_made(spec: dict[str, Any], message: str, tmp_path: Path) -> None:
    for name, text in (
        ("net.graphml", "<graphml><edge"),
        (
            "twice.graphml",
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="edge" attr.name="capacity_bps"'
            ' attr.type="double"/><graph edgedefault="undirected"><node id="a"/><node id="b"/><edge source="a" target='
            '"b"><data key="k">1</data><data key="k">2</data></edge></graph></graphml>',
        ),
        (
            "nodes.graphml",
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected"><node id="a"/>'
            '<node id="a"/></graph></graphml>',
        ),
        ("net.gml", 'graph [ node [ id 1 label "1" ] node [ id 2 label 1 ] ]'),
        ("net.json", "{}"),
        ("net.txt", "a b 1 1s"),
    ):
        (tmp_path / name).write_text(text)
    with pytest.raises((UserError, ValidationError), match=message):
        make(spec, tmp_path)


def write_graphml(path: Path) -> None:
    nx.write_graphml(diamond(), path)


def write_gml(path: Path) -> None:
    nx.write_gml(diamond(), path)


def write_gml_by_others(path: Path) -> None:
    write_gml(path)
    text = path.read_text()
    for number, other in (
        ("0.025", "25e-3"),
        ("0.01", "1E-2"),
        ("0.005", "5e-03"),
        ("1000000.0", "1e+06"),
    ):
        assert number in text
        text = text.replace(number, other)
    path.write_text(text)


def write_edges(path: Path) -> None:
    path.write_text(
        "# a diamond\nserver b 1Mbps 10ms\nb, a, 1e6, 0.01\nserver a 1Mbps 25ms  # direct\n\n"
        "server c 1e6 5ms\nc d 1e6 5ms\nd a 1e6 5ms\n"
    )


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("net.graphml", write_graphml),
        ("net.gml", write_gml),
        ("net.gml", write_gml_by_others),
        ("net.edges", write_edges),
    ],
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
    "own", ["capacity", "Bandwidth", "delay_ms", "latency", "link_capacity", "Packet_Loss"]
)
def test_a_default_does_not_replace_an_attribute_of_another_name(own: str, tmp_path: Path) -> None:
    graph = nx.path_graph(["server", "a", "b"])
    graph.edges["a", "b"][own] = 5
    nx.write_graphml(graph, tmp_path / "line.graphml")
    spec = {"name": "file", "path": "line.graphml", "capacity": "1Gbps", "latency": "1ms"}
    right = "latency_s" if own[:2] in ("de", "la") else "capacity_bps"
    right = "loss" if "Loss" in own else right
    message = rf"line.graphml: the link a - b has {own}, but no {right}\n  rename it to {right}"
    with pytest.raises(UserError, match=message):
        make(spec, tmp_path)
    graph.edges["a", "b"][right] = 0.5
    nx.write_graphml(graph, tmp_path / "line.graphml")
    assert make(spec, tmp_path).access == ("a", "b")


def test_every_bad_line_of_an_edge_list_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "net.edges"
    path.write_text("a b 1e6 1ms\na c 1e6 1ms d\nb\nb a 1e6 1ms\nb c -1 1ms\n")
    with pytest.raises(UserError) as caught:
        read_graph(path)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4", "5"]
    path.write_text("server a 100,5\n")
    with pytest.raises(UserError, match=r":1: decimal numbers .* as in 100\.5"):
        read_graph(path)
    path.write_text("a,b,,1ms\n")
    with pytest.raises(UserError, match=":1: has an empty cell"):
        read_graph(path)
    path.write_bytes("a Köln 1e6 1ms\n".encode("latin-1"))
    with pytest.raises(UserError, match=":1: is not a text file"):
        read_graph(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_an_edge_list_of_a_windows_editor(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "net.edges"
    path.write_bytes("server,a,1e6,1ms,\r\n # more\r\nserver,b,1e6\r\n".encode(encoding))
    assert [*read_graph(path)] == ["server", "a", "b"]


def test_the_path_of_a_graph_is_absolute_in_a_resolved_scenario(tmp_path: Path) -> None:
    """So that a run can be resumed from its folder."""
    write_edges(tmp_path / "net.edges")
    scenario = quadratic([[0]])
    scenario["devices"]["network"] = {
        "name": "shared",
        "down": "1Mbps",
        "topology": {"name": "file", "path": "net.edges"},
    }
    (tmp_path / "scenario.yaml").write_text(json.dumps(scenario))
    loaded = fedsim.read_scenario(tmp_path / "scenario.yaml")
    topology = loaded.resolved()["devices"]["network"]["topology"]
    assert topology["path"] == str(tmp_path / "net.edges")
