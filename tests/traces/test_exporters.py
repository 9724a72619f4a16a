"""Exporting: files, which are replaced only on request, round trips, and what a format cannot hold."""

import gzip
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import FORMATS, links
from tests.traces.cases import bundle_of
from tests.traces.helpers import (
    behaviour,
    client,
    export,
    export_fta,
    fta_row,
    import_,
    intervals,
    online,
    write,
)


def test_existing_files_are_replaced_only_on_request(tmp_path: Path) -> None:
    bundle, exporter = bundle_of({"d0": [(0, 60_000_000)]}), FORMATS["avt"]
    path = tmp_path / "new" / "a.avt"
    exporter.write(bundle, path, exporter.Params())
    written = path.read_text()
    path.write_text("mine")
    with pytest.raises(UserError, match="the output already exists") as caught:
        exporter.write(bundle, path, exporter.Params())
    assert (caught.value.where, path.read_text()) == (str(path), "mine")
    exporter.write(bundle, path, exporter.Params(), overwrite=True)
    assert path.read_text() == written
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UserError, match=f"^{other}: ") as caught:
            exporter.write(bundle, other, exporter.Params(), overwrite=True)
        assert "--force" not in str(caught.value)


S = 1_000_000


def with_series(*series: str, **columns: Any) -> TraceBundle:
    """Two pieces of 5 s and 3 s per series, which begins at 10 s."""
    table = {
        "series_id": [name for name in series for _ in range(2)],
        "direction": ["down"] * (2 * len(series)),
        "start_us": [10 * S, 15 * S] * len(series),
        "dur_us": [5 * S, 3 * S] * len(series),
        "rate_bps": [1e6, 2e6] * len(series),
    }
    return bundle_of({"a": []}, tables={"network_series": {**table, **columns}})


def test_a_series_begins_at_zero_and_has_the_name_of_a_file() -> None:
    link, other = links(with_series("lab/1", "lab-2"))
    assert (link.series_id, link.file_name, other.file_name) == ("lab/1", "lab_1", "lab-2")
    assert link.edges_us.tolist() == [0, 5 * S, 8 * S]
    assert link.rate_bps.tolist() == [1e6, 2e6]


def test_an_unknown_rate_is_refused() -> None:
    with pytest.raises(UserError, match="network_series row 1 has no rate"):
        list(links(with_series("a", rate_bps=[1e6, None])))


def test_two_series_of_one_file_name_are_refused() -> None:
    with pytest.raises(UserError, match="'lab/1' and 'lab_1' would have the same file name"):
        list(links(with_series("lab/1", "lab_1")))


