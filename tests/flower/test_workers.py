"""Workers that run ClientApps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.flower.client import Answer, Job, answer
from fedsim.flower.workers import Workers
from tests.flower import apps
from tests.flower.worlds import Counting, RunApp, coming_and_going, devices


def test_same_bits_in_this_process_and_in_others(run_app: RunApp) -> None:
    """Wherever a ClientApp runs, its unseeded draws come from the seed of the message, and its sleep is simulated."""
    results: list[Any] = []
    scenario = {"devices": devices("1s")}
    server = apps.strategy_server(rounds=1, sort=True, results=results, fraction_evaluate=0.0)
    for workers in ({"name": "here"}, {"name": "processes", "count": 1}):
        run = run_app(server, apps.app, scenario | {"task": {"clients": 3, "workers": workers}})
        assert sorted(run.dispatches["arrived_s"].round()) == [5, 5, 8]
    run_app(server, apps.app, scenario | {"task": {"clients": 3}, "seed": 1})
    here, there, other = (result.arrays.to_numpy_ndarrays() for result in results)
    assert all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(here, other, strict=True))


def eager(log: list[str]) -> Callable[[Any], Workers]:
    """Workers that run each ClientApp when it is submitted, as if idle, and note when its answer is needed."""

    def make(app: Any) -> Workers:
        def submit(job: Job) -> Callable[[], Answer]:
            answered = answer(app, job)
            log.append("started")

            def wait() -> Answer:
                log.append("needed")
                return answered

            return wait

        return Workers(submit, lambda: None)

    return make


@pytest.mark.parametrize("kind", ["static", "shared"])
def test_clientapps_run_in_parallel_unless_it_would_be_in_vain(
    run_app: RunApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Downloads take more than 0.2 s: node 2 leaves before their end, node 3 while it works."""
    always = [(0.0, 1e4)]
    availability = coming_and_going(tmp_path / "t", always, always, [(0.0, 0.2)], [(0.0, 4.0)])
    section = devices(["1s", "2s", "1s", "9s"], "example", **availability)
    section["network"] = {"name": kind, "latency": "0s", "down": "40kbps", "up": "40kbps"}
    if kind == "shared":
        section["network"]["server_down"] = "100kbps"
    server = apps.strategy_server(rounds=1, fraction_evaluate=0.0)
    client = Counting()
    log: list[str] = []
    monkeypatch.setattr("fedsim.flower.workers.here", eager(log))
    run = run_app(server, client.app, {"devices": section})
    assert sorted(client.nodes) == [0, 1, 3]
    assert log == ["started"] * 3 + ["needed"] * 3
    outcomes = run.dispatches.set_index("client_id")["outcome"].astype(str)
    assert outcomes.to_dict() == {0: "aggregated", 1: "aggregated", 2: "dropped", 3: "dropped"}
    left = run.dispatches.set_index("client_id").loc[3]
    assert (left["steps_done"], left["ended_s"]) == (0, 4.0)
