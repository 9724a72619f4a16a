"""Runs for other tools: the Chrome trace, CSV, TensorBoard, each read back by an independent reader."""

from __future__ import annotations

import importlib.util
import itertools
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
from fedsim.analysis.export.tensorboard import crc32c, record
from fedsim.cli.export import command
from fedsim.errors import UserError
from fedsim.runs import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("export") / "run"
    return build_run(path, clients=25, hours=24, asynchronous=True, seed=3)


@pytest.fixture(scope="module")
def trace(run: Run) -> list[dict[str, Any]]:
    document = json.loads(export(run, "perfetto").read_text())
    assert document["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def parquet(run: Run, table: str) -> pd.DataFrame:
    return pd.read_parquet(run.path / f"{table}.parquet")


def test_slices_are_the_phases_of_the_dispatches(run: Run, trace: list[dict[str, Any]]) -> None:
    table = parquet(run, "dispatches").set_index("dispatch_id")
    made = parquet(run, "aggregations").set_index("version")["time_s"]
    slices = [event for event in trace if event["ph"] == "X"]
    following = table.groupby("client_id")["dispatched_s"].shift(-1)
    columns = {
        "download": ("dispatched_s", "downloaded_s"),
        "compute": ("downloaded_s", "computed_s"),
        "upload": ("computed_s", "arrived_s"),
    }
    for event in slices:
        row = table.loc[event["args"]["dispatch_id"]]
        assert event["tid"] == row["client_id"] + 1
        if event["name"] == "waiting":
            entered = row["aggregated_version"]
            until = run.simulated_s if pd.isna(entered) else made[entered]
            begin, end = row["arrived_s"], np.fmin(until, following[row.name])
        else:
            begin, end = (row[name] for name in columns[event["name"]])
            end = row["ended_s"] if np.isnan(end) else end
        assert event["ts"] == pytest.approx(begin * 1e6, abs=1e-3)
        assert event["ts"] + event["dur"] == pytest.approx(end * 1e6, abs=2e-3)
    counts = Counter(event["name"] for event in slices)
    for name, (begin_column, _) in columns.items():
        assert counts[name] == table[begin_column].notna().sum()
    assert counts["waiting"] > 100


def test_slices_of_a_track_do_not_overlap(trace: list[dict[str, Any]]) -> None:
    """To the nanosecond, or a viewer would nest them."""
    tracks: dict[int, list[tuple[int, int]]] = {}
    for event in trace:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            tracks.setdefault(event["tid"], []).append((begin, begin + round(event["dur"] * 1000)))
    assert len(tracks) == 25
    for spans in tracks.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_outcomes_updates_and_names(run: Run, trace: list[dict[str, Any]]) -> None:
    table, updates = parquet(run, "dispatches"), parquet(run, "aggregations")
    instants = [event for event in trace if event["ph"] == "i"]
    outcomes = Counter(event["name"] for event in instants if event["cat"] == "outcome")
    assert outcomes == Counter(table["outcome"])
    ends = {e["args"]["dispatch_id"]: e["ts"] for e in instants if e["cat"] == "outcome"}
    expected = table.set_index("dispatch_id")["ended_s"] * 1e6
    assert ends == pytest.approx(expected.to_dict(), abs=1e-3)
    versions = [event for event in instants if event["cat"] == "update"]
    assert [event["name"] for event in versions] == [f"version {v}" for v in updates["version"]]
    assert [e["ts"] for e in versions] == pytest.approx((updates["time_s"] * 1e6).tolist())
    names = {e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {"updates", "client 0", "client 24"} <= names


def test_counters(run: Run, trace: list[dict[str, Any]]) -> None:
    table, metrics = parquet(run, "dispatches"), parquet(run, "metrics")
    counters: dict[str, list[dict[str, Any]]] = {}
    for event in trace:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append(event)
    assert [e["args"]["value"] for e in counters["accuracy"]] == metrics["accuracy"].tolist()
    assert [e["ts"] for e in counters["accuracy"]] == pytest.approx(
        (metrics["time_s"] * 1e6).tolist()
    )
    work = counters["clients at work"]
    assert work[-1]["args"]["value"] == 0
    for event in work[:: len(work) // 20]:
        now = event["ts"] / 1e6 + 1e-10
        going = (table["dispatched_s"] <= now) & (table["ended_s"] > now)
        assert event["args"]["value"] == going.sum()
    online = parquet(run, "online")
    assert [e["args"]["value"] for e in counters["clients online"]] == online["online"].tolist()


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
        assert export(run, name).exists()


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UserError, match="is there already"):
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
