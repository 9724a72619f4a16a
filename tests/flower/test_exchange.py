"""Messages between the ServerApp and the nodes."""

import time
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from flwr.app import Context
from flwr.serverapp import Grid

from tests.flower import apps
from tests.flower.apps import own_loop
from tests.flower.worlds import Counting, RunApp, ask, coming_and_going, devices


def test_late_lost_and_expired_messages(run_app: RunApp, tmp_path: Path) -> None:
    """Node 0 replies at 5 s, node 1 leaves at 2 s, node 2 needs 20 s."""
    always = [(0.0, 1000.0)]
    availability = coming_and_going(tmp_path / "t", always, [(0.0, 2.0)], always)
    seen: list[Any] = []

    def main(grid: Grid, context: Context) -> None:
        nodes = list(grid.get_node_ids())
        replies = list(grid.send_and_receive([ask(node) for node in nodes], timeout=12))
        arrived = {nodes.index(r.metadata.src_node_id) for r in replies if not r.has_error()}
        seen.append((time.monotonic(), arrived))
        seen.append([reply.error.code for reply in replies if reply.has_error()])
        late = list(grid.send_and_receive([ask(nodes[0], ttl=3)]))
        seen.append((time.monotonic(), late[0].error.code))
        sleep(100)

    section = devices(["1s", "1s", "4s"], **availability)
    scenario = {"task": {"clients": 3}, "devices": section, "server": {"failure_detection": "1s"}}
    run = run_app(own_loop(main), apps.torch_client(), scenario)
    assert seen == [(12.0, {0}), [5], (15.0, 3)]
    outcomes = run.dispatches.set_index(["client_id", "sequence"])["outcome"].astype(str)
    expected = {(0, 0): "aggregated", (1, 0): "dropped", (2, 0): "late", (0, 1): "late"}
    assert outcomes.to_dict() == expected
    dropped = run.dispatches.query("client_id == 1").iloc[0]
    assert (dropped["ended_s"], dropped["steps_done"]) == (2.0, 1)


def test_a_message_waits_for_a_busy_node_until_its_time_to_live(
    run_app: RunApp,
) -> None:
    """The node needs 5 s for each message: the one that may wait for 3 s is never run, that for 8 s is."""
    client, seen = Counting(), []

    def main(grid: Grid, context: Context) -> None:
        (node,) = grid.get_node_ids()
        messages = [ask(node), ask(node, ttl=3), ask(node, ttl=11)]
        ids = list(grid.push_messages(messages))
        while len(seen) < 3:
            for reply in grid.pull_messages(set(ids) - {one for _, one, _ in seen}):
                which = reply.metadata.reply_to_message_id
                seen.append((round(time.monotonic()), which, reply.has_error()))
            sleep(1)
        seen[:] = [(at, ids.index(which), failed) for at, which, failed in seen]

    work = {"train": 5, "reply": "1kB"}
    section = devices("1s", "example")
    section["compute"]["work"] = work
    run = run_app(own_loop(main), client.app, {"task": {"clients": 1}, "devices": section})
    assert [(which, failed) for _, which, failed in seen] == [(1, True), (0, False), (2, False)]
    assert len(run.dispatches) == len(client.nodes) == 2


@pytest.mark.parametrize("offline", ["reject", "wait"])
def test_messages_to_nodes_that_are_offline(run_app: RunApp, tmp_path: Path, offline: str) -> None:
    availability = coming_and_going(tmp_path / "t", [(0.0, 9.0)], [(6.0, 1000.0)])
    seen: list[Any] = []

    def main(grid: Grid, context: Context) -> None:
        replies = grid.send_and_receive([ask(list(grid.get_node_ids())[1])])
        seen.append((time.monotonic(), [reply.has_error() for reply in replies]))

    task = {"clients": 2, "nodes": "registered", "offline": offline}
    scenario = {"task": task, "devices": devices(**availability)}
    run = run_app(own_loop(main), apps.torch_client(), scenario)
    assert run.info["offline_messages"] == (1 if offline == "reject" else 0)
    at, errors = seen[0]
    assert (round(at), errors) == ((0, [True]) if offline == "reject" else (11, [False]))


def test_state_of_interrupted_work_is_discarded(run_app: RunApp, tmp_path: Path) -> None:
    """Ten examples take 10 s: the first message is lost at 8 s, so only the later two are remembered."""
    availability = coming_and_going(tmp_path / "t", [(0.0, 8.0), (9.0, 1000.0)])
    seen: list[Any] = []

    def main(grid: Grid, context: Context) -> None:
        (node,) = grid.get_node_ids()
        for _ in range(3):
            while not list(grid.get_node_ids()):
                sleep(1)
            (reply,) = grid.send_and_receive([ask(node)])
            seen.append(reply.has_error() or reply.content["metrics"]["handled"])

    section = devices("1s", "example", **availability)
    scenario = {"task": {"clients": 1}, "devices": section}
    run_app(own_loop(main), apps.stateful_client(), scenario)
    assert seen == [True, 1, 2]


def test_only_work_that_matters_is_run(run_app: RunApp, tmp_path: Path) -> None:
    """With declared work, the ClientApps of late and lost messages do not run; without, those that could end do."""
    always = [(0.0, 1e6)]
    # The link is slow: node 1 leaves in the download, node 2 while it works; node 3 is late.
    availability = coming_and_going(tmp_path / "t", always, [(0.0, 0.5)], [(0.0, 6.0)], always)
    section = devices(["1s", "1s", "1s", "4s"], "example", **availability)
    section["network"] = {"name": "static", "latency": "1s", "down": "1Gbps", "up": "1Gbps"}
    server = apps.strategy_server(
        rounds=2, timeout=30, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1
    )
    counts = {}
    for name, work in (("declared", {"train": 10, "reply": "1kB"}), ("counted", None)):
        client = Counting()
        section["compute"]["work"] = work
        run = run_app(server, client.app, {"devices": section})
        counts[name] = client.nodes
        if name == "declared":
            outcomes = run.dispatches.set_index(["client_id", "sequence"])["outcome"]
            keys = [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (3, 1)]
            words = ["aggregated", "aggregated", "dropped", "dropped", "late", "unfinished"]
            assert outcomes.astype(str).sort_index().to_dict() == dict(
                zip(keys, words, strict=True)
            )
    # Node 2's declared work cannot end. Node 3's first message is run although it is late, because a ClientApp might
    # remember it.
    assert sorted(counts["declared"]) == [0, 0, 3]
    assert sorted(counts["counted"]) == [0, 0, 2, 3, 3]
