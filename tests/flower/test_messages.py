"""The table of an app's messages."""

import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

from fedsim.cli.summary import print_summary
from tests.flower import apps
from tests.flower.apps import own_loop
from tests.flower.worlds import RunApp, ask, coming_and_going, devices

pytestmark = pytest.mark.usefixtures("without_reports")


def test_queries_take_the_time_of_their_bytes(
    run_app: RunApp, capsys: pytest.CaptureFixture[str]
) -> None:
    """Links of 1 kB/s down and 500 B/s up, and a server that asks again after 10 s."""
    section = devices()
    section["network"] = {"name": "static", "latency": "0s", "down": "8kbps", "up": "4kbps"}

    def main(grid: Grid, context: Context) -> None:
        for _ in range(2):
            nodes = grid.get_node_ids()
            list(grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes]))
            time.sleep(max(0, 10 - time.monotonic()))

    run = run_app(own_loop(main), apps.query_client(), {"task": {"clients": 2}, "devices": section})
    table = run.messages
    assert run.dispatches.empty
    assert table["message_id"].tolist() == [0, 1, 2, 3]
    assert table["client_id"].tolist() == [0, 1, 0, 1]
    assert set(table["kind"]) == {"query"}
    assert set(table["outcome"]) == {"replied"}
    assert table["dispatch_id"].isna().all()
    assert table["sent_s"].tolist() == [0, 0, 10, 10]
    assert (table[["bytes_down", "bytes_up"]] > 0).all(axis=None)
    down_s, up_s = table["bytes_down"] / 1000, table["bytes_up"] / 500
    assert np.allclose(table["delivered_s"], table["sent_s"] + down_s, atol=1e-6)
    assert np.allclose(table["replied_s"], table["delivered_s"] + up_s, atol=1e-6)
    print_summary(run)
    assert "4 (4 query; 4 replied)" in capsys.readouterr().out


def test_every_outcome(run_app: RunApp, tmp_path: Path) -> None:
    """24 examples take 24 s, and 48 s on node 1; node 3 leaves at 10 s, and node 4 before the start."""
    always = [(0.0, 1000.0)]
    leaving = [always] * 3 + [[(0.0, 10.0)], [(900.0, 1000.0)]]
    availability = coming_and_going(tmp_path / "t", *leaving)
    section = devices(["1s", "2s", "1s", "1s", "1s"], "example", **availability)

    def main(grid: Grid, context: Context) -> None:
        nodes = list(grid.get_node_ids())
        messages = [ask(node) for node in nodes]
        list(grid.send_and_receive(messages, timeout=30))
        grid.push_messages([ask(nodes[1], "evaluate", ttl=10), ask(nodes[0])])
        time.sleep(25)
        grid.push_messages([ask(nodes[0])])
        time.sleep(5)

    scenario = {"task": {"clients": 5, "nodes": "registered"}, "devices": section}
    run = run_app(own_loop(main), apps.failing_client(2), scenario)
    seen = run.messages[["client_id", "kind", "outcome"]].to_numpy().tolist()
    outcomes = ["replied", "late", "failed", "dropped", "refused"]
    assert seen[:5] == [[node, "train", outcome] for node, outcome in enumerate(outcomes)]
    assert seen[5:] == [
        [1, "evaluate", "expired"],
        [0, "train", "replied"],
        [0, "train", "unfinished"],
    ]
    dispatched = run.messages.dropna(subset="dispatch_id").set_index("dispatch_id")
    rows = run.dispatches.set_index("dispatch_id").loc[dispatched.index]
    same = {"delivered_s": "downloaded_s", "replied_s": "arrived_s"}
    for name in ("client_id", "bytes_down", "bytes_up", *same):
        column = rows[same.get(name, name)]
        assert np.array_equal(dispatched[name], column, equal_nan=True)
    # The reply that arrived at 54 s, and that the ServerApp has not pulled at 60 s, brings no update.
    outcomes = rows["outcome"].astype(str).tolist()
    assert outcomes == ["aggregated", "late", "discarded", "dropped", "discarded", "unfinished"]
