"""Importing throughput logs with any columns: values known by hand, other formats as oracles, and what is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.traces.bundle import TraceBundle
from tests.traces.helpers import import_, put, series_rows

US = 1_000_000
HSDPA = """\
1289406399 549 59.851754 10.781778 248456 1008
1289406400 1549 59.851864 10.781833 250000 1000
1289406402 3549 59.851941 10.781917 500000 2000
1289406402 4049 59.851941 10.781917 0 500
"""


def test_bytes_per_interval_without_a_header(tmp_path: Path) -> None:
    """Riiser's logs of 3G commutes: Unix time, ms since the start, place, bytes since the last row, ms since it."""
    put(tmp_path / "bus.log", HSDPA)
    put(tmp_path / "tram.log", HSDPA.replace("250000", "125000"))
    columns = {"time": 2, "time_unit": "ms", "down": 5, "rate_unit": "B"}
    bundle = import_("throughput", tmp_path, **columns)
    # 250 kB in 1 s, 500 kB in 2 s, nothing in 0.5 s.
    assert series_rows(bundle, "bus", "down") == [
        (0, US, 2e6),
        (US, 2 * US, 2e6),
        (3 * US, US // 2, 0.0),
    ]
    assert series_rows(bundle, "tram", "down")[0] == (0, US, 1e6)
    assert bundle.devices.column("device_id").to_pylist() == ["bus", "tram"]
    # Two rows at second ...402: their amounts add up to 500 kB in 2 s.
    seconds = import_("throughput", tmp_path, **columns | {"time": 1, "time_unit": "s"})
    assert series_rows(seconds, "bus", "down")[1:] == [(US, 2 * US, 2e6)]
    assert seconds.manifest.counts["same_time"] == 2


DRIVE = """\
Date{0}downlink_Mbps{0}uplink_Mbps{0}radio
2021-06-01 12:00:00.0{0}90{0}9{0}5G
2021-06-01 12:00:00.5{0}80{0}8{0}5G
2021-06-01 12:00:02.0{0}-{0}7{0}LTE
2021-06-01 12:00:02.0{0}{0}5{0}LTE
2021-06-01 12:00:03.0{0}60{0}{0}5G
"""


@pytest.mark.parametrize("separator", [",", "; ", "\t"])
def test_names_timestamps_and_both_directions(tmp_path: Path, separator: str) -> None:
    path = put(tmp_path / "drive.csv", DRIVE.format(separator))
    bundle = import_(
        "throughput", path, time="Date", down="downlink_Mbps", up="uplink_Mbps", rate_unit="Mbps"
    )
    pieces = [(0, US // 2), (US // 2, 3 * US // 2), (2 * US, US)]
    for direction, rates in (("down", [80e6, 80e6, 60e6]), ("up", [8e6, 6e6, 6e6])):
        rows = series_rows(bundle, "drive", direction)
        assert [row[:2] for row in rows] == pieces
        assert [row[2] for row in rows] == pytest.approx(rates, rel=1e-12)
    counts = {name: count for name, count in bundle.manifest.counts.items() if count}
    assert counts == {"same_time": 1, "missing_rates": 2}


def _tables(bundle: TraceBundle) -> dict[str, Any]:
    return {name: table.to_pylist() for name, table in bundle.tables.items()}


def test_pensieves_files_read_as_such_and_in_general_are_equal(tmp_path: Path) -> None:
    put(tmp_path / "a", "0.0\t9.0\n0.5\t1.5\n2.0\t0.25\n")
    put(tmp_path / "b.txt", "7 1\n8.25 2\n10 4\n")
    general = import_("throughput", tmp_path, time=1, time_unit="s", down=2, rate_unit="Mbps")
    assert _tables(general) == _tables(import_("pensieve", tmp_path))


def test_units_and_parquet(tmp_path: Path) -> None:
    table = pa.table({"t": [0, 1, 3], "rate": [5.0, 2.0, 1.0]})
    pq.write_table(table, tmp_path / "x.parquet")
    path = tmp_path / "x.parquet"
    for unit, bps in (("kB/s", 8e3), ("MiB/s", 8 * 2**20), ("Gbps", 1e9), ("kB", 8e3 / 60)):
        bundle = import_("throughput", path, time="t", time_unit="min", up="rate", rate_unit=unit)
        rows = series_rows(bundle, "x", "up")
        assert [row[:2] for row in rows] == [(0, 60 * US), (60 * US, 120 * US)]
        second = bps / 2 if unit == "kB" else bps
        assert [row[2] for row in rows] == pytest.approx([2 * bps, second], rel=1e-12)


@pytest.mark.real_data
def test_real_commutes(real_traces: Path) -> None:
    folder = real_traces / "hsdpa_norway"
    general = import_("throughput", folder, time=1, time_unit="s", down=2, rate_unit="Mbps")
    assert general.tables["network_series"].equals(
        import_("pensieve", folder).tables["network_series"]
    )
