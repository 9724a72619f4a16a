"""The table of an app's messages."""

import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

import fedsim
from fedsim.analysis.comparison.facts import read_facts
from fedsim.analysis.figures.timeline import timeline
from fedsim.analysis.headline import tiles
from fedsim.cli.summary import print_summary
from tests.flower import apps
from tests.flower.apps import own_loop
from tests.flower.worlds import RunApp, ask, coming_and_going, devices


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


def test_messages_that_do_not_train_count_as_work(run_app: RunApp, tmp_path: Path) -> None:
    """By hand, in seconds of work at 10 W; transfers take almost no time.

    Node 0 trains until 10 s, evaluates from 12 to 16 s while its update waits until 30 s, recharges from 262 to 280 J
    until 34 s and trains from 40 s to the end; node 1 trains until 30 s and recharges from then on; node 2 only
    evaluates, the second time from 48 s to the end.
    """

    def main(grid: Grid, context: Context) -> None:
        nodes = list(grid.get_node_ids())
        ids = list(grid.push_messages([ask(nodes[0]), ask(nodes[1])]))
        for until_s, messages in (
            (12, [ask(nodes[0], "evaluate"), ask(nodes[2], "evaluate")]),
            (30.1, []),
            (40, [ask(nodes[0])]),
            (48, [ask(nodes[2], "evaluate")]),
            (60, []),
        ):
            time.sleep(until_s - time.monotonic())
            grid.push_messages(messages)
            if until_s == 30.1:
                fedsim.flower.mark_version(grid.pull_messages(ids))

    section = devices(["1s", "3s", "1s"])
    section["compute"]["work"] = {"train": 10, "evaluate": 4, "reply": "10kB"}
    section["energy"] = {"compute_w": 10, "download_w": 0, "upload_w": 0}
    section["energy"] |= {"battery_j": 400, "battery_floor": 0.7, "recharge_w": 1}
    section["cost"] = {"per_byte": 1}
    section["carbon"] = {"file": str(tmp_path / "carbon.csv")}
    text = "datetime,carbon_intensity g/kWh\n2026-01-01T00:00Z,36\n2026-01-01T01:00Z,36\n"
    (tmp_path / "carbon.csv").write_text(text)
    scenario = {"task": {"clients": 3}, "devices": section, "stop": {"simulated_time": "50s"}}
    run = run_app(own_loop(main), apps.torch_client(), scenario)
    messages, clients = run.messages, run.clients
    by_hand = {
        "energy_j": [240.0, 300.0, 60.0],
        "compute_s": [24.0, 30.0, 6.0],
        "waiting_s": [2.0, 0.1, 0.0],
        "recharging_s": [18.0, 19.9, 0.0],
        "idle_s": [24.0, 19.9, 44.0],
    }
    for name, values in by_hand.items():
        assert np.allclose(clients[name], values, atol=0.01), name
    assert messages["kind"].tolist() == [
        "train",
        "train",
        "evaluate",
        "evaluate",
        "train",
        "evaluate",
    ]
    assert messages["outcome"].tolist() == ["replied"] * 4 + ["unfinished"] * 2
    assert np.allclose(messages["energy_j"], [100, 300, 40, 40, 100, 20], atol=0.01)
    for name in ("bytes_down", "bytes_up", "energy_j"):
        sums = messages.groupby("client_id")[name].sum()
        assert np.allclose(clients[name], sums.to_numpy(), rtol=1e-12), name
    moved = int(messages[["bytes_down", "bytes_up"]].to_numpy().sum())
    # 36 g per kWh are 1e-5 g per joule.
    assert np.allclose(clients["gco2e"], clients["energy_j"] * 1e-5, rtol=1e-9)
    assert run.info["gco2e"] == pytest.approx(600e-5, abs=1e-6)
    assert run.info["cost"] == pytest.approx(moved)
    figures = read_facts(run, {}).figures
    assert (figures["bytes"], figures["compute_s"]) == (moved, pytest.approx(60, abs=0.01))
    assert figures["energy_j"] == pytest.approx(600, abs=0.01)
    assert ("Energy of the devices", "600 J") in {(one.label, one.value) for one in tiles(run)}
    charge = {column.key: list(column.values) for column in timeline(run).columns}
    # Of node 0, node 1, and node 0 again, of 400 J: without its evaluation it would have had 0.825.
    assert np.allclose(charge["charge_before"], [1, 1, 0.715], atol=1e-3)


@pytest.mark.parametrize(("policy", "pause"), [("pause", [5, 8]), ("finish", [7, 8])])
def test_pauses_of_messages_that_do_not_train(
    run_app: RunApp, tmp_path: Path, policy: str, pause: list[float]
) -> None:
    """An evaluation of 4 s begins at 3 s, and its node is offline from 5 to 8 s."""
    coming = coming_and_going(tmp_path / "t", [(0.0, 5.0), (8.0, 100.0)], on_disconnect=policy)
    section = devices(**coming)
    section["compute"]["work"] = {"train": 1, "evaluate": 4, "reply": "1kB"}

    def main(grid: Grid, context: Context) -> None:
        time.sleep(3)
        list(grid.send_and_receive([ask(node, "evaluate") for node in grid.get_node_ids()]))

    run = run_app(own_loop(main), apps.torch_client(), {"task": {"clients": 1}, "devices": section})
    assert run.pauses["dispatch_id"].tolist() == [-1]
    assert np.allclose(run.pauses[["from_s", "to_s"]], pause, atol=1e-3)
    spent = run.clients[["compute_s", "paused_s", "idle_s", "offline_s"]].iloc[0]
    assert np.allclose(spent, [4, pause[1] - pause[0], 3, 0], atol=1e-3)
