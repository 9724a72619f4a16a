"""Importing AI Benchmark scores and Propius speeds: values, what is dropped and counted, and what is refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.helpers import import_, put, refused


def test_raw_benchmark_list(tmp_path: Path) -> None:
    items = [
        {"Model": "A", "AI_Score": " 76206 1,6", "RAM": "8GB"},
        {"Model": "B", "AI_Score": " 900 ", "RAM": "0.5GB"},
        {"Model": "C", "AI_Score": "-", "RAM": "2GB"},
        {"Model": "D", "AI_Score": "1", "RAM": "512 MB"},
        {"Model": "E", "AI_Score": "1", "RAM": "1,5GB"},
        {"Model": "F", "AI_Score": "1", "RAM": "1TB"},
        {"Model": "A", "AI_Score": "500", "RAM": ""},
    ]
    bundle = import_("ai_benchmark", put(tmp_path / "raw.json", json.dumps(items)))
    rows = bundle.tables["compute"].to_pylist()
    assert [(r["device_id"], r["score"], r["ram_bytes"]) for r in rows] == [
        ("A", 500.0, None),
        ("B", 900.0, 2**29),
        ("D", 1.0, 2**29),
        ("E", 1.0, 3 * 2**29),
        ("F", 1.0, 2**40),
    ]
    assert "sample_s" not in bundle.tables["compute"].column_names
    assert bundle.manifest.counts == {"repeated_models": 1, "without_score": 1}
    items[1]["RAM"] = "8 Gbit"
    raw = put(tmp_path / "raw.json", json.dumps(items))
    assert "raw.json, B: RAM is '8 Gbit'" in refused("ai_benchmark", raw)


def test_scores_by_device_code(tmp_path: Path) -> None:
    scores = put(tmp_path / "score.json", json.dumps({"A": 10, "B": 20}))
    codes = put(
        tmp_path / "codes.json",
        json.dumps({"x1": "B", "x2": "unknown", "x3": "A", "x4": "B", "x5": "Z"}),
    )
    bundle = import_("ai_benchmark", codes, scores)
    rows = bundle.tables["compute"].to_pylist()
    assert [(r["device_id"], r["score"]) for r in rows] == [("x1", 20), ("x3", 10), ("x4", 20)]
    assert bundle.devices.column("model").to_pylist() == ["B", "A", "B"]
    assert bundle.manifest.counts == {"unknown_codes": 1, "codes_without_score": 1}
    assert "real2benchmark only with scores" in refused("ai_benchmark", codes)
    assert import_("ai_benchmark", scores).device_count == 2


@pytest.mark.parametrize("form", ["json", "pkl"])
def test_propius_speeds(tmp_path: Path, form: str) -> None:
    record = {"device": "P", "cpu_f": 8.0, "ram": 6.0, "fp16_mem": 1.0, "speed": 24.0}
    path = tmp_path / f"s.{form}"
    path.write_bytes(
        json.dumps({"440": record}).encode() if form == "json" else pickle.dumps({440: record})
    )
    bundle = import_("ai_benchmark", path)
    row = bundle.tables["compute"].to_pylist()[0]
    assert (row["device_id"], row["sample_s"], row["step_fixed_s"]) == ("440", 0.024, 0.0)
    assert (row["score"], row["ram_bytes"], row["phase"]) == (8.0, 6 * 2**30, "inference")
    assert bundle.devices.column("model").to_pylist() == ["P"]
    path = put(tmp_path / "n.json", json.dumps({"440": {**record, "ram": None, "cpu_f": 10**19}}))
    row = import_("ai_benchmark", path).tables["compute"].to_pylist()[0]
    assert (row["score"], row["ram_bytes"]) == (1e19, None)
    for value in (True, "x", [6], 1e300):
        path = put(tmp_path / "n.json", json.dumps({"440": {**record, "ram": value}}))
        assert "device 440: 'ram' is" in refused("ai_benchmark", path)


@pytest.mark.real_data
def test_real_benchmarks(real_traces: Path) -> None:
    folder = real_traces / "ai_benchmark"
    raw = import_("ai_benchmark", folder / "raw_ai_benchmark_list.json")
    assert raw.manifest.counts == {"repeated_models": 26, "without_score": 0}
    plain = import_("ai_benchmark", folder / "benchmark2score.json")

    def scores(bundle: Any) -> dict[str, float]:
        return {r["device_id"]: r["score"] for r in bundle.tables["compute"].to_pylist()}

    assert scores(raw) == scores(plain)
    coded = import_("ai_benchmark", folder / "benchmark2score.json", folder / "real2benchmark.json")
    assert coded.manifest.counts == {"unknown_codes": 610, "codes_without_score": 2}
    assert coded.device_count == 160
    speeds = import_("ai_benchmark", folder / "client_spec_speed.pkl")
    again = import_("ai_benchmark", folder / "client_spec_speed.json")
    assert speeds.tables["compute"].equals(again.tables["compute"])
    sample_s = speeds.numpy("compute", "sample_s")
    assert len(sample_s) == 952
    assert np.quantile(sample_s, [0.05, 0.5, 0.95]) == pytest.approx(
        [0.019, 0.063, 0.190], rel=0.02
    )
