"""Importing Mahimahi packet-delivery traces: values, what is dropped and counted, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces.helpers import export, import_, rate_at, refused, series_rows


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
    assert "the direction" in refused("mahimahi", tmp_path / "plain")
    assert import_("mahimahi", tmp_path / "plain", direction="up").device_count == 1


def test_mahimahi_out_of_order_lines_are_sorted_and_counted(tmp_path: Path) -> None:
    (tmp_path / "c.up").write_text("5\n1\n3\n")
    bundle = import_("mahimahi", tmp_path / "c.up")
    assert bundle.manifest.counts == {"opportunities": 3, "out_of_order": 1}
    export("mahimahi", bundle, tmp_path / "out")
    assert (tmp_path / "out" / "c.up").read_text() == "1\n3\n5\n"
