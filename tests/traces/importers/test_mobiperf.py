"""Importing MobiPerf tests: values, what is dropped and counted, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.traces.helpers import import_, put


def record(results: list[Any], network: str = "WIFI") -> dict[str, Any]:
    return {
        "timestamp": 1514779787132000,
        "device_properties": {"network_type": network, "device_info": {"model": "SM"}},
        "tcp_speed_results": results,
    }


def test_mobiperf(tmp_path: Path) -> None:
    content = [record([1000.0, 3000.0]), record([]), record([0.0]), record([5.0], "Wifi")]
    bundle = import_("mobiperf", put(tmp_path / "m.json", json.dumps(content)))
    rows = bundle.tables["network"].to_pylist()
    assert [(r["device_id"], r["bandwidth_bps"], r["bandwidth_cv"]) for r in rows] == [
        ("test1", 2e6, 0.5),
        ("test4", 5e3, 0.0),
    ]
    assert [r["radio"] for r in rows] == ["wifi", "wifi"]
    assert [r["direction"] for r in rows] == ["down", "down"]
    assert bundle.manifest.counts == {"tests": 4, "without_samples": 1, "all_zero": 1}
    assert any("not a random sample" in caveat for caveat in bundle.manifest.caveats)


@pytest.mark.real_data
def test_real_mobiperf(real_traces: Path) -> None:
    source = real_traces / "mobiperf_tcp_down_2018" / "mobiperf_tcp_down_2018_sample.json"
    bundle = import_("mobiperf", source)
    data = json.loads(source.read_text())
    rows = bundle.tables["network"].to_pylist()
    assert bundle.manifest.counts == {"tests": 91, "without_samples": 0, "all_zero": 0}
    for row, test in zip(rows, data, strict=True):
        expected = sum(test["tcp_speed_results"]) / len(test["tcp_speed_results"]) * 1000
        assert row["bandwidth_bps"] == pytest.approx(expected)
    assert sorted({row["radio"] for row in rows}) == ["mobile", "wifi"]
