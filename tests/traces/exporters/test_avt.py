"""Exporting to AVT: round trips, and what the format cannot hold."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.traces.exporters import registry as exporters
from tests.traces.helpers import import_, intervals, online, write

US = 1_000_000


def export(bundle: Any, path: Path) -> tuple[str, dict[str, int]]:
    exporter = exporters()["avt"]
    counts = exporter.write(bundle, path, exporter.Params())
    return path.read_text(), counts


def test_round_trip_is_byte_exact(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avt", "x\t2\t 5 10 20 30", "y\t0\t ", "z\t1\t 0 30")
    bundle = import_("avt", path)
    assert intervals(bundle) == {
        "x": [(5 * US, 10 * US), (20 * US, 30 * US)],
        "y": [],
        "z": [(0, 30 * US)],
    }
    text, counts = export(bundle, tmp_path / "b.avt")
    assert text == path.read_text()
    assert counts == {"rounded": 0, "vanished": 0, "nodes": 3, "invalid_devices": 0}


def test_export_rounds_to_seconds_and_counts(tmp_path: Path) -> None:
    source = tmp_path / "t.json"
    ready = [[10.4, 11.6], [20.1, 20.3], [30.0, 31.0]]
    device = {"isSuccess": True, "trace_start": 0.0, "trace_end": 60.0, "ready_time": ready}
    bad = {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []}
    source.write_text(json.dumps({"a": device, "b": bad}))
    text, counts = export(import_("flash", source), tmp_path / "a.avt")
    assert text == "a\t2\t 10 12 30 31\n"
    assert counts == {"rounded": 2, "vanished": 1, "nodes": 1, "invalid_devices": 1}


def test_export_refuses_names_with_spaces(tmp_path: Path) -> None:
    source = tmp_path / "t.json"
    source.write_text(json.dumps({"my phone": {"active": [0], "inactive": [1], "finish_time": 9}}))
    with pytest.raises(UserError, match="my phone"):
        export(import_("fedscale", source), tmp_path / "a.avt")


@pytest.mark.real_data
def test_sample_round_trip_and_count(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "format_fixtures" / "sample.avt"
    bundle = import_("avt", source)
    assert export(bundle, tmp_path / "b.avt")[0].encode() == source.read_bytes()
    raw = {}
    for line in source.read_text().splitlines():
        name, _, times = line.split("\t")
        values = [int(value) for value in times.split()]
        raw[name] = list(zip(values[::2], values[1::2], strict=True))
    end = max(stop for spans in raw.values() for _, stop in spans)
    generator = random.Random(1)
    for _ in range(50):
        time_s = generator.uniform(0, end)
        expected = {n for n, spans in raw.items() if any(a <= time_s < b for a, b in spans)}
        assert online(bundle, time_s * US) == expected
