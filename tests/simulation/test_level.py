"""Runs in which the server never uses an update are stopped, and the message names the cause."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from tests.simulation.harness import online, simulate

ASYNC = {"name": "async"}


@pytest.mark.parametrize(
    ("world", "where", "most", "fix"),
    [
        ({"failures": {"upload_loss": 1}}, "devices.failures", "49 dropped", "upload_loss"),
        ({"failures": {"crash_rate": 1e9}}, "devices.failures", "49 dropped", "crash_rate"),
        (
            {"energy": {"battery_j": 1, "recharge_w": 1e9}},
            "devices",
            "50 dropped",
            "raise energy.battery_j if batteries are too small",
        ),
        (
            {"schedule": {"name": "async", "timeout": 1e-9}},
            "server.schedule",
            "49 cut",
            "timeout",
        ),
        (
            {"schedule": {"name": "buffered", "buffer_size": 1000}},
            "server.schedule",
            "49 waiting to be aggregated",
            "buffer_size",
        ),
        (
            {"schedule": {"name": "sync", "deadline": 2.0}},
            "server.schedule",
            "49 late",
            "deadline",
        ),
        (
            {"schedule": {"name": "sync", "min_updates": 3}},
            "server.schedule",
            "50 discarded",
            "min_updates",
        ),
    ],
)
def test_a_stalled_run_names_its_cause(
    world: dict[str, Any], where: str, most: str, fix: str
) -> None:
    """Two clients: when the 51st dispatch is due, the other client may still be at work."""
    with pytest.raises(UserError) as caught:
        simulate(step_s=[1, 2], stalled_after=50, rounds=500, **({"schedule": ASYNC} | world))
    assert caught.value.where == where
    assert f"aggregated in the last 50 dispatches ({most})" in caught.value.message
    assert fix in str(caught.value.hint)
    assert "stop.stalled_after" in str(caught.value.hint)


def test_only_dispatches_since_the_last_aggregated_update_count() -> None:
    """A buffer of 3 updates: at most 3 + 2 dispatches from one version to the next, so 5 never stop the run."""
    world: dict[str, Any] = {"step_s": [1, 2], "rounds": 40}
    schedule = {"name": "buffered", "buffer_size": 3}
    assert len(simulate(schedule=schedule, stalled_after=5, **world).aggregates) == 40
    with pytest.raises(UserError, match="in the last 2 dispatches"):
        simulate(schedule=schedule, stalled_after=2, **world)


def test_an_empty_aggregation_is_no_progress() -> None:
    with pytest.raises(UserError, match="no update was aggregated"):
        simulate(
            step_s=[1, 2],
            schedule={"name": "sync", "min_updates": 0, "deadline": 5.0, "stragglers": "cut"},
            stalled_after=50,
            rounds=500,
        )


def test_a_limit_of_dispatches_that_is_reached_first_ends_the_run() -> None:
    book = simulate(
        step_s=[1, 2], schedule=ASYNC, failures={"upload_loss": 1}, dispatches=50, stalled_after=50
    )
    assert len(book.rows) == 50


def test_a_clock_that_stands_still_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatches that take no time would be handed out forever; a run that ends first is not touched."""
    monkeypatch.setattr("fedsim.simulation.level.LEAST_STALLED_AFTER", 100)
    timeless: dict[str, Any] = {"step_s": [0, 0], "bytes_down": 0, "bytes_up": 0}
    with pytest.raises(UserError, match="the clock stands still at 0 s") as caught:
        simulate(**timeless, rounds=1000)
    assert caught.value.where == "devices"
    assert len(simulate(**timeless, rounds=100).rows) == 200
    assert len(simulate(step_s=[1, 1], rounds=1000).rows) == 2000
    # Nothing but time ends this run, so few events show that none passes.
    with pytest.raises(UserError, match=r"^devices: 200 events took no time"):
        simulate(**timeless, until_s=3600.0)


