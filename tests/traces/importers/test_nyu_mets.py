"""Importing NYU-METS throughput: values, what is dropped and counted, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.traces.helpers import import_, rate_at, series_rows

US = 1_000_000


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
