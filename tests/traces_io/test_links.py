"""Rate series: Pensieve, Mahimahi, UCC 5G, NYU-METS; exports of the first two."""

from __future__ import annotations

import csv
import gzip
import io
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.traces.exporters import registry as exporters
from tests.traces_io.helpers import import_, refused, series_rows

US = 1_000_000


def export(format_: str, bundle: Any, path: Path, **options: Any) -> dict[str, int]:
    exporter = exporters()[format_]
    counts: dict[str, int] = exporter.write(bundle, path, exporter.Params(**options))
    return counts


def rate_at(bundle: Any, series: str, direction: str, time_us: int) -> float | None:
    found = [
        rate
        for start, dur, rate in series_rows(bundle, series, direction)
        if start <= time_us < start + dur
    ]
    assert len(found) == 1
    return found[0]


# Pensieve


def test_pensieve_rates_end_at_their_times(tmp_path: Path) -> None:
    path = tmp_path / "walk"
    path.write_text("0.0\t9.0\n0.5\t1.5\n2.0\t0.25\n")
    bundle = import_("pensieve", path)
    assert series_rows(bundle, "walk", "down") == [(0, 500_000, 1.5e6), (500_000, 1_500_000, 2.5e5)]
    assert bundle.manifest.counts == {"first_rates": 1, "zero_length": 0}
    device = bundle.devices.to_pylist()[0]
    assert (device["device_id"], device["period_us"]) == ("walk", 2 * US)
    assert bundle.tables["network_assign"].to_pylist() == [
        {"device_id": "walk", "series_id": "walk", "offset_us": 0, "scale": 1.0}
    ]


