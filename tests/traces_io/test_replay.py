"""Imported bundles through fedsim's own index and back through other simulators' files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedsim.cli import cli
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import registry as exporters
from fedsim.traces.importers import registry as importers
from tests.traces_io.helpers import import_, intervals, online

US = 1_000_000
NS = 1_000_000_000


def export(format_: str, bundle: Any, path: Path, **options: Any) -> dict[str, int]:
    exporter = exporters()[format_]
    counts: dict[str, int] = exporter.write(bundle, path, exporter.Params(**options))
    return counts


def names(index: AvailabilityIndex, bundle: TraceBundle, time_ns: int) -> set[str]:
    ids = bundle.device_ids.to_pylist()
    return {ids[row] for row in index.online_clients(time_ns)}


def timer_file(path: Path) -> Path:
    """Two devices whose windows differ, one of them available across its seam."""
    devices = {
        "5": {
            "isSuccess": True,
            "trace_start": 1000.0,
            "trace_end": 1100.0,
            "ready_time": [[1000.0, 1010.0], [1040.0, 1060.0], [1095.0, 1100.0]],
        },
        "8": {
            "isSuccess": True,
            "trace_start": 1030.0,
            "trace_end": 1090.0,
            "ready_time": [[1050.0, 1085.0]],
        },
        "9": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
    }
    path.write_text(json.dumps(devices))
    return path


def test_index_agrees_with_a_plain_reading(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    index = AvailabilityIndex.from_bundle(bundle)
    for half_second in range(4400):
        time_ns = half_second * NS // 2
        assert names(index, bundle, time_ns) == online(bundle, time_ns / 1000)


def test_export_on_the_clock_splits_sessions_at_the_seam(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    counts = export("fedscale", bundle, tmp_path / "clock.json")
    # 1050..1085 is 30..65 of a period of 60 s: split. 1095..1100 is 95..100 of 100 s: not.
    assert counts["split_at_seam"] == 1
    assert counts["invalid_devices"] == 1
    data = json.loads((tmp_path / "clock.json").read_text())
    assert data["8"] == {
        "duration": 35,
        "active": [0, 30],
        "inactive": [5, 60],
        "finish_time": 60,
        "model": "unknown",
    }
    again = import_("fedscale", tmp_path / "clock.json")
    for half_second in range(1, 800, 2):
        assert online(again, half_second * US / 2) == online(bundle, half_second * US / 2)


def test_export_by_device_keeps_each_devices_own_start(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    export("fedscale", bundle, tmp_path / "device.json", align="device")
    data = json.loads((tmp_path / "device.json").read_text())
    assert (data["5"]["active"], data["5"]["inactive"]) == ([0, 40, 95], [10, 60, 100])
    assert (data["8"]["active"], data["8"]["inactive"]) == ([20], [55])


def test_bundles_survive_the_disk(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    bundle.write(tmp_path / "bundle")
    again = TraceBundle.read(tmp_path / "bundle")
    assert intervals(again) == intervals(bundle)
    assert again.manifest == bundle.manifest


def test_every_format_says_what_it_is() -> None:
    assert list(importers()) == [
        "ai_benchmark",
        "avt",
        "csv",
        "fedscale",
        "flash",
        "fta",
        "mahimahi",
        "mobiperf",
        "nyu_mets",
        "pensieve",
        "rtt_matrix",
        "ucc5g",
    ]
    assert list(exporters()) == ["avt", "fedscale", "fta", "mahimahi", "pensieve"]
    for component in [*importers().values(), *exporters().values()]:
        assert component.description
        for field, info in component.Params.model_fields.items():
            assert info.description, f"{component.name}: {field}"


def test_command_line_prints_what_was_dropped(tmp_path: Path) -> None:
    source = tmp_path / "b.json"
    source.write_text(json.dumps({"1": {"active": [1, 5], "inactive": [2, 5], "finish_time": 60}}))
    runner = CliRunner()
    done = runner.invoke(
        cli, ["traces", "import", "fedscale", str(source), "-o", str(tmp_path / "bundle")]
    )
    assert done.exit_code == 0, done.output
    assert "zero length" in done.output
    done = runner.invoke(
        cli, ["traces", "export", "avt", str(tmp_path / "bundle"), "-o", str(tmp_path / "a.avt")]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.avt").read_text() == "1\t1\t 1 2\n"


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


@pytest.mark.real_data
def test_real_flash_to_fedscale_and_back(real_traces: Path, tmp_path: Path) -> None:
    bundle = import_("flash", real_traces / "flash_state_1k" / "cached_timers.json")
    counts = export("fedscale", bundle, tmp_path / "f.pkl")
    assert (counts["rounded"], counts["vanished"], counts["invalid_devices"]) == (0, 0, 290)
    again = import_("fedscale", tmp_path / "f.pkl")
    assert again.device_count == counts["clients"] == 710 - counts["never_available"]
    ours = AvailabilityIndex.from_bundle(bundle)
    theirs = AvailabilityIndex.from_bundle(again)
    generator = np.random.default_rng(8)
    for time_ns in generator.integers(0, 60 * 86400 * NS, 100).tolist():
        assert names(ours, bundle, time_ns) == names(theirs, again, time_ns)
