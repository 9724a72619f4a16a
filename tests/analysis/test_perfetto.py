"""The Chrome trace of a run against its tables, and against the format's rules."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedsim.analysis.export import export
from fedsim.runs import Run
from tests.analysis.documents import parquet
from tests.composition.test_closing import simulate
from tests.runs.synthetic_runs import build_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("export") / "run"
    return build_run(path, clients=25, hours=12, asynchronous=True, seed=3)


def read_trace(path: Path) -> list[dict[str, Any]]:
    """The events of a Chrome trace."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    document = json.loads(path.read_text(), parse_constant=refuse)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def check_format(events: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Hold a trace against the Trace Event Format (Google, 2016); how deep each track is.

    Beyond the format: viewers take track 0, or one with its process's number, for the process itself, and process 2
    for the kernel; slices of a track must lie inside or beside each other, those outside first.
    """
    named: dict[str, set[tuple[int, ...]]] = {"process_name": set(), "thread_name": set()}
    open_until: dict[tuple[int, int], list[int]] = {}
    depth: dict[tuple[int, int], int] = {}
    slices = []
    for event in events:
        assert event["name"]
        assert type(event["pid"]) is int
        assert event["pid"] not in (0, 2)
        track = (event["pid"], event.get("tid", -1))
        if event["ph"] == "M":
            kinds = {"process_name", "thread_name", "process_sort_index", "thread_sort_index"}
            assert event["name"] in kinds
            (value,) = event["args"].values()
            assert type(value) is (int if event["name"].endswith("index") else str)
            if event["name"] in named:
                key = track if event["name"] == "thread_name" else track[:1]
                assert key not in named[event["name"]]
                named[event["name"]].add(key)
            continue
        assert (event["pid"],) in named["process_name"]
        assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(type(value) in (int, float) for value in event["args"].values())
            continue
        assert event["ph"] == "X"
        assert event["cat"]
        assert event["tid"] not in (0, event["pid"])
        assert track in named["thread_name"]
        slices.append((round(event["ts"] * 1000), -round(event["dur"] * 1000), len(slices), track))
    # The sort is stable: of slices that begin and end together, the one that comes first is outside.
    for begin, negative, _, track in sorted(slices):
        assert negative <= 0
        end = begin - negative
        around = open_until.setdefault(track, [])
        while around and around[-1] <= begin and not (negative == 0 and around[-1] == begin):
            around.pop()
        assert not around or end <= around[-1], f"{track} at {begin} ns"
        around.append(end)
        depth[track] = max(depth.get(track, 0), len(around))
    return depth


@pytest.fixture(scope="module")
def trace(run: Run) -> list[dict[str, Any]]:
    return read_trace(export(run, "perfetto"))


def test_slices_are_the_phases_of_the_dispatches(run: Run, trace: list[dict[str, Any]]) -> None:
    table = parquet(run, "dispatches").set_index("dispatch_id")
    made = parquet(run, "aggregations").set_index("version")["time_s"]
    following = table.groupby("client_id")["dispatched_s"].shift(-1)
    columns = {
        "download": ("dispatched_s", "downloaded_s"),
        "compute": ("downloaded_s", "computed_s"),
        "upload": ("computed_s", "arrived_s"),
    }
    carried = {"download": "bytes_down", "compute": "steps_done", "upload": "bytes_up"}
    arguments = [
        "round",
        "version",
        "aggregated_version",
        "staleness",
        "steps_assigned",
        "steps_done",
    ]
    arguments += ["bytes_down", "bytes_up", "energy_j", "cause"]
    of_clients = [event for event in trace if event["ph"] == "X" and event["pid"] == 3]
    dispatches: dict[int, list[dict[str, Any]]] = {}
    for event in of_clients:
        if event["cat"] == "dispatch":
            current = dispatches[event["args"]["dispatch_id"]] = []
        current.append(event)
    assert sorted(dispatches) == table.index.tolist()
    rows = table.to_dict("index")
    for number, (whole, *inner) in dispatches.items():
        row = rows[number]
        assert whole["name"] == row["outcome"]
        assert whole["args"] == {"dispatch_id": number} | {
            name: row[name] for name in arguments if pd.notna(row[name])
        }
        assert {event["tid"] for event in (whole, *inner)} == {10_000_000 + row["client_id"]}
        for event in inner:
            if event["name"] == "waiting":
                entered = row["aggregated_version"]
                until = run.simulated_s if pd.isna(entered) else made[entered]
                begin, end = row["arrived_s"], np.fmin(until, following[number])
                assert event["args"] == {}
            else:
                begin, end = (row[name] for name in columns[event["name"]])
                end = row["ended_s"] if np.isnan(end) else end
                key = carried[event["name"]]
                assert event["args"] == {key: row[key]}
            assert event["ts"] == pytest.approx(begin * 1e6, abs=1e-3)
            assert event["ts"] + event["dur"] == pytest.approx(end * 1e6, abs=2e-3)
        assert whole["ts"] == inner[0]["ts"]
        ends = [event["ts"] + event["dur"] for event in inner]
        assert whole["ts"] + whole["dur"] == pytest.approx(max(ends), abs=1e-4)
    counts = Counter(event["name"] for event in of_clients if event["cat"] == "phase")
    for name, (begin_column, _) in columns.items():
        assert counts[name] == table[begin_column].notna().sum()
    assert counts["waiting"] > 100


def test_the_trace_keeps_to_its_format(trace: list[dict[str, Any]]) -> None:
    depth = check_format(trace)
    assert len(depth) == 27
    assert depth.pop((1, 2)) == depth.pop((1, 3)) == 1
    assert set(depth.values()) == {2}


def test_the_critical_path_is_a_track(run: Run, trace: list[dict[str, Any]]) -> None:
    path = [event for event in trace if event.get("cat") == "critical"]
    assert run.critical is not None
    assert len(path) == len(run.critical)
    end = run.aggregations["time_s"].iloc[-1] * 1e6
    assert path[-1]["ts"] + path[-1]["dur"] == pytest.approx(end, abs=1e-3)
    assert sum(event["dur"] for event in path) == pytest.approx(end)


def test_versions_and_names(run: Run, trace: list[dict[str, Any]]) -> None:
    updates = parquet(run, "aggregations")
    versions = [event for event in trace if event.get("cat") == "version"]
    assert [event["name"] for event in versions] == [
        "version 0",
        *(f"version {version}" for version in updates["version"]),
    ]
    times = [0.0, *(updates["time_s"] * 1e6)]
    assert [event["ts"] for event in versions] == pytest.approx(times)
    ends = [event["ts"] + event["dur"] for event in versions]
    assert ends == pytest.approx([*times[1:], run.simulated_s * 1e6])
    assert [e["args"]["contributors"] for e in versions[1:]] == updates["contributors"].tolist()
    names = {e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {"model versions", "client 0", "client 24"} <= names


def test_counters(run: Run, trace: list[dict[str, Any]]) -> None:
    table, metrics = parquet(run, "dispatches"), parquet(run, "metrics")
    counters: dict[str, list[dict[str, Any]]] = {}
    for event in trace:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append(event)
    shown = counters["accuracy (%)"]
    assert [e["args"][""] for e in shown] == pytest.approx((100 * metrics["accuracy"]).tolist())
    assert [e["ts"] for e in shown] == pytest.approx((metrics["time_s"] * 1e6).tolist())
    assert [e["args"][""] for e in counters["loss"]] == metrics["loss"].tolist()
    work = counters["clients working"]
    assert work[-1]["args"][""] == 0
    for event in work[:: len(work) // 20]:
        now = event["ts"] / 1e6 + 1e-10
        going = (table["dispatched_s"] <= now) & (table["ended_s"] > now)
        assert event["args"][""] == going.sum()
    online = parquet(run, "online")["online"]
    changes = online[online.diff() != 0].tolist()
    assert [e["args"][""] for e in counters["clients online"]] == changes


def test_pauses_interrupt_phases(tmp_path: Path) -> None:
    """Online for the first 3 of every 10 s: one dispatch computes from 1 to 3 s, 10 to 13 s and 20 to 23 s."""
    sessions = [(at, at + 3) for at in range(0, 200, 10)]
    paused = simulate(tmp_path, "pause", [(float(a), float(b)) for a, b in sessions], until=28)
    trace = read_trace(export(paused, "perfetto"))
    check_format(trace)
    slices = [
        (event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in trace
        if event["ph"] == "X" and event["cat"] == "phase"
    ]
    assert slices == [
        ("download", 0, 1),
        *(("compute", 1, 3), ("paused", 3, 10)),
        *(("compute", 10, 13), ("paused", 13, 20)),
        *(("compute", 20, 23), ("paused", 23, 28)),
    ]
    at_work = [
        (event["ts"] / 1e6, event["args"][""])
        for event in trace
        if event["ph"] == "C" and event["name"] == "clients working"
    ]
    assert at_work == [(0, 1), (3, 0), (10, 1), (13, 0), (20, 1), (23, 0), (28, 0)]
