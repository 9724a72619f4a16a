"""Runs for other tools: the Chrome trace, CSV, TensorBoard, each read back by an independent reader."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from synthetic_runs import build_run

from fedsim.analysis.export import FORMATS, export
from fedsim.cli.export import command
from fedsim.errors import UserError
from fedsim.runs import Run
from fedsim.tracking.events import crc32c, record


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("export") / "run"
    return build_run(path, clients=25, hours=24, asynchronous=True, seed=3)


@pytest.fixture(scope="module")
def trace(run: Run) -> list[dict[str, Any]]:
    return read_trace(export(run, "perfetto"))


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


def parquet(run: Run, table: str) -> pd.DataFrame:
    return pd.read_parquet(run.path / f"{table}.parquet")


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
    told = ["round", "version", "aggregated_version", "staleness", "steps_assigned", "steps_done"]
    told += ["bytes_down", "bytes_up", "energy_j"]
    of_clients = [event for event in trace if event["ph"] == "X" and event["cat"] != "version"]
    dispatches: dict[int, list[dict[str, Any]]] = {}
    for event in of_clients:
        if event["cat"] == "dispatch":
            current = dispatches[event["args"]["dispatch_id"]] = []
        current.append(event)
    assert sorted(dispatches) == table.index.tolist()
    for number, (whole, *inner) in dispatches.items():
        row = table.loc[number]
        assert whole["name"] == row["outcome"]
        assert whole["args"] == {"dispatch_id": number} | row[told].dropna().to_dict()
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
    assert len(depth) == 26
    assert depth.pop((1, 2)) == 1
    assert set(depth.values()) == {2}


def test_the_check_of_the_format_can_fail(trace: list[dict[str, Any]]) -> None:
    place = next(i for i, event in enumerate(trace) if event.get("cat") == "dispatch")
    for spoiled in (
        {"dur": trace[place]["dur"] / 2},
        {"tid": 0},
        {"tid": 5},
        {"ts": -1.0},
        {"ph": "B"},
        {"pid": 7},
    ):
        broken = [*trace]
        broken[place] = {**trace[place], **spoiled}
        with pytest.raises(AssertionError):
            check_format(broken)


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
    work = counters["clients at work"]
    assert work[-1]["args"][""] == 0
    for event in work[:: len(work) // 20]:
        now = event["ts"] / 1e6 + 1e-10
        going = (table["dispatched_s"] <= now) & (table["ended_s"] > now)
        assert event["args"][""] == going.sum()
    online = parquet(run, "online")
    assert [e["args"][""] for e in counters["clients online"]] == online["online"].tolist()


def test_csv_holds_every_table(run: Run, tmp_path: Path) -> None:
    folder = export(run, "csv", tmp_path / "tables")
    for name in ("dispatches", "aggregations", "metrics", "clients", "online", "partition"):
        found, known = pd.read_csv(folder / f"{name}.csv"), parquet(run, name)
        assert list(found) == list(known)
        plain = [
            column
            for column in known
            if column not in ("contributor_ids", "multiplicities", "attributes", "outcome")
        ]
        pd.testing.assert_frame_equal(found[plain], known[plain], check_dtype=False)
    found, known = pd.read_csv(folder / "aggregations.csv"), parquet(run, "aggregations")
    ids = [list(map(int, text.split())) for text in found["contributor_ids"]]
    assert ids == known["contributor_ids"].map(list).tolist()
    assert [json.loads(text) for text in found["attributes"]] == known["attributes"].map(
        dict
    ).tolist()
    assert (
        pd.read_csv(folder / "dispatches.csv")["outcome"].tolist()
        == parquet(run, "dispatches")["outcome"].tolist()
    )


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """A protocol buffer message as numbers and raw values, by the wire format alone."""
    found, at = [], 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = (
                struct.unpack("<d" if kind == 1 else "<f", data[at : at + size])[0],
                at + size,
            )
        else:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        found.append((key >> 3, value))
    return found


def read_events(path: Path) -> list[dict[int, Any]]:
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + size]
        assert data[at : at + 16 + size] == record(body)
        events.append(dict(fields(body)))
        at += 16 + size
    return events


def scalars(events: list[dict[int, Any]]) -> dict[str, list[tuple[float, int, float]]]:
    found: dict[str, list[tuple[float, int, float]]] = {}
    for event in events:
        for number, value in fields(event.get(5, b"")):
            assert number == 1
            parts = dict(fields(value))
            point = (event.get(1, 0.0), event.get(2, 0), parts[2])
            found.setdefault(parts[1].decode(), []).append(point)
    return found


def test_tensorboard_events(run: Run, tmp_path: Path) -> None:
    folder = export(run, "tensorboard", tmp_path / "events")
    (path,) = folder.iterdir()
    assert ".tfevents." in path.name
    events = read_events(path)
    assert events[0][3] == b"brain.Event:2"
    found = scalars(events)
    metrics, updates = parquet(run, "metrics"), parquet(run, "aggregations")
    for name in ("accuracy", "loss"):
        expected = zip(
            metrics["time_s"], metrics["version"], np.float32(metrics[name]), strict=True
        )
        assert found[name] == [(t, v, float(value)) for t, v, value in expected]
    assert [step for _, step, _ in found["server/contributors"]] == updates["version"].tolist()
    assert [value for *_, value in found["server/contributors"]] == updates["contributors"].tolist()


def test_check_sums_are_those_of_the_standard() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(b"\x00" * 32) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
def test_tensorboard_reads_it(run: Run, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(export(run, "tensorboard", tmp_path / "events")))
    events.Reload()
    shown = [(event.step, event.value) for event in events.Scalars("accuracy")]
    metrics = parquet(run, "metrics")
    assert shown == list(
        zip(metrics["version"], map(float, np.float32(metrics["accuracy"])), strict=True)
    )


@pytest.mark.parametrize("name", FORMATS)
def test_runs_that_were_killed_or_only_timed_are_exported_too(name: str, tmp_path: Path) -> None:
    killed = build_run(tmp_path / "killed", hours=3, finish=False)
    timed = build_run(tmp_path / "timed", hours=3, learning=False)
    for run in (killed, timed):
        path = export(run, name)
        assert path.exists()
        if name == "perfetto":
            assert check_format(read_trace(path))


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UserError, match="already exists"):
        export(run, "csv", tmp_path / "taken")
    with pytest.raises(UserError, match="there is no format 'xlsx'"):
        export(run, "xlsx", tmp_path / "x")


def test_command(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "timeline.json"
    result = CliRunner().invoke(command, [str(run.path), "--format", "perfetto", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == str(out)
    assert json.loads(out.read_text())["otherData"]["run"] == "night-shift"
    option = next(param for param in command.params if param.name == "format_")
    assert list(option.type.choices) == list(FORMATS)
