"""The tables that are written when a run ends."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsim
from fedsim.analysis.run import load_run
from fedsim.analysis.statistics import where_time_went
from fedsim.runs.clients import sampled_clients
from fedsim.runs.run import Run
from tests.devices.worlds import LINKS as SLOW_LINKS
from tests.devices.worlds import STEPS, timing
from tests.simulation.harness import online_bundle
from tests.traces.cases import HOUR, bundle_of


def test_the_intervals_of_the_dispatched_clients(tmp_path: Path) -> None:
    """Three phones over six hours of which one never works: it is not in the table."""
    hours = {
        "a": [(0, 2 * HOUR), (3 * HOUR, 9 * HOUR)],
        "b": [(HOUR, 5 * HOUR)],
        "c": [(0, 9 * HOUR)],
    }
    bundle_of(hours).write(tmp_path / "phones")
    devices = {"trace": str(tmp_path / "phones"), "compute": STEPS, "network": SLOW_LINKS}
    server = {
        "selection": {"name": "scripted", "rounds": [[0], [1]]},
        "schedule": {"name": "sync", "pause": "2h"},
    }
    world = timing(devices, clients=3, server=server, stop={"simulated_time": "6h"})
    run = fedsim.run(world, tmp_path / "run")
    # The table in memory has the same columns and types as its file.
    pd.testing.assert_frame_equal(run.clients, load_run(tmp_path / "run").clients)
    assert set(run.dispatches["client_id"]) == {0, 1}
    assert run.presence is not None
    assert run.presence.to_numpy().tolist() == [
        [0, 0.0, 7200.0],
        [0, 10_800.0, 21_600.0],
        [1, 3600.0, 18_000.0],
    ]


@pytest.mark.parametrize("schedule", [{"name": "sync"}, {"name": "buffered", "buffer_size": 2}])
def test_tables_kept_in_memory_equal_those_of_the_files(
    schedule: dict[str, object], tmp_path: Path
) -> None:
    server = {"selection": {"name": "uniform", "cohort": 3}, "schedule": schedule}
    compute = {**STEPS, "jitter": {"cv": 0.5}}
    devices = {"compute": compute, "network": SLOW_LINKS, "failures": {"crash_rate": 60}}
    world = timing(devices, clients=8, server=server, stop={"rounds": 20})
    run = fedsim.run(world, tmp_path / "run")
    files = load_run(tmp_path / "run")
    assert set(run.dispatches["outcome"]) > {"aggregated"}
    for name in ("dispatches", "aggregations", "metrics", "clients", "phases"):
        pd.testing.assert_frame_equal(getattr(run, name), getattr(files, name))


def test_the_sample_is_spread_from_the_busiest_to_the_least_busy() -> None:
    few = np.repeat([5, 3, 9], [1, 4, 2])
    assert sampled_clients(few).tolist() == [3, 9, 5]
    assert sampled_clients(few[:0]).tolist() == []
    # A thousand clients with 1 to 1,000 dispatches: 40 of them, with the busiest and the least busy.
    many = np.repeat(np.arange(1000), np.arange(1, 1001))
    shown = sampled_clients(many).tolist()
    assert (shown[0], shown[-1], len(shown)) == (999, 0, 40)
    assert shown == sorted(shown, reverse=True)
    assert len(sampled_clients(np.arange(5000))) == 300


LINKS = [
    {"name": "static", "latency": 0, "down": "8Mbps", "up": "4Mbps"},
    {"name": "shared", "latency": 0, "down": "8Mbps", "up": "4Mbps"},
]
# Download, compute, upload; pauses; when it ended. In the middle of the download, local steps and upload.
COURSES: dict[tuple[str, float], tuple[list[float], list[tuple[float, float]], float]] = {
    ("drop", 0.5): ([0.5, 0, 0], [], 0.5),
    ("drop", 4.0): ([1, 3, 0], [], 4),
    ("drop", 12.0): ([1, 10, 1], [], 12),
    ("pause", 0.5): ([1, 10, 2], [(0.5, 30)], 42.5),
    ("pause", 4.0): ([1, 10, 2], [(4, 30)], 39),
    ("pause", 12.0): ([1, 10, 2], [(12, 30)], 31),
    ("finish", 0.5): ([1, 10, 2], [(0.5, 30)], 42.5),
    # It computes offline until 11 s, and waits to report.
    ("finish", 4.0): ([1, 10, 2], [(11, 30)], 32),
    ("finish", 12.0): ([1, 10, 2], [(12, 30)], 31),
    ("send_partial", 0.5): ([1, 10, 2], [(0.5, 30)], 42.5),
    # It has done three steps, and waits to report.
    ("send_partial", 4.0): ([1, 3, 2], [(4, 30)], 32),
    ("send_partial", 12.0): ([1, 10, 2], [(12, 30)], 31),
}


def simulate(
    folder: Path,
    policy: str,
    sessions: list[tuple[float, float]],
    network: dict[str, Any] | None = None,
    until: float = 100,
) -> Run:
    online_bundle(sessions, horizon_s=1000).write(folder / "bundle")
    return fedsim.run(
        {
            "task": {"name": "timing", "clients": 1, "size": "1MB"},
            "training": {"local_steps": 10},
            "devices": {
                "trace": str(folder / "bundle"),
                "compute": {"name": "values", "step": ["1s"]},
                "network": network or LINKS[0],
                "availability": {"name": "trace", "on_disconnect": policy},
            },
            "server": {
                "selection": {"name": "uniform", "cohort": 1},
                "schedule": {"name": "sync", "pause": "1h"},
            },
            "stop": {"simulated_time": until},
        },
        folder / "run",
        timing_only=True,
    )


def seconds(run: Run) -> list[float]:
    parts = ("download", "compute", "upload", "paused", "waiting", "idle", "offline")
    return [run.clients[f"{part}_s"].item() for part in parts]


@pytest.mark.parametrize("network", LINKS, ids=["static", "shared"])
@pytest.mark.parametrize(("policy", "leaves"), COURSES)
def test_a_dispatch_that_its_client_interrupts(
    policy: str, leaves: float, network: dict[str, Any], tmp_path: Path
) -> None:
    work, pauses, ended = COURSES[policy, leaves]
    run = simulate(tmp_path, policy, [(0, leaves), (30, 60)], network)
    (row,) = run.dispatches.to_dict("records")
    assert [row[f"{name}_s"] for name in ("download", "compute", "upload")] == work
    assert row["ended_s"] == ended
    assert run.pauses is not None
    assert run.pauses.to_numpy().tolist() == [[0, *pause] for pause in pauses]
    paused = sum(to - since for since, to in pauses)
    offline = 100 - leaves - 30
    # With `finish`, it computes offline from 4 to 11 s.
    worked_offline = 7 if (policy, leaves) == ("finish", 4.0) else 0
    rest = offline - paused - worked_offline
    idle = 100 - sum(work) - paused - rest
    assert seconds(run) == pytest.approx([*work, paused, 0, idle, rest], abs=1e-9)
    assert run.clients["online_fraction"].item() == pytest.approx(1 - offline / 100)
    joules = np.dot(work, [0.8, 2.5, 1.2])
    assert row["energy_j"] == pytest.approx(joules)


@pytest.mark.parametrize(
    ("sessions", "recharging_s"),
    [
        ([(0, 3000)], 340),
        # Offline from 1250 to 1300 s.
        ([(0, 1250), (1300, 3000)], 290),
        ([(0, 61)], 0),
        # Back exactly when the charge is at the floor.
        ([(0, 300), (1540, 3000)], 0),
    ],
    ids=["always", "away meanwhile", "never back", "back at the floor"],
)
def test_recharging_is_idle_time_below_the_floor(
    sessions: list[tuple[float, float]], recharging_s: float, tmp_path: Path
) -> None:
    """As above: client 0 works until 60 s, its update waits until 1200 s, and the run ends at 2400 s.

    Its 57 s of steps at 50 W take 2850 J, and 1480 J are missing, which come back in 1480 s, until 1540 s. Client 1 is
    idle from 1200 s on, and the run ends long before its battery is at the floor.
    """
    scenario = waiting_update(sessions, tmp_path)
    floor = 1 - (2850 - 1480) / 100_000
    scenario["devices"]["energy"] = {
        "compute_w": 50,
        "download_w": 0,
        "upload_w": 0,
        "recharge_w": 1,
        "battery_j": 100_000,
        "battery_floor": floor,
    }
    run = fedsim.run(scenario, tmp_path / "run", timing_only=True)
    assert run.clients["recharging_s"].tolist() == pytest.approx([recharging_s, 1200], abs=1e-6)
    spent = where_time_went(run.phases, run.clients)
    assert spent["recharging"] == pytest.approx(recharging_s + 1200)
    assert sum(spent.values()) == pytest.approx(2 * 2400)


@pytest.mark.parametrize(
    ("sessions", "idle_s", "offline_s"),
    [
        ([(0, 3000)], 1200, 0),
        ([(0, 300), (1800, 3000)], 600, 600),
        ([(0, 70), (100, 110), (1000, 1300), (2300, 2500)], 200, 1000),
        ([(0, 61)], 0, 1200),
        # Back exactly when the version is made.
        ([(0, 300), (1200, 2000)], 800, 400),
    ],
    ids=["always", "back later", "several absences", "never back", "back at once"],
)
def test_an_update_waits_while_its_client_is_offline(
    sessions: list[tuple[float, float]], idle_s: float, offline_s: float, tmp_path: Path
) -> None:
    """The update of client 0 arrives at 60 s and waits until client 1 makes the version at 1200 s.

    The run ends at 2400 s: 1140 s of waiting whether it is online or not, and 1200 s online or offline after that.
    """
    run = fedsim.run(waiting_update(sessions, tmp_path), tmp_path / "run", timing_only=True)
    assert run.aggregations["time_s"].iloc[0] == 1200
    client = run.clients.iloc[0]
    parts = ("download", "compute", "upload", "paused", "waiting", "idle", "offline")
    expected = [1, 57, 2, 0, 1140, idle_s, offline_s]
    assert [client[f"{part}_s"] for part in parts] == pytest.approx(expected, abs=1e-9)
    assert sum(client[f"{part}_s"] for part in parts) == pytest.approx(2400)


def waiting_update(sessions: list[tuple[float, float]], tmp_path: Path) -> dict[str, Any]:
    """A round of client 0, which is online in these sessions and takes 60 s, and client 1, which takes 1200 s."""
    online_bundle(sessions, [(0, 3000)], horizon_s=3000).write(tmp_path / "bundle")
    return {
        "task": {"name": "timing", "clients": 2, "size": "1MB"},
        "training": {"local_steps": 10},
        "devices": {
            "trace": str(tmp_path / "bundle"),
            "compute": {"name": "values", "step": ["5.7s", "119.7s"]},
            "network": LINKS[0],
            "availability": {"name": "trace"},
        },
        "server": {
            "selection": {"name": "scripted", "rounds": [[0, 1], [1]]},
            "schedule": {"name": "sync"},
        },
        "stop": {"simulated_time": 2400},
    }
