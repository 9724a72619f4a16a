"""Messages in simulated time: waiting, loss, lateness, versions, state, and the kinds of apps."""

import time
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from flwr.app import Context
from flwr.serverapp import Grid

from fedsim.errors import UserError
from fedsim.flower import mark_version
from fedsim.flower.clock import EPOCH_S
from tests.flower import apps
from tests.flower.apps import own_loop
from tests.flower.worlds import LINK, RunApp, ask, coming_and_going, devices

TOLERANCE_S = 1e-3
"""The time of a few kilobytes on such a link."""
COLLECT = {"collect_masked_vectors": apps.STEPS}
DISCARDED = ["discarded", "dropped", "dropped"]


def test_waiting_for_nodes_takes_simulated_time(run_app: RunApp, tmp_path: Path) -> None:
    """The third node comes at 10.5 s; an app that looks every second sees it at 11 s."""
    always = [(0.0, 1000.0)]
    availability = coming_and_going(tmp_path / "t", always, always, [(10.5, 1000.0)])
    seen: dict[str, Any] = {}
    host = time.time()
    scenario = {"task": {"clients": 3}, "devices": devices(**availability)}
    run_app(apps.query_server(seen), apps.query_client(), scenario, run_config={"nodes": 3})
    assert seen["began"] == (EPOCH_S, 0.0, datetime.fromtimestamp(EPOCH_S))
    assert seen["waited"] == 11.0
    assert seen["sum"] == 6
    assert seen["ended"][0] - EPOCH_S == pytest.approx(11.0, abs=TOLERANCE_S)
    assert host <= time.time() <= host + 600
    assert datetime.now(UTC).timestamp() == pytest.approx(time.time(), abs=60)


def test_asynchronous_loop_by_hand(run_app: RunApp) -> None:
    """Nodes that need 5, 10 and 20 s arrive at the multiples of these; two replies make a version."""
    log: list[tuple[float, int]] = []
    scenario = {"task": {"clients": 3}, "devices": devices(["1s", "2s", "4s"])}
    run = run_app(apps.fedbuff_server(7, 2, log), apps.torch_client(), scenario)
    assert [round(at) for at, _ in log] == [5, 10, 10, 15, 20, 20, 20]
    # The app looks every 10 ms, so that a node loses up to 10 ms with each message.
    assert all(0 <= at - round(at) < 0.05 for at, _ in log)
    assert run.aggregations["contributors"].tolist() == [2, 2, 2]
    assert run.aggregations["time_s"].round().tolist() == [10, 15, 20]
    stale = run.dispatches.query("outcome == 'aggregated'")["staleness"].tolist()
    assert max(stale) == 2


@pytest.mark.parametrize("links", ["static", "shared"])
def test_polling_without_a_pause_goes_on(run_app: RunApp, links: str) -> None:
    polls, marks = [], []

    def main(grid: Grid, context: Context) -> None:
        ids = list(grid.push_messages([ask(node) for node in grid.get_node_ids()]))
        left = set(ids)
        while left:
            replies = list(grid.pull_messages(left))
            polls.append(time.monotonic())
            left -= {reply.metadata.reply_to_message_id for reply in replies}
            if replies:
                mark_version(replies, metrics={"accuracy": len(marks) / 4})
                marks.append(time.monotonic())

    scenario = {"task": {"clients": 2}, "devices": devices(["1s", "2s"])}
    scenario["devices"]["network"] = {**LINK, "name": links}
    run = run_app(own_loop(main), apps.torch_client(), scenario)
    assert [round(at) for at in marks] == [5, 10]
    # From event to event, and at most by a second, because this app reads the time in every turn.
    assert len(polls) < 40
    assert run.aggregations["contributors"].tolist() == [1, 1]
    measured = run.metrics[["version", "accuracy"]]
    assert measured.to_numpy().tolist() == [[1, 0], [2, 0.25]]
    assert run.info["metrics"] == {"accuracy": 0.25}


def test_time_passes_without_messages(run_app: RunApp, tmp_path: Path) -> None:
    """However an app waits: the third node comes two hours after the start, and nothing is under way before."""
    always = [(0.0, 1e4)]
    availability = coming_and_going(tmp_path / "t", always, always, [(7200.5, 1e4)])
    seen: list[float] = []

    def main(grid: Grid, context: Context) -> None:
        sleep(3600)
        seen.append(time.monotonic())
        # Up to a minute for the third node, looking every second.
        while time.monotonic() < 3660 and len(list(grid.get_node_ids())) < 3:
            sleep(1)
        seen.append(time.monotonic())
        # Without a pause: for a time, for replies until a time, and for the third node.
        while time.monotonic() < 3661:
            pass
        seen.append(time.monotonic())
        while time.time() < EPOCH_S + 3700:
            assert not list(grid.pull_messages([]))
        seen.append(time.monotonic())
        while len(list(grid.get_node_ids())) < 3:
            pass
        seen.append(time.monotonic())

    section = {"task": {"clients": 3}, "devices": devices(**availability)}
    run_app(own_loop(main), apps.query_client(), section)
    assert seen[:2] == [3600.0, 3660.0]
    assert seen[2] == pytest.approx(3661, abs=0.011)
    assert seen[3] == pytest.approx(3700.5, abs=0.51)
    assert seen[4] == 7200.5


