"""Threads of a ServerApp in simulated time."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
from flwr.app import Context
from flwr.serverapp import Grid

from fedsim.errors import UserError
from tests.flower import apps
from tests.flower.apps import own_loop
from tests.flower.worlds import Counting, RunApp, ask, devices


def test_the_older_interface(run_app: RunApp, caplog: pytest.LogCaptureFixture) -> None:
    """Every message is sent from a thread of its own; all take the time that they would take together."""
    scenario = {"task": {"clients": 3}, "devices": devices(["1s", "2s", "3s"], "example")}
    run = run_app(apps.legacy_server(rounds=2), apps.numpy_client(), scenario)
    assert run.dispatches["outcome"].eq("aggregated").all()
    assert run.dispatches.query("round == 0")["arrived_s"].round().tolist() == [10, 20, 30]
    assert len(run.dispatches) == 6
    measured = run.metrics.dropna(subset="client_mean")
    # The mean of the shifts 0, 1 and 2 is added in each round; evaluations take a third.
    assert measured["client_mean"].tolist() == [1.0, 2.0]
    assert measured["time_s"].round().tolist() == [40, 80]
    assert run.info["rounds"] == 2
    with caplog.at_level("INFO", "flwr"):
        run_app(apps.legacy_server(1), apps.numpy_client(), {"devices": devices("1s", "example")})
    assert "Run finished 1 round(s) in 13.3" in caplog.text


STEPS_OF_1_2_AND_3_S = {"task": {"clients": 3}, "devices": devices(["1s", "2s", "3s"])}
"""Five steps take 5, 10 and 15 s."""
Trips = list[tuple[float, int, int]]


def node_loops(trips: Trips, times: int, start: Callable[[Any, list[int]], None]) -> Any:
    """One thread per node, which sends a message, waits for the reply, and begins again."""

    def main(grid: Grid, context: Context) -> None:
        nodes = list(grid.get_node_ids())

        def loop(node: int) -> int:
            for trip in range(times):
                (reply,) = grid.send_and_receive([ask(node)])
                assert not reply.has_error()
                trips.append((time.monotonic(), nodes.index(node), trip))
            return node

        start(loop, nodes)

    return own_loop(main)


def in_a_pool(loop: Any, nodes: list[int]) -> None:
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(loop, node) for node in nodes]
        assert [future.result() for future in as_completed(futures)] == nodes


def in_threads(loop: Any, nodes: list[int]) -> None:
    threads = [threading.Thread(target=loop, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("start", [in_a_pool, in_threads])
@pytest.mark.parametrize("declared", [False, True])
def test_one_thread_per_node(run_app: RunApp, start: Any, declared: bool) -> None:
    """Replies at 5, 10, 15 / 10, 20, 30 / 15, 30, 45 s; every one of them is a version."""
    trips: Trips = []
    scenario = {**STEPS_OF_1_2_AND_3_S, "seed": 3}
    if declared:
        work = {"train": 5, "reply": "1kB"}
        scenario["task"] = {"clients": 3, "work": work}
    run = run_app(node_loops(trips, 3, start), apps.torch_client(), scenario)
    at = {(node, trip): round(s) for s, node, trip in trips}
    assert at == {(n, trip): 5 * (n + 1) * (trip + 1) for n in range(3) for trip in range(3)}
    assert [s for s, _, _ in trips] == sorted(s for s, _, _ in trips)
    assert run.simulated_s == pytest.approx(45, abs=1e-3)
    assert run.dispatches["outcome"].eq("aggregated").all()
    # Node 2's messages begin and end just before those of the others, which have sent more: at 5, 10 and 10 s; at 15
    # and 20 s; at 30 s.
    assert run.dispatches.query("client_id == 2")["staleness"].tolist() == [3, 2, 1]
    if declared:
        again = run_app(node_loops([], 3, start), apps.torch_client(), scenario)
        assert again.dispatches.equals(run.dispatches)


def test_the_end_of_the_run_unwinds_the_threads(run_app: RunApp) -> None:
    """At 22 s, two threads wait for replies, one has not begun, and the main thread waits for all."""
    trips: Trips = []

    def start(loop: Any, nodes: list[int]) -> None:
        with ThreadPoolExecutor(2) as pool:
            for node in nodes:
                pool.submit(loop, node)

    scenario = {**STEPS_OF_1_2_AND_3_S, "stop": {"simulated_time": "22s"}}
    run = run_app(node_loops(trips, 100, start), apps.torch_client(), scenario)
    assert [round(s) for s, _, _ in trips] == [5, 10, 10, 15, 20, 20]
    assert [node for _, node, _ in trips] == [0, 1, 0, 0, 1, 0]
    assert run.simulated_s == 22
    assert run.info["status"] == "complete"
    assert (run.dispatches["outcome"] == "unfinished").sum() == 2


def test_a_serverapp_may_return_before_its_threads(run_app: RunApp) -> None:
    def start(loop: Any, nodes: list[int]) -> None:
        for node in nodes:
            threading.Thread(target=loop, args=(node,)).start()
        time.sleep(7)

    before, trips = threading.active_count(), Trips()
    run = run_app(node_loops(trips, 9, start), apps.torch_client(), STEPS_OF_1_2_AND_3_S)
    assert run.simulated_s == 7
    assert [round(s) for s, _, _ in trips] == [5]
    assert threading.active_count() == before


def test_threads_of_libraries_may_not_use_the_grid(run_app: RunApp) -> None:
    def start(loop: Any, nodes: list[int]) -> None:
        with ThreadPool(3) as pool:
            pool.map(loop, nodes)

    with pytest.raises(UserError, match="used from a thread of a library") as caught:
        run_app(node_loops([], 1, start), apps.torch_client(), STEPS_OF_1_2_AND_3_S)
    assert "ThreadPoolExecutor" in str(caught.value.hint)


@pytest.mark.parametrize("start", [in_a_pool, in_threads])
def test_an_error_of_fedsim_in_a_thread_ends_the_run(run_app: RunApp, start: Any) -> None:
    """Whether it is found in the thread, which sends a message of undeclared work, or while time passes."""
    scenario = {"task": {"clients": 3, "work": {"train": {"fit": 5}, "reply": "1kB"}}}
    with pytest.raises(UserError, match="no units for the kind 'default'"):
        run_app(node_loops([], 3, start), apps.torch_client(), scenario)
    client = Counting()
    with pytest.raises(UserError, match="took no step"):
        run_app(node_loops([], 3, start), client.app, {"task": {"clients": 3}})
    assert len(client.nodes) == 1