def test_pensieve_repeated_times_and_a_late_start(tmp_path: Path) -> None:
    path = tmp_path / "walk.log"
    path.write_text("7 1\n8 2\n8 3\n\n10 4\n")
    bundle = import_("pensieve", path, direction="up", app_limited=True)
    assert series_rows(bundle, "walk", "up") == [(0, US, 2e6), (US, 2 * US, 4e6)]
    assert bundle.manifest.counts["zero_length"] == 1
    assert any("application" in caveat for caveat in bundle.manifest.caveats)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1\n1 2 3\n", "w.txt:2: has 3 fields"),
        ("0 1\n\n1 fast\n", "w.txt:3: the rate is 'fast'"),
        ("0 1\n1 -2\n", "w.txt:2: the rate is '-2'"),
        ("0 1\n1 nan\n", "w.txt:2"),
        ("0 1\n5 1\n4 1\n", "sample 3 is at 4 s"),
        ("0 1\n", "no interval"),
        ("0 1\n0 2\n", "no interval"),
        ("", "no interval"),
    ],
)
def test_pensieve_malformed(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "w.txt"
    path.write_text(text)
    assert says in refused("pensieve", path)


def test_pensieve_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("0.0\t9.0\n0.5\t1.5\n2.0\t0.25\n")
    (folder / "b").write_text("3.25\t9.0\n4.0\t0.1\n")
    (folder / "README.md").write_text("not a trace")
    bundle = import_("pensieve", folder)
    assert export("pensieve", bundle, tmp_path / "out") == {"series": 2, "other_direction": 0}
    assert (tmp_path / "out" / "a").read_text() == "0.0\t1.5\n0.5\t1.5\n2.0\t0.25\n"
    again = import_("pensieve", tmp_path / "out")
    for name in bundle.tables:
        assert again.tables[name].equals(bundle.tables[name])
    with pytest.raises(UserError, match="no series for up"):
        export("pensieve", bundle, tmp_path / "up", direction="up")
    with pytest.raises(UserError, match="is a file"):
        export("pensieve", bundle, folder / "a")


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "walk").write_text("0 1\n1 2\n")
    bundle = import_("pensieve", tmp_path)
    assert bundle.device_ids.to_pylist() == ["x/walk", "y/walk"]
    export("pensieve", bundle, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["x_walk", "y_walk"]
    message = refused("pensieve", tmp_path / "x" / "walk", tmp_path / "y" / "walk")
    assert "has the name 'walk'" in message


# Mahimahi


def test_mahimahi_pieces(tmp_path: Path) -> None:
    path = tmp_path / "cell.down"
    path.write_text("2\n2\n3\n3\n4\n8\n")
    bundle = import_("mahimahi", path)
    assert series_rows(bundle, "cell", "down") == [
        (0, 2000, 0.0),
        (2000, 2000, 24e6),
        (4000, 1000, 12e6),
        (5000, 3000, 0.0),
        (8000, 1000, 12e6),
    ]
    bits = sum(dur / 1e6 * (rate or 0) for _, dur, rate in series_rows(bundle, "cell", "down"))
    assert bits == pytest.approx(6 * 12_000, rel=1e-12)


def test_mahimahi_pairs_directions(tmp_path: Path) -> None:
    (tmp_path / "cell.down").write_text("0\n5\n")
    (tmp_path / "cell.up").write_text("1\n9\n")
    (tmp_path / "other.down").write_text("3\n")
    bundle = import_("mahimahi", tmp_path)
    assert bundle.device_ids.to_pylist() == ["cell", "other"]
    assert bundle.devices.to_pylist()[0]["window_end_us"] == 10_000
    assert rate_at(bundle, "cell", "up", 1500) == 12e6
    assert rate_at(bundle, "cell", "down", 1500) == 0.0
    (tmp_path / "plain").write_text("1\n")
    assert "which direction" in refused("mahimahi", tmp_path / "plain")
    assert import_("mahimahi", tmp_path / "plain", direction="up").device_count == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1\n2.5\n", "c.up:2: the time is '2.5'"),
        ("1\n\n-3\n", "c.up:3: the time is '-3'"),
        ("x\n", "c.up:1: the time is 'x'"),
        ("99999999999999999999999\n", "c.up:1"),
        ("", "is empty"),
    ],
)
def test_mahimahi_malformed(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "c.up"
    path.write_text(text)
    assert says in refused("mahimahi", path)


@settings(max_examples=60, deadline=None)
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


def test_mahimahi_out_of_order_lines_are_sorted_and_counted(tmp_path: Path) -> None:
    (tmp_path / "c.up").write_text("5\n1\n3\n")
    bundle = import_("mahimahi", tmp_path / "c.up")
    assert bundle.manifest.counts == {"opportunities": 3, "out_of_order": 1}
    export("mahimahi", bundle, tmp_path / "out")
    assert (tmp_path / "out" / "c.up").read_text() == "1\n3\n5\n"


def test_mahimahi_export_of_other_rates(tmp_path: Path) -> None:
    # 6 Mbit/s is a packet every 2 ms; then nothing; then 0.1 Mbit/s for 30 ms: not one packet.
    (tmp_path / "w").write_text("0 0\n0.01 6\n0.02 0\n0.05 0.1\n")
    bundle = import_("pensieve", tmp_path / "w", direction="both")
    counts = export("mahimahi", bundle, tmp_path / "out")
    assert (tmp_path / "out" / "w.down").read_text() == "1\n3\n5\n7\n9\n"
    assert (tmp_path / "out" / "w.up").read_bytes() == (tmp_path / "out" / "w.down").read_bytes()
    assert counts == {"files": 2, "opportunities": 10, "idle_end_ms": 80}
    (tmp_path / "slow").write_text("0 0\n1 0.001\n")
    with pytest.raises(UserError, match="less than one packet"):
        export("mahimahi", import_("pensieve", tmp_path / "slow"), tmp_path / "out2")


# UCC 5G

HEADER = "Timestamp,Speed,NetworkMode,DL_bitrate,UL_bitrate,State,PINGAVG,PINGLOSS"


def ucc(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def stamp(second: int) -> str:
    return f"2020.02.27_18.39.{second:02d}"


def test_ucc_repeats_gaps_missing_and_idle(tmp_path: Path) -> None:
    path = ucc(
        tmp_path / "b.csv",
        f"{stamp(1)},0,5G,100,10,D,-,-",
        f"{stamp(1)},0,5G,300,30,D,50,0",  # the same second again: mean
        f"{stamp(2)},0,LTE,-,5,D,-,-",  # missing rate: held
        f"{stamp(5)},0,HSPA+,0,7,I,-,-",  # idle: not the link's rate; and two seconds without a row
        f"{stamp(6)},0,??,80,8,D,20,50",
    )
    bundle = import_("ucc5g", path)
    assert series_rows(bundle, "b", "down") == [
        (0, US, 200e3),
        (US, 3 * US, 200e3),
        (4 * US, US, 200e3),
        (5 * US, US, 80e3),
    ]
    assert [rate for _, _, rate in series_rows(bundle, "b", "up")] == [20e3, 5e3, 5e3, 8e3]
    down = bundle.tables["network_series"].to_pylist()[:4]
    assert [row["radio"] for row in down] == ["5g", "lte", "3g", None]
    assert [row["rtt_s"] for row in down] == pytest.approx([0.05, None, None, 0.02])
    assert [row["loss"] for row in down] == [0.0, None, None, 0.5]
    assert bundle.manifest.counts == {
        "files": 1,
        "app_limited_files": 0,
        "rows": 5,
        "same_second": 1,
        "out_of_order": 0,
        "seconds_without_row": 2,
        "missing_rates": 1,
        "idle_rows": 1,
    }


def test_ucc_players_are_not_the_link(tmp_path: Path) -> None:
    row = f"{stamp(1)},0,5G,100,10,D,-,-"
    ucc(tmp_path / "set" / "Netflix" / "a.csv", row)
    only = tmp_path / "set" / "Netflix"
    assert "app_limited=true" in refused("ucc5g", only)
    ucc(tmp_path / "set" / "Download" / "a.csv", row)
    bundle = import_("ucc5g", tmp_path / "set")
    assert bundle.device_ids.to_pylist() == ["a"]
    assert bundle.manifest.counts["app_limited_files"] == 1
    both = import_("ucc5g", tmp_path / "set", app_limited=True)
    assert both.device_ids.to_pylist() == ["Download/a", "Netflix/a"]
    assert any("player" in caveat for caveat in both.manifest.caveats)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["soon,0,5G,1,1,D,-,-"], "b.csv:2: Timestamp is 'soon'"),
        ([f"{stamp(1)},0,5G,x,1,D,-,-"], "b.csv:2: DL_bitrate is 'x'"),
        ([f"{stamp(1)},0,5G,1,-4,D,-,-"], "b.csv:2: UL_bitrate is '-4'"),
        ([f"{stamp(1)},0,5G"], "b.csv:2: has 3 cells, the header 8"),
        ([f"{stamp(1)},0,5G,1,1,I,-,-"], "no row gives DL_bitrate"),
        ([], "has no rows"),
    ],
)
def test_ucc_malformed(tmp_path: Path, rows: list[str], says: str) -> None:
    assert says in refused("ucc5g", ucc(tmp_path / "b.csv", *rows))


