"""Sources without a clock: RTT matrices, AI Benchmark and Propius, MobiPerf."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.traces.importers import registry
from tests.traces_io.helpers import import_, refused


def pairs(bundle: Any) -> dict[tuple[str, str], float]:
    return {
        (row["src"], row["dst"]): row["rtt_s"] for row in bundle.tables["rtt_matrix"].to_pylist()
    }


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# RTT matrices


def test_rtt_units_must_be_said(tmp_path: Path) -> None:
    path = put(tmp_path / "m", "0\t20\n30\t0\n")
    with pytest.raises(ValidationError, match="unit"):
        registry()["rtt_matrix"].Params()
    bundle = import_("rtt_matrix", path, unit="ms")
    assert pairs(bundle) == pytest.approx({("n0", "n1"): 0.02, ("n1", "n0"): 0.03})
    assert bundle.devices.column("group").to_pylist() == ["n0", "n1"]
    assert "try unit=ms" in refused("rtt_matrix", path, unit="s")
    seconds = put(tmp_path / "s", "0,0.02\n0.03,0\n")
    assert "try unit=s" in refused("rtt_matrix", seconds, unit="ms")


def test_rtt_zero_and_missing_pairs_are_unknown(tmp_path: Path) -> None:
    path = put(tmp_path / "m", "0 0 5\n- 0 7\n6 nan 0\n\n")
    bundle = import_("rtt_matrix", path, unit="ms")
    assert set(pairs(bundle)) == {("n0", "n2"), ("n1", "n2"), ("n2", "n0")}
    assert bundle.manifest.counts == {
        "slices": 1,
        "zero_off_diagonal": 1,
        "missing_cells": 2,
        "unknown_pairs": 3,
    }


def test_rtt_slices_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    paths = [put(tmp_path / f"D_{n}", f"0 {v}\n{v} 0\n") for n, v in ((10, 30), (1, 10), (9, 50))]
    median = import_("rtt_matrix", *paths, unit="ms")
    assert pairs(median) == pytest.approx({("n0", "n1"): 0.03, ("n1", "n0"): 0.03})
    kept = import_("rtt_matrix", *paths, unit="ms", slice_interval="10s")
    rows = [
        (row["slice_us"], round(row["rtt_s"], 6))
        for row in kept.tables["rtt_matrix"].to_pylist()
        if row["src"] == "n0"
    ]
    assert rows == [(0, 0.01), (10_000_000, 0.05), (20_000_000, 0.03)]
    assert kept.manifest.horizon_us == 30_000_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1\n1 0 2\n", "m:2: has 3 numbers, the first line 2"),
        ("0 1 2\n1 0 2\n", "has 2 lines of 3 numbers"),
        ("0 x\n1 0\n", "m:1: a round-trip time is 'x'"),
        ("0 -1\n1 0\n", "m:1: a round-trip time is '-1'"),
        ("0 0\n0 0\n", "gives no round-trip time"),
        ("", "has 0 lines"),
    ],
)
def test_rtt_malformed(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused("rtt_matrix", put(tmp_path / "m", text), unit="ms")


def test_rtt_slices_of_other_sizes(tmp_path: Path) -> None:
    first = put(tmp_path / "m1", "0 1\n1 0\n")
    second = put(tmp_path / "m2", "0 1 1\n1 0 1\n1 1 0\n")
    assert "m2: has 3 nodes" in refused("rtt_matrix", first, second, unit="ms")


# AI Benchmark and Propius


def test_raw_benchmark_list(tmp_path: Path) -> None:
    items = [
        {"Model": "A", "AI_Score": " 76206 1,6", "RAM": "8GB"},
        {"Model": "B", "AI_Score": " 900 ", "RAM": "0.5GB"},
        {"Model": "C", "AI_Score": "-", "RAM": "2GB"},
        {"Model": "A", "AI_Score": "500", "RAM": ""},
    ]
    bundle = import_("ai_benchmark", put(tmp_path / "raw.json", json.dumps(items)))
    rows = bundle.tables["compute"].to_pylist()
    assert [(r["device_id"], r["score"], r["ram_bytes"]) for r in rows] == [
        ("A", 500.0, None),
        ("B", 900.0, 2**29),
    ]
    assert "sample_s" not in bundle.tables["compute"].column_names
    assert bundle.manifest.counts == {"repeated_models": 1, "without_score": 1}


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
    assert "cannot be read together: codes" in refused("ai_benchmark", codes)
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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"1": {"speed": 0.0}}, "device 1: 'speed' is 0.0"),
        ({"1": {"device": "x"}}, "device 1: 'speed' is null"),
        ({"A": -1}, "A: the score is -1"),
        ([{"AI_Score": "5"}], "record 1: has no 'Model'"),
        ([{"Model": "A"}], "has no 'AI_Score'"),
        ({}, "not one of the known files"),
        ({"a": 1, "b": "x"}, "not one of the known files"),
    ],
)
def test_benchmark_malformed(tmp_path: Path, content: Any, says: str) -> None:
    assert says in refused("ai_benchmark", put(tmp_path / "x.json", json.dumps(content)))


# MobiPerf


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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"a": 1}, "is a dict"),
        ([1], "record 1: has no list"),
        ([record([1.0]), {"tcp_speed_results": 5}], "record 2: has no list"),
        ([record([-1.0])], "record 1: a throughput sample is -1.0"),
        ([record(["x"])], "record 1: a throughput sample is 'x'"),
        ([record([])], "no test has samples"),
    ],
)
def test_mobiperf_malformed(tmp_path: Path, content: Any, says: str) -> None:
    assert says in refused("mobiperf", put(tmp_path / "m.json", json.dumps(content)))


# Real data


@pytest.mark.real_data
def test_real_planetlab(real_traces: Path) -> None:
    files = sorted((real_traces / "netlatency").glob("PlanetLab*.gz"))
    bundle = import_("rtt_matrix", *files, unit="ms")
    stack = np.array([np.loadtxt(io.BytesIO(gzip.decompress(path.read_bytes()))) for path in files])
    found = pairs(bundle)
    assert len(found) == 490 * 489
    generator = random.Random(0)
    for _ in range(200):
        src, dst = generator.sample(range(490), 2)
        expected = sorted(stack[:, src, dst])[1] / 1000
        assert found[f"n{src}", f"n{dst}"] == pytest.approx(expected, rel=1e-6)
    assert np.median(list(found.values())) == pytest.approx(0.135, abs=0.002)


@pytest.mark.real_data
def test_real_seattle(real_traces: Path) -> None:
    source = real_traces / "netlatency" / "seattle_every8th.zip"
    bundle = import_("rtt_matrix", source, unit="s")
    assert bundle.device_count == 99
    assert bundle.manifest.counts["slices"] == 86
    with zipfile.ZipFile(source) as archive:
        stack = np.array([np.loadtxt(io.BytesIO(archive.read(n))) for n in archive.namelist()])
    zeros = (stack == 0) & ~np.eye(99, dtype=bool)
    assert bundle.manifest.counts["zero_off_diagonal"] == zeros.sum() == 4826
    seen = np.ma.median(np.ma.masked_equal(stack[:, 3, 7], 0))
    assert pairs(bundle)["n3", "n7"] == pytest.approx(float(seen), rel=1e-6)


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