def test_avt_round_trip_is_byte_exact(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avt", "x\t2\t 5 10 20 30", "y\t0\t ", "z\t1\t 0 30")
    bundle = import_("avt", path)
    assert intervals(bundle) == {
        "x": [(5 * US, 10 * US), (20 * US, 30 * US)],
        "y": [],
        "z": [(0, 30 * US)],
    }
    counts = export("avt", bundle, tmp_path / "b.avt")
    assert (tmp_path / "b.avt").read_text() == path.read_text()
    assert counts == {"rounded": 0, "vanished": 0, "nodes": 3, "invalid_devices": 0}


def test_export_rounds_to_seconds_and_counts(tmp_path: Path) -> None:
    source = tmp_path / "t.json"
    ready = [[10.4, 11.6], [20.1, 20.3], [30.0, 31.0]]
    device = {"isSuccess": True, "trace_start": 0.0, "trace_end": 60.0, "ready_time": ready}
    bad = {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []}
    source.write_text(json.dumps({"a": device, "b": bad}))
    counts = export("avt", import_("flash", source), tmp_path / "a.avt")
    assert (tmp_path / "a.avt").read_text() == "a\t2\t 10 12 30 31\n"
    assert counts == {"rounded": 2, "vanished": 1, "nodes": 1, "invalid_devices": 1}


def test_export_refuses_names_with_spaces(tmp_path: Path) -> None:
    source = tmp_path / "t.json"
    source.write_text(json.dumps({"my phone": {"active": [0], "inactive": [1], "finish_time": 9}}))
    with pytest.raises(UserError, match="my phone"):
        export("avt", import_("fedscale", source), tmp_path / "a.avt")


@pytest.mark.real_data
def test_real_avt_round_trip(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "format_fixtures" / "sample.avt"
    bundle = import_("avt", source)
    export("avt", bundle, tmp_path / "b.avt")
    assert (tmp_path / "b.avt").read_bytes() == source.read_bytes()
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


US, NS = 1_000_000, 1_000_000_000


def export_fedscale(bundle: Any, path: Path, **options: Any) -> tuple[Any, dict[str, int]]:
    counts = export("fedscale", bundle, path, **options)
    if path.suffix == ".pkl":
        return pickle.loads(path.read_bytes()), counts
    return json.loads(path.read_text()), counts


def test_fedscale_round_trip(tmp_path: Path) -> None:
    clients = {
        "1": client([10, 50], [20, 60], 100, duration=20),
        "12": client([0, 20, 30], [10, 30, 100], 100, duration=90),
    }
    bundle = import_("fedscale", behaviour(tmp_path / "b.json", clients))
    back, counts = export_fedscale(bundle, tmp_path / "out.json")
    assert back == clients
    assert counts["clients"] == 2
    with pytest.raises(UserError, match=r"\.json or \.pkl"):
        export_fedscale(bundle, tmp_path / "out.txt")
    back, _ = export_fedscale(bundle, tmp_path / "out.pkl")
    assert back == {int(key): value for key, value in clients.items()}


def test_export_capacity_counts_what_it_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("device,sample_time,step_time,down,up\n4,30,5,8,2\n5,60,0,4,\n6,1,,,\n")
    bundle = import_("table", path, compute_unit="ms", rate_unit="Mbps")
    back, counts = export_fedscale(bundle, tmp_path / "c.json", content="capacity")
    assert back == {
        "4": {"computation": pytest.approx(10.0), "communication": 8000.0},
        "5": {"computation": pytest.approx(20.0), "communication": 4000.0},
    }
    assert counts == {"fixed_parts_lost": 1, "up_rates_lost": 1, "clients": 2}
    (tmp_path / "s.csv").write_text("device,score,down\n4,30,5\n")
    scores = import_("table", tmp_path / "s.csv", rate_unit="Mbps")
    with pytest.raises(UserError, match="no device has both"):
        export_fedscale(scores, tmp_path / "d.json", content="capacity")


def test_clients_without_numbers_are_numbered_from_1(tmp_path: Path) -> None:
    clients = {"a": client([0], [5]), "b": client([1], [5])}
    back, _ = export_fedscale(
        import_("fedscale", behaviour(tmp_path / "b.json", clients)), tmp_path / "o.json"
    )
    assert [back["1"]["active"], back["2"]["active"]] == [[0], [1]]


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


def test_export_on_the_clock_splits_sessions_at_the_seam(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    data, counts = export_fedscale(bundle, tmp_path / "clock.json")
    # 1050..1085 is 30..65 of a period of 60 s: split. 1095..1100 is 95..100 of 100 s: not.
    assert counts["split_at_seam"] == 1
    assert counts["invalid_devices"] == 1
    assert data["8"] == {
        "duration": 35,
        "active": [0, 30],
        "inactive": [5, 60],
        "finish_time": 60,
        "model": "unknown",
    }
    again = import_("fedscale", tmp_path / "clock.json")
    for half_second in range(1, 800, 13):
        assert online(again, half_second * US / 2) == online(bundle, half_second * US / 2)


def test_export_by_device_keeps_each_devices_own_start(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    data, _ = export_fedscale(bundle, tmp_path / "device.json", align="device")
    assert (data["5"]["active"], data["5"]["inactive"]) == ([0, 40, 95], [10, 60, 100])
    assert (data["8"]["active"], data["8"]["inactive"]) == ([20], [55])


@pytest.mark.real_data
def test_real_fedscale_round_trip(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "fedscale_100" / "client_behave_trace_100.pkl"
    original = json.loads(source.with_suffix(".json").read_text())
    bundle = import_("fedscale", source)
    for align in ("clock", "device"):
        back, counts = export_fedscale(bundle, tmp_path / f"{align}.json", align=align)
        assert (counts["clients"], counts["rounded"], counts["vanished"]) == (100, 0, 0)
        clean = 0
        for key, record in original.items():
            pairs = list(zip(record["active"], record["inactive"], strict=True))
            positive = sorted((s, e) for s, e in pairs if e > s)
            clean += positive == pairs
            # Dropping the empty intervals is all that normalising does here.
            starts, ends = [s for s, _ in positive], [e for _, e in positive]
            assert back[key] == record | {"active": starts, "inactive": ends}
        assert clean == 91


@pytest.mark.real_data
def test_real_fedscale_capacity_round_trip(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "fedscale_100" / "client_device_capacity_100.pkl"
    original = json.loads(source.with_suffix(".json").read_text())
    back, _ = export_fedscale(import_("fedscale", source), tmp_path / "c.json", content="capacity")
    assert back.keys() == original.keys()
    for key, record in original.items():
        # ms to s and back costs at most one unit in the last place.
        assert back[key] == pytest.approx(record, rel=3e-16)


@pytest.mark.real_data
def test_real_flash_to_fedscale_and_back(real_traces: Path, tmp_path: Path) -> None:
    bundle = import_("flash", real_traces / "flash_state_1k" / "cached_timers.json")
    _, counts = export_fedscale(bundle, tmp_path / "f.pkl")
    assert (counts["rounded"], counts["vanished"], counts["invalid_devices"]) == (0, 0, 290)
    again = import_("fedscale", tmp_path / "f.pkl")
    assert again.device_count == counts["clients"] == 710 - counts["never_available"]
    generator = np.random.default_rng(8)
    for time_ns in generator.integers(0, 60 * 86400 * NS, 20).tolist():
        assert online(bundle, time_ns / 1000) == online(again, time_ns / 1000)


def test_export_fills_the_gaps_of_other_sources(tmp_path: Path) -> None:
    source = tmp_path / "a.avt"
    source.write_text("x\t2\t 5 10 20 30\ny\t0\t \n")
    rows, counts = export_fta(import_("avt", source, window=40), tmp_path / "e.tab")
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
    path = write(tmp_path / "e.tab", fta_row(7, 1, "1136073600.000001", "1136073601.25"))
    rows, _ = export_fta(import_("fta", path), tmp_path / "out.tab")
    assert rows[0][6:8] == ["1136073600.000001", "1136073601.250"]


@pytest.mark.real_data
def test_real_fta_round_trip(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "format_fixtures" / "fta_event_trace.tab"
    bundle = import_("fta", source)
    export_fta(bundle, tmp_path / "out.tab")
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


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=80))
def test_mahimahi_round_trip_line_for_line(
    tmp_path_factory: pytest.TempPathFactory, times: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("m")
    text = "".join(f"{time}\n" for time in sorted(times))
    (folder / "c.down").write_text(text)
    bundle = import_("mahimahi", folder / "c.down")
    counts = export("mahimahi", bundle, folder / "out")
    assert (folder / "out" / "c.down").read_text() == text
    assert counts == {"files": 1, "opportunities": len(times), "idle_end_ms": 0}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 400), st.sampled_from([0, 0.1, 1, 1.2, 7, 600])), min_size=1)
)
def test_packets_of_mahimahi_are_those_of_each_millisecond(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, float]]
) -> None:
    folder, end, lines = tmp_path_factory.mktemp("m"), 0.0, ["0 0"]
    bits, expected = np.zeros(0), list[int]()
    for length_ms, mbps in rows:
        end += length_ms / 1000
        lines.append(f"{end:.3f} {mbps}")
        bits = np.append(bits, np.full(length_ms, mbps * 1e3))
    sent = np.floor(np.cumsum(bits) / 12_000 + 1e-6).astype(int)
    expected = np.repeat(np.arange(len(bits)), np.diff(sent, prepend=0)).tolist()
    (folder / "c").write_text("\n".join(lines) + "\n")
    bundle = import_("pensieve", folder / "c")
    if expected:
        export("mahimahi", bundle, folder / "out")
        assert (folder / "out" / "c.down").read_text().split() == [*map(str, expected)]


