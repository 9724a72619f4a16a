"""Event files, read by an independent reader and by TensorBoard."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.analysis.export import export
from fedsim.runs import Run
from fedsim.tracking.events import record
from tests.analysis.documents import parquet


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