def test_rounds_without_clients_that_take_no_time_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedsim.simulation.level.LEAST_STALLED_AFTER", 50)
    nobody: dict[str, Any] = {
        "step_s": [1, 1],
        "selection": {"name": "bernoulli", "probability": 1e-9, "allow_empty": True},
        "schedule": {"name": "sync", "min_updates": 0},
    }
    with pytest.raises(UserError, match="2,000 events took no time: the clock stands still at 0 s"):
        simulate(**nobody, rounds=5000)
    nobody["schedule"]["pause"] = 1.0
    assert len(simulate(**nobody, rounds=1000).aggregates) == 1000


CENTURY = 3.1e9
SLOW = {"name": "static", "latency": 0, "down": "1Gbps", "up": "1bps"}
LONG = "the upload of client 0 would take 92,593 d"


@pytest.mark.parametrize(
    ("changes", "where", "message"),
    [
        # A client that does two dispatches of a century, or one of two.
        ({"step": [CENTURY, 1]}, "stop", r"after 35,\d+ d, a dispatch to client 0 would last"),
        ({"step": [CENTURY, 1], "steps": 2}, "devices.compute", "the local steps of client 0"),
        ({"network": SLOW}, "devices.network", LONG),
        ({"network": {**SLOW, "name": "shared", "server_up": "1Gbps"}}, "devices.network", LONG),
        ({"edges": {"count": 1}, "network": SLOW}, "devices.network", LONG),
        (
            {"edges": {"count": 1, "network": SLOW}},
            "server.edges.network",
            "the upload of edge server 0 would take 92,593 d",
        ),
    ],
)
def test_the_end_of_the_clock_is_an_error(
    changes: dict[str, Any], where: str, message: str, tmp_path: Path
) -> None:
    fast = {"name": "static", "down": "1Gbps", "up": "1Gbps"}
    edges = changes.get("edges")
    content: dict[str, Any] = {
        "name": "centuries",
        "task": {"name": "timing", "clients": 2, "size": "1GB"},
        "training": {"local_steps": changes.get("steps", 1)},
        "devices": {
            "compute": {"name": "values", "step": changes.get("step", 1.0), "jitter": {"cv": 0.01}},
            "network": changes.get("network", fast),
        },
        "server": {
            "schedule": {"name": "sync", **changes.get("schedule", {})},
            "edges": edges and {"network": fast, **edges},
        },
        "stop": {"rounds": 1000},
    }
    with pytest.raises(UserError, match=f"{where}: {message}"):
        fedsim.run(content, tmp_path / "run")


@pytest.mark.parametrize("policy", ["pause", "finish", "send_partial"])
@pytest.mark.parametrize("shared", [False, True])
def test_work_of_a_client_that_goes_offline_for_good_is_unfinished(
    policy: str, *, shared: bool
) -> None:
    """Client 1 leaves at 15 s, in the middle of its work of 22 s, and is never online again."""
    left = online([(0, 100)], [(0, 15)])
    book = simulate(step_s=[1, 2], availability=left, on_disconnect=policy, shared=shared, rounds=5)
    assert book.outcomes() == {0: "unfinished", 1: "unfinished"}


@pytest.mark.parametrize("shared", [False, True])
def test_sessions_shorter_than_the_latency_do_not_go_on_forever(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.simulation.dispatch_process._MOST_RETURNS", 20)
    sessions = online([(10.0 * n, 10.0 * n + 1) for n in range(40)])
    world: dict[str, Any] = {"step_s": [1], "availability": sessions, "on_disconnect": "pause"}
    with pytest.raises(UserError, match="client 0 left and came back 20 times during one dispatch"):
        simulate(**world, latency_s=2.0, rounds=1, shared=shared)
    assert len(simulate(**world, latency_s=0.0, rounds=1, shared=shared).aggregates) == 1


def test_a_battery_that_hardly_recharges_is_not_the_end_of_the_clock() -> None:
    """An empty battery that needs 100,000 years until it may be used never recharges: the run ends without clients."""
    battery = {"battery_j": 100, "recharge_w": 1e-12}
    book = simulate(step_s=[1, 1], rounds=50, schedule=ASYNC, energy=battery)
    assert 2 <= len(book.rows) < 50