def test_mahimahi_export_of_other_rates(tmp_path: Path) -> None:
    # 6 Mbit/s is a packet every 2 ms; then nothing; then 0.1 Mbit/s for 30 ms: not one packet.
    (tmp_path / "w").write_text("0 0\n0.01 6\n0.02 0\n0.05 0.1\n")
    bundle = import_("pensieve", tmp_path / "w", direction="both")
    counts = export("mahimahi", bundle, tmp_path / "out")
    assert (tmp_path / "out" / "w.down").read_text() == "1\n3\n5\n7\n9\n"
    assert (tmp_path / "out" / "w.up").read_bytes() == (tmp_path / "out" / "w.down").read_bytes()
    assert counts == {"files": 2, "opportunities": 10, "idle_end_ms": 80}
    for rate in (1e-9, 1e6):  # After 115 days without a packet, or with far too many.
        (tmp_path / "long").write_text(f"0 0\n1e7 {rate}\n10000001 {1 if rate < 1 else rate}\n")
        bundle = import_("pensieve", tmp_path / "long")
        if rate < 1:
            lines = export("mahimahi", bundle, tmp_path / "long_out")["opportunities"]
            assert lines == int((1e7 * 1e-9 + 1) * 1e6 / 12000)
        else:
            with pytest.raises(UserError, match=r"'long' carries 8\.33e\+14 packets"):
                export("mahimahi", bundle, tmp_path / "out3")
    (tmp_path / "slow").write_text("0 0\n1 0.001\n")
    with pytest.raises(UserError, match="less than one packet"):
        export("mahimahi", import_("pensieve", tmp_path / "slow"), tmp_path / "out2")


