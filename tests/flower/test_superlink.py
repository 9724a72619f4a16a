"""Deployments on a real SuperLink, with SuperNodes as processes: every schedule keeps its rules, whatever dies."""

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.flower import server_app
from tests.flower.superlink import Deployment
from tests.flower.test_live import COHORT, counted_once, named, schedules
from tests.flower.test_serving import scenario

pytestmark = pytest.mark.superlink

JOURNAL = "checkpoint/journal.jsonl"
TASK = scenario({})["task"] | {"model": {"name": "linear"}}


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Nodes of their own: one that still discards a reply of an ended run may lose an equal part of the next."""
    with Deployment(tmp_path_factory.mktemp("flwr"), (0.1, 0.2, 0.3, 0.4, 3)) as started:
        yield started


def replied(folder: Path) -> int:
    """The number of replies that a server has handled."""
    journal = folder / JOURNAL
    return journal.read_bytes().count(b'"reply"') if journal.exists() else 0


def section(server: dict[str, Any], **stop: Any) -> dict[str, Any]:
    # A server that hangs ends after this time, without its rounds.
    return scenario(server, task=TASK, stop={"simulated_time": "15min", **stop})


def served(deployment: Deployment, folder: Path, server: dict[str, Any], **stop: Any) -> Any:
    deployment.serve(server_app(section(server, **stop), output=folder))
    run = fedsim.load(folder)
    # A run is checked by its invariants before it is complete.
    assert (run.info["clock"], run.info["status"]) == ("wall", "complete")
    counted_once(run)
    return run


def test_nodes_that_are_killed_and_restarted(tmp_path: Path) -> None:
    """Forty rounds: nothing hangs, and nothing is counted twice."""
    chance, ended, replies = random.Random(0), threading.Event(), 0

    def disturb() -> None:
        nonlocal replies
        while not ended.wait(0.1):
            if replied(tmp_path / "run") >= replies + 4:
                replies = replied(tmp_path / "run")
                restless.restart(chance.randrange(5))

    disturbing = threading.Thread(target=disturb)
    # A round waits for two of its clients, however long they take, or until they are gone.
    schedule = {"name": "sync", "stragglers": "cut", "quorum": 2}
    server = {"schedule": schedule, "selection": COHORT}
    (tmp_path / "flwr").mkdir()
    with Deployment(tmp_path / "flwr", (0.1, 0.2, 0.3, 0.4, 0.5), heartbeat_s=1) as restless:
        disturbing.start()
        try:
            run = served(restless, tmp_path / "run", server, rounds=40)
        finally:
            ended.set()
            disturbing.join()
    assert run.info["rounds"] == 40
    assert replies > 20
    assert {"aggregated", "dropped"} <= set(run.dispatches["outcome"])


@pytest.mark.parametrize(("schedule", "more", "check"), schedules("2500ms"), ids=named)
def test_every_schedule_keeps_its_rules(
    deployment: Deployment,
    schedule: dict[str, Any],
    more: dict[str, Any],
    check: Any,
    tmp_path: Path,
) -> None:
    run = served(deployment, tmp_path / "run", {"schedule": schedule, **more}, rounds=5)
    assert run.info["rounds"] == 5
    assert len(run.messages) == len(run.dispatches)
    check(run)


def test_a_server_that_is_killed_continues(deployment: Deployment, tmp_path: Path) -> None:
    """SIGKILL in the middle; what was decided stays, and what was under way is lost."""
    folder, server = tmp_path / "run", {"schedule": {"name": "buffered", "buffer_size": 2}}
    process = deployment.serve_apart(section(server, rounds=12), folder)
    while replied(folder) < 9:
        assert process.is_alive()
        time.sleep(0.05)
    process.kill()
    process.join()
    before = (folder / JOURNAL).read_bytes()
    run = served(deployment, folder, server, rounds=12)
    assert run.info["resumed"] == 1
    assert run.info["versions_made"] == 12
    assert (run.aggregations["contributors"] == 2).all()
    lines = [line.partition(b" ")[2] for line in before.splitlines() if b'"reply"' in line]
    ended = [json.loads(line)[2] for line in lines]
    assert set(ended) <= set(run.dispatches.query("outcome == 'aggregated'")["dispatch_id"])
    assert run.dispatches.query("outcome == 'dropped'")["ended_s"].nunique() == 1
