"""Whole runs on real traces against readings of the raw files that share no code with importer, index or server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.parts.catalog import CATALOG
from fedsim.runs.run import Run
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import import_bundle
from fedsim.traces.validation import implausible_rates, implausible_times

pytestmark = pytest.mark.real_data

OnlineAt = Callable[[str, float], bool]


def imported(name: str, folder: Path, *paths: Path) -> TraceBundle:
    importer: Any = CATALOG.parts("importer")[name]
    bundle: TraceBundle = import_bundle(importer, list(paths), importer.Params())
    assert implausible_times(bundle) is None
    assert implausible_rates(bundle) is None
    bundle.write(folder)
    return bundle


def run_of(bundle: TraceBundle, folder: Path, devices: dict[str, Any], days: float) -> Run:
    """An asynchronous run of all devices of a bundle; the trace's own time 0 is the run's."""
    scenario = {
        "name": "replay",
        "task": {"name": "timing", "clients": bundle.device_count, "samples": 32},
        "training": {"local_steps": 20},
        "devices": {"trace": str(bundle.path), **devices},
        "server": {"schedule": {"name": "async", "concurrency": 5}},
        "stop": {"simulated_time": days * 86_400},
    }
    return fedsim.run(scenario, folder, timing_only=True)


def check(run: Run, names: list[str], online_at: OnlineAt) -> None:
    """Online counts, who was given work, and who stayed until the work was done."""
    online = run.online
    assert online is not None
    assert len(online) > 250
    for row in online.iloc[::41].itertuples():
        count = sum(online_at(name, row.time_s) for name in names)
        # A count at a boundary: the sources count the last instant of an interval, half-open intervals do not.
        ends = sum(
            online_at(name, row.time_s) != online_at(name, row.time_s + 1e-3) for name in names
        )
        assert count - ends <= row.online <= count, row.time_s
    dispatches = run.dispatches
    assert len(dispatches) > 500
    assert (dispatches["outcome"] == "dropped").sum() > 10
    for row in dispatches.iloc[::5].itertuples():
        name = names[int(row.client_id)]
        assert online_at(name, row.dispatched_s)
        if row.outcome == "aggregated":
            assert online_at(name, row.arrived_s)
            assert online_at(name, (row.dispatched_s + row.arrived_s) / 2)
        elif row.outcome == "dropped":
            assert not online_at(name, row.ended_s + 1e-3)


def test_fedscale(fedsim_data: Path, tmp_path: Path) -> None:
    source = fedsim_data / "traces" / "fedscale_100"
    behaviour = json.loads((source / "client_behave_trace_100.json").read_text())
    capacity = json.loads((source / "client_device_capacity_100.json").read_text())
    paths = (source / "client_behave_trace_100.json", source / "client_device_capacity_100.json")
    bundle = imported("fedscale", tmp_path / "bundle", *paths)
    names = bundle.device_ids.to_pylist()
    run = run_of(bundle, tmp_path / "run", {"compute": {"train_factor": 3.0}}, days=2)

    def online_at(name: str, t: float) -> bool:
        entry = behaviour[name]
        t %= entry["finish_time"]
        return any(a <= t <= b for a, b in zip(entry["active"], entry["inactive"], strict=True))

    check(run, names, online_at)
    # FedScale's law of a step and of a transfer, with both latencies of 40 ms.
    whole = run.dispatches[run.dispatches["outcome"] == "aggregated"].iloc[::50]
    for row in whole.itertuples():
        entry = capacity[names[int(row.client_id)]]
        compute_s = 20 * 32 * 3.0 * entry["computation"] / 1000
        assert row.computed_s - row.downloaded_s == pytest.approx(compute_s, rel=1e-9)
        transfer_s = 0.04 + 4e6 * 8 / (entry["communication"] * 1000)
        assert row.arrived_s - row.computed_s == pytest.approx(transfer_s, rel=1e-6)


def test_flash(fedsim_data: Path, tmp_path: Path) -> None:
    path = fedsim_data / "traces" / "flash_state_1k" / "cached_timers.json"
    raw = json.loads(path.read_text())
    bundle = imported("flash", tmp_path / "bundle", path)
    devices = {
        "compute": {"name": "lognormal", "median": "2s"},
        "network": {"name": "static", "down": "20Mbps", "up": "5Mbps"},
    }
    run = run_of(bundle, tmp_path / "run", devices, days=1)

    def online_at(name: str, t: float) -> bool:
        entry = raw[name]
        if not entry["isSuccess"]:
            return False
        start, end = entry["trace_start"], entry["trace_end"]
        t = (t - start) % (end - start) + start
        return any(a <= t <= b for a, b in entry["ready_time"] if b > a)

    check(run, bundle.device_ids.to_pylist(), online_at)
