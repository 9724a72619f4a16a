"""Runs with edge servers: times on paper, iterates by hand, and the case of one level."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsim
from fedsim.analysis.figures.timeline import timeline
from fedsim.analysis.perfetto import write_perfetto
from fedsim.composition.build import build
from fedsim.composition.build import check_scenario as check
from fedsim.composition.planes import build_server
from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.source import parse_yaml
from fedsim.simulation.story import Server
from tests.composition.worlds import digits, quadratic, sync, timed
from tests.lines import rows
from tests.oracle.compare import write_bundle
from tests.simulation.harness import Book

FREE = {"name": "static", "latency": 0, "down": "1e30", "up": "1e30"}
A, B, LR = np.array([1.0, 2.0, 4.0]), np.array([0.0, 3.0, -1.0]), 0.1

REFUSED = """ditto fedalt fedavg_p fedawe feddyn fedper fedprox fedrep fedsim fedsum fedsum_b fedsum_cr ffa_lora
flexlora flora hetlora lg_fedavg mtgc scaffold scaffold_p streaming_diloco"""
"""Methods that do not work at the cloud alone: with control variates, client state, other local steps, or adapters."""


def through_one_edge(server: dict[str, Any]) -> dict[str, Any]:
    """The same server as the only edge server, with free links to the cloud."""
    inner = {key: server[key] for key in ("method", "selection", "schedule") if key in server}
    outer = {key: value for key, value in server.items() if key not in inner}
    return {**outer, "edges": {"count": 1, "network": FREE, **inner}}


SERVERS = r"""
{selection: {cohort: 4}}
{selection: {cohort: 4}, schedule: {over_selection: 1.5, deadline: 4s, pause: 1s}, method: fedavgm}
{selection: {name: oort, cohort: 4}, method: {name: fedprox, mu: 0.1}, schedule: {stragglers: cut, quorum: 3}}
{schedule: {name: buffered, buffer_size: 3, concurrency: 5}, method: fedbuff}
{schedule: {name: async, concurrency: 5}, method: fedasync}
{schedule: {name: async, next_client: same, timeout: 9s}}
"""


@pytest.mark.parametrize("section", [row[0] for row in rows(SERVERS)])
def test_one_edge_server_with_free_links_is_the_run_without_it(
    section: str, tmp_path: Path
) -> None:
    server = parse_yaml(section, "server").data
    flat = fedsim.run(digits(server=server), tmp_path / "flat")
    edge = fedsim.run(digits(server=through_one_edge(server)), tmp_path / "edge")
    pd.testing.assert_frame_equal(flat.metrics, edge.metrics, check_exact=True)
    # A paused edge server does not fill the slot of the last update.
    begun = flat.dispatches[flat.dispatches["dispatched_s"] < flat.simulated_s]
    pd.testing.assert_frame_equal(begun, edge.dispatches.drop(columns="edge"), check_exact=True)
    one, other = flat.model(), edge.model()
    assert all((one[name] == other[name]).all() for name in one)
    shared = ["version", "time_s", "round", "contributors", "staleness_mean", "staleness_max"]
    pd.testing.assert_frame_equal(flat.aggregations[shared], edge.edge_aggregations[shared])


def simulated(scenario: dict[str, Any]) -> tuple[list[tuple[int, ...]], Server]:
    """The dispatches to devices of a run without a folder (client, start, end and outcome), and its server."""
    world = build(fedsim.read_scenario(scenario))
    book = Book(world.population.power)
    simulation = build_server(world, None, book)
    simulation.run()
    begun = [(one.dispatch.client_id, one.dispatch.dispatched_ns) for one in book.ended]
    ends = [(one.plan.end_ns, int(one.outcome)) for one in book.ended]
    return [(*first, *last) for first, last in zip(begun, ends, strict=True)], simulation.server


@pytest.mark.parametrize(
    "server",
    [
        {**sync(deadline="15s"), "partial_work": "send"},
        sync(over_selection=1.5, quorum=1, grace="3s", stragglers="cut"),
        *(
            {"schedule": name}
            for name in ("ata", "compass", "malenia", "mindflayer", "ringleader", "timely")
        ),
        {"schedule": {"name": "rennala", "batch": 4}},
        {"schedule": {"name": "ringmaster", "threshold": 5}},
        {"schedule": {"name": "tiered", "tiers": 2}},
        {"schedule": {"name": "window", "deadline": "30s"}},
    ],
    ids=lambda server: str(server["schedule"]),
)
def test_schedules_of_an_edge_server_are_those_of_a_server(server: dict[str, Any]) -> None:
    scenario = timed(stop={"rounds": 6}, server={"selection": {"name": "uniform"}, **server})
    flat, server_of_all = simulated(scenario)
    scenario["server"] = through_one_edge(scenario["server"])
    edge, _ = simulated(scenario)
    assert edge == [row for row in flat if row[1] < server_of_all.now_ns]
    # Several, each of which works for the cloud again and again.
    scenario["server"]["edges"] |= {"count": 3, "rounds": 2}
    assert simulated(scenario)[1].version == 6


def test_a_timer_that_falls_due_in_a_pause_waits_for_the_next_model(tmp_path: Path) -> None:
    """Clients 0 and 1 do three rounds of 4 s, and the upload takes 64 s. Client 2, of the second tier, arrives at 10 s;
    client 3 never does, so the tier times out at 50 s, in the pause: a version made there would be lost."""
    network = {"name": "static", "down": "1e30", "up": "1e30", "latency": 0}
    task = {"name": "quadratic", "centers": [1, -1, 3, 2], "curvatures": [1] * 4, "initial": 2}
    scenario = quadratic([], task=task)
    scenario["devices"] = {
        "compute": {"name": "values", "step": [2, 2, 5, 500]},
        "network": network,
    }
    edges = {
        "count": 1,
        "rounds": 3,
        "network": {**network, "up": 1},
        "schedule": {"name": "tiered", "tiers": 2, "timeout": "50s"},
    }
    run = fedsim.run({**scenario, "server": {"edges": edges}, "stop": {"rounds": 2}}, tmp_path)
    assert run.edge_aggregations["time_s"].round(6).tolist() == [4, 8, 12, 76, 80, 84]
    clients = run.dispatches["client_id"].to_numpy()
    assert [clients[ids].tolist() for ids in run.edge_aggregations["contributor_ids"]][3] == [2]


def hierarchy(rounds: int = 2, **edges: Any) -> dict[str, Any]:
    """Edge server 0 with two clients and edge server 1 with one, behind slow links; see the times below."""
    scenario = quadratic([[0]])
    network = {"name": "static", "latency": "500ms", "down": 64, "up": 64}
    return {
        **scenario,
        "devices": {"compute": {"name": "values", "step": [1.0, 2.0, 4.0]}, "network": network},
        "server": {
            "edges": {
                "count": 2,
                "rounds": rounds,
                "network": {"name": "static", "latency": "2s", "down": 32, "up": 16},
                **edges,
            }
        },
        "stop": {"rounds": 2},
    }


@pytest.mark.usefixtures("with_reports")
def test_times_of_two_edge_servers_on_paper(tmp_path: Path) -> None:
    """Rounds of 7 s (client 1: 1.5 + 4 + 1.5) and 11 s (client 2: 1.5 + 8 + 1.5); backhaul of 4 s down, 6 s up.

    A model has 8 bytes. The edge servers finish two rounds at 4 + 14 and 4 + 22, and arrive at 24 and 32 s.
    """
    run = fedsim.run(hierarchy(), tmp_path / "run")
    table = run.edge_dispatches
    names = ["dispatched_s", "downloaded_s", "computed_s", "arrived_s"]
    times = {row[0]: tuple(row[1:]) for row in table[["dispatch_id", *names]].to_numpy()}
    by_edge = dict(zip(table["client_id"], times.values(), strict=False))
    assert {edge: row for edge, row in by_edge.items() if row[0] == 32} == {
        0: (32, 36, 50, 56),
        1: (32, 36, 58, 64),
    }
    assert run.aggregations["time_s"].tolist() == [32, 64]
    assert table["steps_done"].tolist() == [2] * 4
    assert table["bytes_up"].tolist() == [8] * 4
    of_edge = run.edge_aggregations.groupby("edge")["time_s"].apply(list)
    assert of_edge[0] == [11, 18, 43, 50]
    assert of_edge[1] == [15, 26, 47, 58]
    client_1 = run.dispatches[run.dispatches["client_id"] == 1]
    assert client_1["dispatched_s"].tolist() == [4, 11, 36, 43]
    assert run.dispatches.set_index("client_id")["edge"].groupby(level=0).unique().map(
        list
    ).tolist() == [[0], [0], [1]]
    assert run.critical is not None
    assert run.critical["cause"].tolist() == ["download", "compute", "upload"] * 2
    assert run.critical["client_id"].tolist() == [1] * 6
    assert run.edges is not None
    assert run.edges["members"].tolist() == [2, 1]
    assert run.edges["waiting_s"].tolist() == [16, 0]
    figure = timeline(run)
    assert figure.extra["names"] == [f"edge {n}" for n in (0, 1)] + [
        f"client {client}" for client in figure.extra["clients"][2:]
    ]
    columns = {column.key: np.array(column.values) for column in figure.columns}
    first = (columns["name"] == "edge 0") & (columns["dispatched_s"] == 0)
    assert [float(columns[name][first][0]) for name in names] == [0, 4, 18, 24]
    assert columns["waited_s"][first].tolist() == [32]
    assert figure.extra["people"]["updates"][:2].tolist() == [2, 2]
    write_perfetto(run, tmp_path / "timeline.json")
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    of_edge_0 = [event for event in events if (event["pid"], event.get("tid")) == (4, 10_000_000)]
    slices = [(e["name"], e["ts"] / 1e6, e["dur"] / 1e6) for e in of_edge_0 if e["ph"] == "X"]
    assert slices[:5] == [
        ("aggregated", 0, 32),
        ("download", 0, 4),
        ("compute", 4, 14),
        ("upload", 18, 6),
        ("waiting", 24, 8),
    ]
    assert {"name": "edge server 0"} in [event["args"] for event in of_edge_0]


@pytest.mark.parametrize("backhaul", ["static", "shared"])
@pytest.mark.parametrize(
    ("steps", "size", "rounds", "rates", "expected"),
    [
        # Client 1 works from 2 to 10 s, past the deadline at 7 s; the model of the cloud is there at 10 s, too.
        ([[2, 6]], 25, 1, ("800bps", "800bps", "400bps", "800bps"), [{2: [0, 1], 10: [0, 1]}]),
        # From 11 s, the clients need 5, 9 and 7 s; the edge server sends from 16 s and has the next model at 20 s.
        (
            [[1, 3, 2], [2, 2, 1]],
            6,
            3,
            ("192bps", "96bps", "192bps", "64bps"),
            [
                {1: [0, 1, 2], 6: [0], 11: [0, 1, 2], 20: [0, 1, 2], 25: [0], 30: [0, 1, 2]},
                {1: [3, 4, 5], 6: [5], 11: [3, 4, 5], 20: [3, 4, 5], 25: [5], 30: [3, 4, 5]},
            ],
        ),
    ],
)
def test_late_updates_that_arrive_with_the_model_of_the_cloud(
    steps: list[list[int]],
    size: int,
    rounds: int,
    rates: tuple[str, ...],
    expected: list[dict[int, list[int]]],
    backhaul: str,
    tmp_path: Path,
) -> None:
    """Their clients take part in the round that begins then, as at a server without edge servers."""
    per_step = [step for of_edge in steps for step in of_edge]
    down, up, backhaul_down, backhaul_up = rates
    scenario = {
        "task": {"name": "timing", "clients": len(per_step), "parameters": size},
        "training": {"local_steps": 1 if rounds == 1 else 2},
        "devices": {
            "compute": {"name": "values", "step": per_step},
            "network": {"name": "static", "latency": 0, "down": down, "up": up},
        },
        "server": {
            "edges": {
                "count": len(steps),
                "rounds": rounds,
                "schedule": {"name": "sync", "deadline": "5s"},
                "network": {
                    "name": backhaul,
                    "latency": 0,
                    "down": backhaul_down,
                    "up": backhaul_up,
                },
            }
        },
        "stop": {"rounds": 2},
    }
    dispatches = fedsim.run(scenario, tmp_path / "run").dispatches
    for edge, at in enumerate(expected):
        begun = dispatches[dispatches["edge"] == edge].groupby("dispatched_s")["client_id"]
        assert {time_s: sorted(clients) for time_s, clients in begun} == at


def test_weights_of_clients_that_move_are_real_numbers(tmp_path: Path) -> None:
    """Of 30 s, client 2 is 3 s at edge server 0 and 27 s at 1; one sample each, one step per model of the cloud.

    So the edge servers weigh 1.1 and 1.9. Client 2 makes the first step, of 1 s, for edge server 0.
    """
    (tmp_path / "edges.csv").write_text("client,edge,time_s\n0,a,0\n1,b,0\n2,a,0\n2,b,3\n")
    scenario = quadratic([[0, 1, 2]])
    scenario["training"]["local_steps"] = 1
    scenario["devices"] = {"compute": {"name": "values", "step": 1}, "network": FREE}
    members = {"name": "file", "path": str(tmp_path / "edges.csv")}
    scenario["server"] = {"edges": {"rounds": 1, "members": members, "network": FREE}}
    stop = {"rounds": 1, "simulated_time": 30}
    run = fedsim.run({**scenario, "stop": stop}, tmp_path / "run")
    step = 1 - LR * A * (1 - B)
    expected = (1.1 * (step[0] + step[2]) / 2 + 1.9 * step[1]) / 3
    assert float(run.model()["x"]) == pytest.approx(expected, rel=1e-15)
    assert run.edges is not None
    assert run.edges["samples"].tolist() == pytest.approx([1.1, 1.9], rel=1e-15)


def test_over_selection_at_the_cloud(tmp_path: Path) -> None:
    """Of the two edge servers above, the cloud takes the first, at 24 s; the other is late, at 32 s, and at work until
    then. The second round is that of edge server 0 alone, until 48 s."""
    scenario = hierarchy()
    scenario["server"] |= {
        "selection": {"name": "uniform", "cohort": 1},
        "schedule": {"name": "sync", "over_selection": 2},
    }
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.aggregations["time_s"].tolist() == [24, 48]
    rows = run.edge_dispatches.sort_values(["client_id", "dispatched_s"])
    assert rows["outcome"].tolist() == ["aggregated", "aggregated", "late"]
    assert rows["arrived_s"].tolist() == [24, 48, 32]


def local(x: float, client: int) -> float:
    return float(B[client] + (1 - LR * A[client]) ** 2 * (x - B[client]))


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_iterates_are_those_of_hierfavg(rounds: int, tmp_path: Path) -> None:
    """Liu et al. 2020, Algorithm 1: edge averages in every round, the cloud's average, by clients' data, after k."""
    run = fedsim.run(hierarchy(rounds), tmp_path / "run")
    x = 1.0
    for _ in range(2):
        models = []
        for members in ([0, 1], [2]):
            y = x
            for _ in range(rounds):
                y = float(np.mean([local(y, client) for client in members]))
            models.append(y)
        x = (2 * models[0] + models[1]) / 3
    (model,) = run.model().values()
    assert float(model) == pytest.approx(x, abs=1e-15)


def test_one_round_per_dispatch_is_fedavg(tmp_path: Path) -> None:
    """With k = 1 and all clients, the mean of means by data is the mean; sums are in another order, so not its bits."""
    server = {"selection": {"name": "uniform"}}
    flat = fedsim.run(digits(server=server), tmp_path / "flat")
    edges = {"count": 4, "members": "random", "network": FREE}
    edge = fedsim.run(digits(server={"edges": edges}), tmp_path / "edge")
    np.testing.assert_allclose(flat.metrics["time_s"], edge.metrics["time_s"], rtol=0, atol=0)
    np.testing.assert_allclose(flat.metrics["loss"], edge.metrics["loss"], rtol=1e-5)
    summary = fedsim.compare([flat.path, edge.path]).summary.set_index("label")
    (of_edge,) = summary.dropna(subset="edge_rounds").to_dict("records")
    moved = edge.edge_dispatches[["bytes_down", "bytes_up"]].to_numpy().sum()
    assert of_edge["backhaul_bytes"] == moved
    assert of_edge["edge_rounds"] == len(edge.edge_dispatches)
    assert of_edge["edge_gini"] == 0
    assert sorted(edge.clients["edge"]) == sorted([0, 1, 2, 3] * 3)
    assert edge.clients["edge"].tolist() != sorted(edge.clients["edge"])


def test_a_shared_backhaul_is_fluid(tmp_path: Path) -> None:
    """Models of 64 bit on a link of 64 bit/s: both downloads share it until 2 s; the rounds take 2 and 2.5 s.

    Edge server 0 uploads alone from 4 to 4.5 s; both share the link until 5.5 s, when it is done; the other is at 6 s.
    """
    scenario = hierarchy(rounds=1)
    link = {"name": "shared", "latency": 0, "down": "1e30", "up": "1e30"}
    scenario["server"]["edges"]["network"] = {**link, "server_down": 64, "server_up": 64}
    scenario["devices"] = {"compute": {"name": "values", "step": [1, 1, 1.25]}, "network": FREE}
    run = fedsim.run({**scenario, "stop": {"rounds": 1}}, tmp_path / "run")
    times = run.edge_dispatches.sort_values("client_id")
    assert times["downloaded_s"].tolist() == [2, 2]
    assert times["computed_s"].tolist() == [4, 4.5]
    assert times["arrived_s"].tolist() == [5.5, 6]


@pytest.mark.parametrize("on_end", ["unavailable", "wrap", "hold"])
@pytest.mark.parametrize(
    ("policy", "outcomes", "ends", "made"),
    [
        # Down at 10 s in its first round, it is given the model again when the round of the cloud ends at 24 s.
        ("drop", ["dropped", "aggregated"], [10, 56], [39, 50]),
        # Its first round fails at 10 s, when its client is lost; the second begins at 30 s.
        ("pause", ["aggregated"], [47], [41]),
        # Its client works on; the backhaul is down, but not when it uploads at 26 s.
        ("finish", ["aggregated"], [32], [15, 26]),
    ],
)
def test_an_edge_server_that_fails(
    policy: str,
    outcomes: list[str],
    ends: list[float],
    made: list[float],
    on_end: str,
    tmp_path: Path,
) -> None:
    """As on paper above, but edge server 1 is down from 10 to 12 s, and with ``pause`` until 30 s."""
    up_again = {"drop": 12, "pause": 30, "finish": 12}[policy]
    second = 10**9
    write_bundle(
        {
            "devices": [{"window": (0, 1000 * second)}] * 2,
            "availability": [
                [0, 0, 1000 * second, 1],
                [1, 0, 10 * second, 1],
                [1, up_again * second, 1000 * second, 1],
            ],
            "on_end": on_end,
        },
        tmp_path / "trace",
    )
    scenario = hierarchy()
    scenario["server"]["edges"]["availability"] = {
        "name": "trace",
        "on_disconnect": policy,
        "trace": str(tmp_path / "trace"),
    }
    scenario["stop"] = {"simulated_time": 62}
    run = fedsim.run(scenario, tmp_path / "run")
    table = run.edge_dispatches
    rows = table[(table["client_id"] == 1) & (table["outcome"] != "unfinished")]
    assert rows["outcome"].tolist()[: len(outcomes)] == outcomes
    assert rows["ended_s"].tolist()[: len(ends)] == ends
    versions = run.edge_aggregations
    assert versions[versions["edge"] == 1]["time_s"].tolist()[: len(made)] == made
    # Nobody goes offline because the run ends.
    assert not (run.dispatches["cause"] == "offline")[run.dispatches["ended_s"] >= 62].any()


def test_the_nearest_edge_servers_of_a_graph(tmp_path: Path) -> None:
    """Client 0 is at x, 1 at y, 2 at z: x is 1 s from a; y is 3 s from a, 2 s from b; z is 4 s from b by way of y.

    Transfers take these routes: a dispatch has latency twice, and 1, 2 and 4 s of work.
    """
    links = ["server a 1 9s", "server b 1 9s", "a x 1 1s", "a y 1 3s", "b y 1 2s", "y z 1 2s"]
    links = [line.replace(" 1 ", " 1000Gbps ") for line in links]
    (tmp_path / "net.edges").write_text("\n".join(links))
    topology = {"name": "file", "path": str(tmp_path / "net.edges"), "access": ["x", "y", "z"]}
    scenario = hierarchy(1, members={"name": "nearest", "nodes": ["a", "b"]}, network=FREE)
    del scenario["server"]["edges"]["count"]
    scenario["devices"] = {
        "compute": {"name": "values", "step": [0.5, 1, 2]},
        "network": {**FREE, "name": "shared", "topology": topology},
    }
    run = fedsim.run({**scenario, "stop": {"rounds": 1}}, tmp_path / "run")
    assert run.clients["edge"].tolist() == [0, 1, 1]
    assert run.edges is not None
    assert run.edges["name"].tolist() == ["a", "b"]
    times = run.dispatches.sort_values("client_id")
    assert times["downloaded_s"].tolist() == [1, 2, 4]
    assert times["arrived_s"].tolist() == [3, 6, 12]


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        ("client,edge\n0,b\n1,a\n2,b\n", [1, 0, 1]),
        ("client,edge,latency_s\n0,a,0.5\n0,b,0.2\n1,b,0.3\n1,a,0.1\n2,b,9\n", [1, 0, 1]),
        ("device_id,edge\ndevice2,b\nother,a\ndevice0,b\ndevice1,a\n", [1, 0, 1]),
    ],
    ids=["clients", "latencies", "devices"],
)
def test_members_are_read_from_a_file(rows: str, at: list[int], tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(rows)
    write_bundle({"devices": [{"window": (0, 10**12)}] * 3, "on_end": "wrap"}, tmp_path / "trace")
    members = {"name": "file", "path": str(tmp_path / "edges.csv")}
    scenario = hierarchy(1, members=members, network=FREE)
    del scenario["server"]["edges"]["count"]
    trace = str(tmp_path / "trace")
    scenario["devices"] = {**scenario["devices"], "trace": trace, "availability": "always"}
    run = fedsim.run({**scenario, "stop": {"rounds": 1}}, tmp_path / "run")
    assert run.clients["edge"].tolist() == at


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        *(
            (f"client,edge,{name}\n0,a,0\n0,b,{value}\n", f"edges.csv:3: {name} is")
            for name in ("latency_s", "time_s")
            for value in ("", "nan", "-1", "1e300", "x")
        ),
        ("client,edge\n0,\n", "edges.csv:2: edge is empty"),
        ("client,edge\n0\n", "edges.csv:2: has 1 cell"),
        ("client,time_s,edge\n0,0,a\n0,1,5,b\n", "edges.csv:3: has 4 cells"),
        ("client,edge,edge\n0,a,b\n", "edges.csv:1: has the column 'edge' twice"),
        ("client,time_s,edge\n0,0,a\n0,0,b\n", "edges.csv:2: client is '0' in two rows for the"),
        ("client,edge\n0,0\n1,2\n2,0\n", "edges.csv: numbers its edge servers 0 and 2"),
    ],
)
def test_wrong_rows_of_members_are_refused(rows: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(rows)
    members = {"name": "file", "path": str(tmp_path / "edges.csv")}
    scenario = hierarchy(1, members=members, network=FREE, trace=str(tmp_path / "trace"))
    write_bundle({"devices": [{"window": (0, 10**12)}] * 3, "on_end": "wrap"}, tmp_path / "trace")
    del scenario["server"]["edges"]["count"]
    with pytest.raises(UserError, match=message):
        fedsim.run(scenario, tmp_path / "run")


def test_members_by_device_need_a_trace(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("device_id,edge\n0,a\n")
    members = {"name": "file", "path": str(tmp_path / "edges.csv")}
    scenario = hierarchy(1, members=members, network=FREE)
    del scenario["server"]["edges"]["count"]
    with pytest.raises(UserError, match=r"without a trace.*\n.*the columns client and edge"):
        fedsim.run(scenario, tmp_path / "run")


def test_a_pipe_of_members_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "edges.csv")
    members = {"name": "file", "path": str(tmp_path / "edges.csv")}
    scenario = hierarchy(1, members=members, network=FREE)
    del scenario["server"]["edges"]["count"]
    with pytest.raises(UserError, match="not a regular file"):
        fedsim.run(scenario, tmp_path / "run")


def test_members_by_a_column_of_the_trace_and_links_of_a_trace(tmp_path: Path) -> None:
    ends = [2 * 10**12, 10**12, 2 * 10**12]
    tables = {"devices": [{"window": (0, end)} for end in ends], "on_end": "wrap"}
    write_bundle(tables, tmp_path / "phones")
    lines = [{"down": 64, "up": 32}, {"down": 16, "up": 128}]
    tables = {"devices": [{"window": (0, 10**12)}] * 2, "network": lines, "on_end": "wrap"}
    write_bundle(tables, tmp_path / "lines")
    members = {"name": "column", "column": "window_end_us"}
    links = {"network": {"name": "static", "latency": 0}, "trace": str(tmp_path / "lines")}
    scenario = hierarchy(1, members=members, **links)
    del scenario["server"]["edges"]["count"]
    trace = {"trace": str(tmp_path / "phones"), "availability": "always"}
    run = fedsim.run(
        {**scenario, "devices": {**scenario["devices"], **trace}, "stop": {"rounds": 1}},
        tmp_path / "run",
    )
    assert run.clients["edge"].tolist() == [1, 0, 1]
    # The model has 64 bits.
    table = run.edge_dispatches.sort_values("client_id")
    assert (table["downloaded_s"] - table["dispatched_s"]).tolist() == [1.0, 4.0]
    assert (table["arrived_s"] - table["computed_s"]).tolist() == [2.0, 0.5]


def test_every_method_that_exchanges_a_model_works_at_the_cloud() -> None:
    refused = {}
    for name in CATALOG.parts("method"):
        server = {"method": name, "edges": {"count": 2, "rounds": 3, "network": FREE}}
        try:
            check(fedsim.read_scenario(digits(server=server)))
        except UserError as error:
            refused[name] = str(error)
    assert refused.keys() == set(REFUSED.split())
    assert all(re.search(r"server\.(edges\.)?method: |adapters", text) for text in refused.values())


@pytest.mark.parametrize("network", ["static", "shared"])
@pytest.mark.parametrize(
    ("on_move", "made", "at_edge_1"),
    [
        # It works for edge server 0 until 13 s, so the round of edge server 1 from 11 to 16 s is without it.
        ("finish", ([7, 13, 15, 20], [6, 11, 16, 24]), [18, 24]),
        # Edge server 0 loses its update at 10 s, and edge server 1 gives it work at 11 s.
        ("drop", ([7, 10, 12, 21], [6, 11, 17, 25]), [11, 19]),
    ],
)
def test_a_client_that_moves(
    on_move: str,
    made: tuple[list[int], list[int]],
    at_edge_1: list[int],
    network: str,
    tmp_path: Path,
) -> None:
    """Clients 0 and 1 take 2 and 6 s at edge server 0, client 2 takes 5 s at edge server 1; 1 s over the backhaul.

    Client 1 moves at 10 s. The edge servers do three rounds from 1 s on; client 0 alone takes 2 s.
    """
    (tmp_path / "edges.csv").write_text("client,edge,time_s\n0,a,0\n1,a,0\n2,b,0\n1,b,10\n0,a,12\n")
    scenario = hierarchy(
        3,
        members={"name": "file", "path": str(tmp_path / "edges.csv"), "on_move": on_move},
        network={**FREE, "latency": "1s"},
    )
    del scenario["server"]["edges"]["count"]
    scenario["devices"] = {
        "compute": {"name": "values", "step": [1, 3, 2.5]},
        "network": {**FREE, "name": network},
    }
    run = fedsim.run({**scenario, "stop": {"simulated_time": 30}}, tmp_path / "run")
    of_edge = run.edge_aggregations.groupby("edge")["time_s"].apply(list)
    assert (of_edge[0][:4], of_edge[1][:4]) == made
    moved = run.dispatches[(run.dispatches["client_id"] == 1) & (run.dispatches["edge"] == 1)]
    assert moved["dispatched_s"].tolist()[:2] == at_edge_1
    assert run.clients["edge"].tolist() == [0, 0, 1]
    assert run.edges is not None
    assert run.edges["members"].tolist() == [2, 2]
    # One sample each; client 1 is a third of the time at edge server 0.
    assert run.edges["samples"].tolist() == pytest.approx([4 / 3, 5 / 3], rel=1e-15)
    dropped = run.dispatches[run.dispatches["outcome"] == "dropped"]
    assert dropped["ended_s"].tolist() == ([10] if on_move == "drop" else [])


MISTAKES = r"""
{count: 9} | {} | server.edges.count
{count: 2, schedule: {min_cohort: 2}} | {} | server.edges.schedule.min_cohort: a round needs 2, but edge server 1 has 1
{count: 2, method: mtgc} | {} | server.method
{count: 2} | {method: mtgc} | server.edges.method
{members: {name: column, column: group}} | {} | server.edges.members.column
{members: {name: file, path: none.csv}} | {} | server.edges.members.path
{count: 2, network: static} | {} | server.edges.trace
{members: {name: nearest, nodes: [a]}} | {} | server.edges.members.nodes
{count: 2, schedule: {min_updates: 0}} | {} | server.edges.schedule
{count: 2, schedule: {deadline: 1ns}} | {} | raise server.edges.schedule.deadline to
{count: 2, selection: {cohort: 9}} | {} | server.edges.selection.cohort: a cohort of 9
{count: 2, schedule: compass, selection: round_robin} | {} | server.edges.selection: under the compass schedule
{count: 2} | {selection: tifl_adaptive} | server.selection
{count: 2, selection: {cohort: 1}, schedule: {min_updates: 2}} | {} | server.edges.schedule.min_updates
"""
"""What the edge servers and the server of a scenario have, and where it is refused, or how it can be fixed."""


@pytest.mark.parametrize(("edges", "server", "where"), rows(MISTAKES))
def test_what_edge_servers_cannot_do_is_refused(
    edges: str, server: str, where: str, tmp_path: Path
) -> None:
    section = parse_yaml(server, "server").data
    section["edges"] = {"network": FREE, **parse_yaml(edges, "edges").data}
    with pytest.raises(UserError) as caught:
        fedsim.run({**quadratic([[0]]), "server": section}, tmp_path / "run")
    assert where in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_edge_server_does_not_know_what_a_client_received_elsewhere(tmp_path: Path) -> None:
    """A client that has moved downloads both numbers (8 B) once, then one of them (4 B), there and back again."""
    file = tmp_path / "edges.csv"
    file.write_text("client,edge,time_s\n0,a,0\n1,a,0\n1,b,5\n1,a,13\n2,b,0\n3,b,0\n")
    network = {"name": "static", "latency": "0s", "down": "8kbps", "up": "8kbps"}
    run = fedsim.run(
        {
            "task": {"name": "quadratic", "centers": [[1, -2], [3, 0], [-1, 4], [5, 2]]},
            "training": {"local_steps": 2},
            "devices": {"compute": {"name": "values", "step": "1s"}, "network": network},
            "server": {
                "compression": {"down": {"name": "topk", "share": 0.5}},
                "edges": {
                    "members": {"name": "file", "path": str(file)},
                    "rounds": 2,
                    "network": FREE,
                },
            },
            "stop": {"simulated_time": "20s"},
        },
        tmp_path / "run",
    )
    rows = run.dispatches[run.dispatches["client_id"] == 1]
    changes = (rows["edge"].diff() != 0).to_numpy()
    assert rows["edge"][changes].tolist() == [0, 1, 0]
    assert rows["bytes_down"].tolist() == np.where(changes, 8, 4).tolist()