def test_ucc_without_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("a,b\n1,2\n")
    assert "has no column Timestamp" in refused("ucc5g", path)


# NYU-METS


def test_nyu_units_change_from_line_to_line(tmp_path: Path) -> None:
    path = tmp_path / "bus.csv"
    path.write_text("1.5,Mbits/sec\n20,Kbits/sec\n,Mbits/sec\n0.0,bits/sec\n")
    bundle = import_("nyu_mets", path)
    assert series_rows(bundle, "bus", "down") == [
        (0, US, 1.5e6),
        (US, US, 2e4),
        (2 * US, US, 2e4),
        (3 * US, US, 0.0),
    ]
    assert bundle.manifest.counts == {"seconds": 4, "missing_rates": 1}


def test_nyu_multivariate(tmp_path: Path) -> None:
    path = tmp_path / "BB.txt.gz"
    path.write_bytes(gzip.compress(b"12.6,9,0,102,13,3,7.37,2100\n3.18,9,0,,13,3,6.51,2100\n"))
    bundle = import_("nyu_mets", path)
    assert [rate for _, _, rate in series_rows(bundle, "BB", "down")] == [12.6e6, 3.18e6]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,Mbits/sec\n1,MB/s\n", "b.csv:2: 'MB/s' is not a unit"),
        ("1\n", "b.csv:1: has 1 fields"),
        ("fast,Mbits/sec\n", "b.csv:1: the rate is 'fast'"),
        ("nan,Mbits/sec\n", "b.csv:1: the rate is 'nan'"),
        ("-1,Mbits/sec\n", "b.csv:1: the rate is '-1'"),
        (",Mbits/sec\n", "has no rates"),
    ],
)
def test_nyu_malformed(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "b.csv"
    path.write_text(text)
    assert says in refused("nyu_mets", path)


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK not really")
    assert "zip archive" in refused("pensieve", path)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0 1\n1 2\n" * 100)[:-12])
    assert "whole gzip" in refused("pensieve", path)


# Real data


@pytest.mark.real_data
def test_real_pensieve(real_traces: Path) -> None:
    bundle = import_("pensieve", real_traces / "hsdpa_norway")
    files = [p for p in (real_traces / "hsdpa_norway").iterdir() if p.name.startswith("norway")]
    assert bundle.device_count == len(files) == 80
    generator = random.Random(4)
    for path in generator.sample(sorted(files), 8):
        raw = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        zero = raw[0][0]
        for _ in range(10):
            time_s = generator.uniform(0, raw[-1][0] - zero)
            # The rate of the interval that ends at the first later time.
            expected = next(rate for end, rate in raw[1:] if end - zero > time_s)
            found = rate_at(bundle, path.name, "down", int(time_s * 1e6))
            assert found == expected * 1e6


@pytest.mark.real_data
def test_real_puffer_archive(real_traces: Path) -> None:
    bundle = import_(
        "pensieve", real_traces / "puffer_broadband" / "puffer_300.zip", app_limited=True
    )
    assert bundle.device_count == 300
    assert bundle.manifest.counts["first_rates"] == 300


@pytest.mark.real_data
def test_real_mahimahi_round_trip(real_traces: Path, tmp_path: Path) -> None:
    files = sorted((real_traces / "mahimahi_cellular").glob("*LTE*.gz"))
    bundle = import_("mahimahi", *files)
    counts = export("mahimahi", bundle, tmp_path / "out")
    assert counts["idle_end_ms"] == 0
    for path in files:
        written = (tmp_path / "out" / path.name.removesuffix(".gz")).read_bytes()
        original = gzip.decompress(path.read_bytes())
        assert written.split() == original.split()


@pytest.mark.real_data
def test_real_ucc(real_traces: Path) -> None:
    source = real_traces / "ucc_5g" / "ucc_5g_production.zip"
    bundle = import_("ucc5g", source)
    counts = bundle.manifest.counts
    assert (counts["files"], counts["app_limited_files"]) == (21, 62)
    assert (counts["rows"], counts["same_second"]) == (43208, 4272)
    assert (counts["idle_rows"], counts["missing_rates"]) == (276, 0)
    # The mean download rate over downloading rows of one file, in whole seconds, read another way.
    name = "Download/Static/B_2020.02.27_18.39.27.csv"
    with zipfile.ZipFile(source) as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open(name))))
    by_second: dict[str, list[float]] = {}
    for row in rows:
        if "D" in row["State"]:
            by_second.setdefault(row["Timestamp"], []).append(float(row["DL_bitrate"]))
    found = [
        rate
        for _, _, rate in series_rows(bundle, "B_2020.02.27_18.39.27", "down")
        if rate is not None
    ]
    means = {round(float(np.mean(values)), 6) for values in by_second.values()}
    assert {round(rate / 1000, 6) for rate in found} == means


@pytest.mark.real_data
def test_real_nyu(real_traces: Path) -> None:
    bundle = import_("nyu_mets", real_traces / "nyu_mets_lte")
    assert bundle.device_count == 12
    assert bundle.manifest.counts == {"seconds": 122721, "missing_rates": 0}
    lines = (real_traces / "nyu_mets_lte" / "bus62.csv").read_text().split()
    factor = {"Mbits/sec": 1e6, "Kbits/sec": 1e3, "bits/sec": 1.0}
    for second in (0, 100, 2000):
        value, unit = lines[second].split(",")
        expected = float(value) * factor[unit]
        assert rate_at(bundle, "bus62", "down", second * US) == pytest.approx(expected)
    assert sum("Kbits" in line for line in lines) == 183
