"""Exporting to Failure Trace Archive tables: round trips, and what the format cannot hold."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.traces.fta_tables import export, row
from tests.traces.helpers import import_, intervals, online, write

US = 1_000_000


def test_export_fills_the_gaps_of_other_sources(tmp_path: Path) -> None:
    source = tmp_path / "a.avt"
    source.write_text("x\t2\t 5 10 20 30\ny\t0\t \n")
    rows, counts = export(import_("avt", source, window=40), tmp_path / "e.tab")
    assert [(r[4], r[5], r[6], r[7]) for r in rows] == [
        ("x", "0", "0.000", "5.000"),
        ("x", "1", "5.000", "10.000"),
        ("x", "0", "10.000", "20.000"),
        ("x", "1", "20.000", "30.000"),
        ("x", "0", "30.000", "40.000"),
        ("y", "0", "0.000", "40.000"),
    ]
    assert counts == {"gaps_written": 4, "events": 6, "invalid_devices": 0}
    again = import_("fta", tmp_path / "e.tab")
    assert intervals(again) == {"0": [(5 * US, 10 * US), (20 * US, 30 * US)], "1": []}


def test_microseconds_survive(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tab", row(7, 1, "1136073600.000001", "1136073601.25"))
    rows, _ = export(import_("fta", path), tmp_path / "out.tab")
    assert rows[0][6:8] == ["1136073600.000001", "1136073601.250"]


@pytest.mark.real_data
def test_fixture_round_trip_and_count(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "format_fixtures" / "fta_event_trace.tab"
    bundle = import_("fta", source)
    export(bundle, tmp_path / "out.tab")
    assert (tmp_path / "out.tab").read_bytes() == source.read_bytes()
    assert {key for key, count in bundle.manifest.counts.items() if count} == set()
    raw: dict[str, list[tuple[float, float]]] = {}
    for line in source.read_text().splitlines()[1:]:
        fields = line.split("\t")
        if fields[5] == "1":
            raw.setdefault(fields[2], []).append((float(fields[6]), float(fields[7])))
    low = max(spans[0][0] for spans in raw.values())
    high = min(spans[-1][1] for spans in raw.values())
    generator = random.Random(2)
    for _ in range(50):
        time_s = generator.uniform(low, high)
        expected = {n for n, spans in raw.items() if any(a <= time_s < b for a, b in spans)}
        epoch_s = 1136073600 if bundle.manifest.epoch == "2006-01-01T00:00:00Z" else 0
        assert online(bundle, (time_s - epoch_s) * US) == expected
