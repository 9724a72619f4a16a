"""The tables that are written when a run ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedsim
from fedsim.analysis.run import load_run
from fedsim.runs.clients import sampled_clients
from tests.devices.worlds import LINKS, STEPS, timing
from tests.traces.cases import HOUR, bundle_of


def test_the_intervals_of_the_dispatched_clients(tmp_path: Path) -> None:
    """Three phones over six hours of which one never works: it is not in the table."""
    hours = {
        "a": [(0, 2 * HOUR), (3 * HOUR, 9 * HOUR)],
        "b": [(HOUR, 5 * HOUR)],
        "c": [(0, 9 * HOUR)],
    }
    bundle_of(hours).write(tmp_path / "phones")
    devices = {"trace": str(tmp_path / "phones"), "compute": STEPS, "network": LINKS}
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
    devices = {"compute": compute, "network": LINKS, "failures": {"crash_rate": 60}}
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
