"""Exporting to Mahimahi packet-delivery traces: round trips, and what the format cannot hold."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import UserError
from tests.traces.helpers import export, import_


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


@pytest.mark.real_data
def test_real_mahimahi_round_trip(real_traces: Path, tmp_path: Path) -> None:
    files = sorted((real_traces / "mahimahi_cellular").glob("*LTE-short*.gz"))
    bundle = import_("mahimahi", *files)
    counts = export("mahimahi", bundle, tmp_path / "out")
    assert counts["idle_end_ms"] == 0
    for path in files:
        written = (tmp_path / "out" / path.name.removesuffix(".gz")).read_bytes()
        original = gzip.decompress(path.read_bytes())
        assert written.split() == original.split()
