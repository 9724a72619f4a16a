"""All exports: killed and timing-only runs, files that exist; CSV and TensorBoard against the tables of the run."""

import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedsim.analysis.export import FORMATS, export
from fedsim.errors import UserError
from fedsim.runs import Run
from fedsim.runs.schema import LABELS
from fedsim.tracking.events import record
from tests.analysis.documents import parquet
from tests.analysis.test_perfetto import check_format, read_trace
from tests.runs.synthetic_runs import build_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("export") / "run"
    return build_run(path, clients=25, hours=12, asynchronous=True, seed=3)


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


def test_csv_holds_every_table(run: Run, tmp_path: Path) -> None:
    folder = export(run, "csv", tmp_path / "tables")
    for name in ("dispatches", "aggregations", "metrics", "clients", "online", "partition"):
        exported, known = pd.read_csv(folder / f"{name}.csv"), parquet(run, name)
        assert list(exported) == list(known)
        plain = [
            column
            for column in known
            if column not in ("contributor_ids", "multiplicities", "attributes", *LABELS)
        ]
        pd.testing.assert_frame_equal(exported[plain], known[plain], check_dtype=False)
    exported, known = pd.read_csv(folder / "aggregations.csv"), parquet(run, "aggregations")
    ids = [list(map(int, text.split())) for text in exported["contributor_ids"]]
    assert ids == known["contributor_ids"].map(list).tolist()
    assert [json.loads(text) for text in exported["attributes"]] == known["attributes"].map(
        dict
    ).tolist()
    exported, known = pd.read_csv(folder / "dispatches.csv"), parquet(run, "dispatches")
    for name in LABELS:
        assert exported[name].fillna("").tolist() == known[name].astype(str).fillna("").tolist()


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
    numbered, at = [], 0
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
        numbered.append((key >> 3, value))
    return numbered


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
    curves: dict[str, list[tuple[float, int, float]]] = {}
    for event in events:
        for number, value in fields(event.get(5, b"")):
            assert number == 1
            parts = dict(fields(value))
            point = (event.get(1, 0.0), event.get(2, 0), parts[2])
            curves.setdefault(parts[1].decode(), []).append(point)
    return curves


def test_tensorboard_events(run: Run, tmp_path: Path) -> None:
    folder = export(run, "tensorboard", tmp_path / "events")
    (path,) = folder.iterdir()
    assert ".tfevents." in path.name
    events = read_events(path)
    assert events[0][3] == b"brain.Event:2"
    read_scalars = scalars(events)
    metrics, updates = parquet(run, "metrics"), parquet(run, "aggregations")
    for name in ("accuracy", "loss"):
        expected = zip(
            metrics["time_s"], metrics["version"], np.float32(metrics[name]), strict=True
        )
        assert read_scalars[name] == [(t, v, float(value)) for t, v, value in expected]
    assert [step for _, step, _ in read_scalars["server/contributors"]] == updates[
        "version"
    ].tolist()
    assert [value for *_, value in read_scalars["server/contributors"]] == updates[
        "contributors"
    ].tolist()


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
