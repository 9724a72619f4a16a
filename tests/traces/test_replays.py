"""Replays of imported bundles against plain readings of the raw files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from tests.traces.helpers import import_, intervals, online
from tests.traces.timers import names, timer_file

NS = 1_000_000_000


def test_index_agrees_with_a_plain_reading(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    index = AvailabilityIndex.from_bundle(bundle)
    for half_second in range(4400):
        time_ns = half_second * NS // 2
        assert names(index, bundle, time_ns) == online(bundle, time_ns / 1000)


def test_bundles_survive_the_disk(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    bundle.write(tmp_path / "bundle")
    again = TraceBundle.read(tmp_path / "bundle")
    assert intervals(again) == intervals(bundle)
    assert again.manifest == bundle.manifest


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("format_", "path"),
    [
        ("flash", "flash_state_1k/cached_timers.json"),
        ("fedscale", "fedscale_100/client_behave_trace_100.pkl"),
    ],
)
def test_real_index_agrees_with_the_raw_file(real_traces: Path, format_: str, path: str) -> None:
    bundle = import_(format_, real_traces / path)
    index = AvailabilityIndex.from_bundle(bundle)
    raw = json.loads((real_traces / path).with_suffix(".json").read_text())
    generator = random.Random(17)
    for _ in range(60):
        # Off the whole second, where inclusive and exclusive ends agree.
        time_s = generator.randrange(0, 40 * 86400) + 0.25
        expected = set()
        for key, record in raw.items():
            if format_ == "flash":
                if not record["isSuccess"]:
                    continue
                low, high = record["trace_start"], record["trace_end"]
                spans = record["ready_time"]
            else:
                low, high = 0, record["finish_time"]
                spans = list(zip(record["active"], record["inactive"], strict=True))
            now = (time_s - low) % (high - low) + low
            if any(start <= now <= end for start, end in spans):
                expected.add(key)
        assert names(index, bundle, round(time_s * NS)) == expected


@pytest.mark.real_data
def test_real_inclusive_ends_are_the_only_difference(real_traces: Path) -> None:
    source = real_traces / "fedscale_100" / "client_behave_trace_100.json"
    raw = json.loads(source.read_text())
    bundle = import_("fedscale", source)
    index = AvailabilityIndex.from_bundle(bundle)
    ids = bundle.device_ids.to_pylist()
    checked = 0
    for row, key in enumerate(ids):
        record = raw[key]
        starts = set(record["active"])
        for end in record["inactive"][:20]:
            if end in starts or end >= record["finish_time"]:
                continue
            assert not index.is_online(row, end * NS)
            assert index.is_online(row, end * NS - 1) or end in record["active"]
            checked += 1
    assert checked > 500