@pytest.mark.parametrize("unit", ["example", "host_seconds"])
def test_scikit_learn(run_app: RunApp, unit: str, caplog: pytest.LogCaptureFixture) -> None:
    run = run_app(apps.sklearn_server(), apps.sklearn_client(), {"devices": devices("100ms", unit)})
    spent = run.dispatches["computed_s"] - run.dispatches["downloaded_s"]
    if unit == "example":
        assert spent.to_numpy() == pytest.approx(0.1 * apps.EXAMPLES)
    else:
        assert (spent > 0).all()
        assert "this run cannot be repeated exactly" in caplog.text
    assert run.metrics["train_score"].iloc[-1] > 0.5


def test_the_same_run_twice(run_app: RunApp) -> None:
    """Shared links, evaluation, and a drawn sample of nodes."""
    section = {
        "compute": {"name": "values", "step": ["1s", "2s", "3s"], "jitter": {"cv": 0.5}},
        "network": {"name": "shared", "down": "20kbps", "up": "10kbps", "server_up": "15kbps"},
    }
    server = apps.strategy_server(rounds=2, fraction_train=0.5, fraction_evaluate=0.5)
    scenario = {"task": {"clients": 3}, "devices": section}
    runs = [run_app(server, apps.torch_client(seeded=False), scenario) for _ in range(2)]
    assert runs[0].dispatches.equals(runs[1].dispatches)
    assert runs[0].metrics.equals(runs[1].metrics)
    assert (runs[0].dispatches["outcome"] == "aggregated").sum() == 4


@pytest.mark.parametrize(
    "train", [None, apps.STEPS, {"setup": 0, "share_keys": 0, "unmask": 0} | COLLECT]
)
def test_a_round_of_secure_aggregation_has_one_stage_that_trains(
    run_app: RunApp, train: Any
) -> None:
    """Two rounds of 5 steps of 1 s take 10 s, although each sends four messages to every node."""
    section = devices()
    section["compute"]["work"] = None if train is None else {"train": train, "reply": "1kB"}
    scenario = {"task": {"clients": 3}, "devices": section}
    run = run_app(apps.secure_server(2, 3), apps.secure_client(), scenario)
    assert run.simulated_s == pytest.approx(10, abs=0.01)
    assert (run.info["rounds"], run.info["versions_made"]) == (2, 2)
    assert run.dispatches["outcome"].astype(str).tolist() == ["aggregated"] * 6
    assert run.dispatches["round"].tolist() == [0] * 3 + [1] * 3
    # A version is made when the masks of the sum are known.
    assert run.aggregations["time_s"].iloc[0] > run.dispatches["arrived_s"].iloc[:3].max()


def test_a_round_of_secure_aggregation_that_is_halted_makes_no_version(
    run_app: RunApp, tmp_path: Path
) -> None:
    """Two of three nodes leave in the second round, at 7 s, so that too few shares remain; they return at 20 s."""
    away = [(0.0, 7.0), (20.0, 1000.0)]
    availability = coming_and_going(tmp_path / "t", [(0.0, 1000.0)], away, away)
    task = {"clients": 3, "nodes": "registered", "offline": "wait"}
    scenario = {"task": task, "devices": devices(**availability)}
    run = run_app(apps.secure_server(3, 3), apps.secure_client(), scenario)
    assert (run.info["rounds"], run.info["versions_made"]) == (3, 2)
    outcomes = run.dispatches.groupby("round")["outcome"].agg(lambda one: sorted(map(str, one)))
    assert outcomes.tolist() == [["aggregated"] * 3, DISCARDED, ["aggregated"] * 3]


def prepare_and_fit(grid: Grid, context: Context) -> None:
    for kind in ("train.prepare", "train.fit"):
        list(grid.send_and_receive([ask(node, kind) for node in grid.get_node_ids()]))


def test_a_training_message_without_a_step_costs_its_transfers(
    run_app: RunApp,
) -> None:
    scenario = {"task": {"clients": 2}, "devices": devices()}
    run = run_app(own_loop(prepare_and_fit), apps.preparing_client(), scenario)
    assert run.simulated_s == pytest.approx(5, abs=TOLERANCE_S)
    assert (run.info["rounds"], run.info["versions_made"]) == (1, 1)
    outcomes = run.dispatches[["steps_done", "outcome"]].astype(str).to_numpy().tolist()
    assert outcomes == [["0", "discarded"]] * 2 + [["5", "aggregated"]] * 2


def test_work_is_declared_by_the_kind_of_a_message(run_app: RunApp) -> None:
    scenario = {"task": {"clients": 2}, "devices": devices()}
    work = {"train": {"prepare": 0, "fit": 3}, "reply": "1kB"}
    scenario["devices"]["compute"]["work"] = work
    run = run_app(own_loop(prepare_and_fit), apps.preparing_client(), scenario)
    assert run.simulated_s == pytest.approx(3, abs=TOLERANCE_S)
    assert run.dispatches["steps_done"].tolist() == [3, 3]
    work["train"] = {"fit": 3}
    with pytest.raises(UserError, match="no units for the kind 'prepare'") as caught:
        run_app(own_loop(prepare_and_fit), apps.preparing_client(), scenario)
    assert "prepare: 0" in str(caught.value)