@pytest.mark.real_data
def test_real_mahimahi_round_trip(real_traces: Path, tmp_path: Path) -> None:
    files = sorted((real_traces / "mahimahi_cellular").glob("TMobile-LTE-short*.gz"))
    bundle = import_("mahimahi", *files)
    counts = export("mahimahi", bundle, tmp_path / "out")
    assert counts["idle_end_ms"] == 0
    for path in files:
        written = (tmp_path / "out" / path.name.removesuffix(".gz")).read_bytes()
        original = gzip.decompress(path.read_bytes())
        assert written.split() == original.split()


def test_pensieve_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("0.0\t9.0\n0.5\t1.5\n2.0\t0.25\n")
    (folder / "b").write_text("3.25\t9.0\n4.0\t0.1\n")
    (folder / "README.md").write_text("not a trace")
    (folder / "_SUCCESS").touch()
    bundle = import_("pensieve", folder)
    assert export("pensieve", bundle, tmp_path / "out") == {"series": 2, "other_direction": 0}
    assert (tmp_path / "out" / "a").read_text() == "0.0\t1.5\n0.5\t1.5\n2.0\t0.25\n"
    again = import_("pensieve", tmp_path / "out")
    for name in bundle.tables:
        assert again.tables[name].equals(bundle.tables[name])
    with pytest.raises(UserError, match="no series for up"):
        export("pensieve", bundle, tmp_path / "up", direction="up")
